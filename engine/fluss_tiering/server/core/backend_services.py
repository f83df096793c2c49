"""What the core and the gRPC services ask of a backend: calls on KV snapshot leases, and on lake snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.model.tiering import AcquiredLease, LeaseDrop
from fluss_tiering.server.core.lake.merging import CommitRegistration


class LeaseService(Protocol):
    """The calls on leases.

    A call that raises STORAGE or UNAVAILABLE has done nothing.
    """

    async def acquire(
        self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int], *, allow_empty: bool
    ) -> AcquiredLease:
        """Pin the snapshots that exist, and begin an attempt.

        Raises:
            FlussTieringError: INVALID_REQUEST if there is no snapshot to pin and that is not allowed; TABLE_NOT_EXIST
                if a table does not exist; TABLE_WITHOUT_PRIMARY_KEY if a table has no primary key; the errors of
                `KvSnapshotLeaseManager.acquire`.
        """
        ...

    async def renew(self, durations_ms: Sequence[tuple[str, int]]) -> list[int | FlussTieringError]:
        """Renew leases: see `KvSnapshotLeaseManager.renew`."""
        ...

    async def release(self, lease_id: str, buckets: Iterable[TableBucket], attempt_token: int | None) -> bool:
        """Release buckets of a lease: see `KvSnapshotLeaseManager.release`."""
        ...

    async def drop(self, lease_id: str, attempt_token: int | None) -> LeaseDrop:
        """Drop a lease with everything that it pins: see `KvSnapshotLeaseManager.drop`."""
        ...


class LakeService(Protocol):
    """The calls on lake snapshots."""

    async def newest(self, table: TableInfo) -> LakeSnapshot | None:
        """Return the newest lake snapshot of a table, or None."""
        ...

    async def snapshot(self, table: TableInfo, snapshot_id: int) -> LakeSnapshot | None:
        """Return the lake snapshot of an id, or None."""
        ...

    async def prepare(
        self,
        table: TableInfo,
        tiering_epoch: int,
        log_end_offsets: Mapping[TableBucket, int],
        *,
        ignore_previous: bool,
    ) -> str:
        """Write the offsets file of the running round's lake snapshot, and return its path.

        Args:
            log_end_offsets: The offset up to which each bucket will be in the lake.
            ignore_previous: Whether to leave out the offsets of the newest lake snapshot.

        Raises:
            FlussTieringError: The errors of `LakeTieringManager.require_round` and `prepared_offsets`.
        """
        ...

    async def commit(self, commit: CommitRegistration) -> None:
        """Register the running round's lake snapshot. A repeated call changes nothing.

        Raises:
            FlussTieringError: The errors of `prepare`; INVALID_REQUEST if the snapshot is known with other offsets, or
                if the offsets file does not exist.
        """
        ...
