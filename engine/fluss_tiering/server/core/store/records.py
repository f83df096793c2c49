"""Records that are stored in addition to the values of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.tiering import TieringRound
from fluss_tiering.server.core.store.offsets import PackedOffsets


@dataclass(frozen=True, slots=True)
class LeaseAttempt:
    """The newest attempt under a lease id. It outlives the lease, so that late calls of older attempts are recognised.

    Attributes:
        lease_id: The lease id.
        attempt_token: The token of the attempt. It is greater than the tokens of all earlier attempts.
        started_time: When the attempt began, in milliseconds since the epoch.
        cancelled_reason: Why the attempt was cancelled, for clients that wait on it; None if it was not cancelled.
    """

    lease_id: str
    attempt_token: int
    started_time: int
    cancelled_reason: str | None = None


@dataclass(frozen=True, slots=True)
class CommittedLakeSnapshot:
    """A lake snapshot and the commit that made it.

    Attributes:
        table_id: The table's id.
        snapshot_id: The id of the snapshot in the lake.
        offsets: The offset up to which each bucket is in the lake.
        tiering_epoch: The epoch of the round that committed it.
        commit_id: The id by which a repeated commit is recognised.
        offsets_path: The offsets file that the snapshot's summary names.
        committed_time: When the commit was registered, in milliseconds since the epoch.
    """

    table_id: int
    snapshot_id: int
    offsets: PackedOffsets
    tiering_epoch: int
    commit_id: str
    offsets_path: str
    committed_time: int

    def unpack(self) -> LakeSnapshot:
        """Return the lake snapshot. Raises the errors of `PackedOffsets.unpack`."""
        return LakeSnapshot(self.table_id, self.snapshot_id, self.offsets.unpack(self.table_id))


@dataclass(frozen=True, slots=True)
class RoundsPage:
    """The rounds of some tables.

    Attributes:
        rounds: The rounds in the order of the tables' ids, for each table the newest first.
        next_after: The id of the last table that was looked at; None if no table follows it.
    """

    rounds: Sequence[TieringRound]
    next_after: int | None
