"""What is stored beside the values of the model."""

from __future__ import annotations

from dataclasses import dataclass

from fluss_tiering.model.lake import LakeSnapshot


@dataclass(frozen=True, slots=True)
class LeaseAttempt:
    """The newest attempt under a lease id; it outlives the lease, so that late calls of older attempts are recognised.

    Attributes:
        cancelled_reason: why the attempt was cancelled, for those who wait on it; None while it may run.
    """

    lease_id: str
    attempt_token: int
    started_time: int
    cancelled_reason: str | None = None


@dataclass(frozen=True, slots=True)
class CommittedLakeSnapshot:
    """A lake snapshot with what identifies its commit.

    Attributes:
        offsets_path: the offsets file that the snapshot's summary names.
    """

    snapshot: LakeSnapshot
    tiering_epoch: int
    commit_id: str
    offsets_path: str
    committed_time: int
