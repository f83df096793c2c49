"""KV snapshot leases on the server's own storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import AcquiredLease, LeaseDrop
from fluss_tiering.server.core.managers import Managers, require_leasable
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.storage.protocol import TableStorage


class OwnLeases:
    """A `LeaseService` for KV snapshots that this server deletes itself, so that it needs only to record the leases."""

    def __init__(self, threads: ServerThreads, storage: TableStorage, managers: Managers) -> None:
        self._threads = threads
        self._storage = storage
        self._managers = managers
        self._leases = managers.leases

    async def acquire(
        self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int], *, allow_empty: bool
    ) -> AcquiredLease:
        """Pin snapshots: see `LeaseService`.

        The snapshots are held while the storage looks for them, which may open tables. So none is deleted before it is
        pinned.
        """
        await self._threads.storage(require_leasable, self._storage, lease_id, snapshots, allow_empty=allow_empty)
        await self._threads.control(self._leases.require_acquirable, lease_id, snapshots)
        # What is held when the client goes away would stay held, and never be deleted.
        return await self._threads.to_its_end(self._acquire(lease_id, duration_ms, snapshots))

    async def _acquire(self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int]) -> AcquiredLease:
        control, pins = self._threads.control, self._leases.pins
        held = await control(pins.hold, snapshots)
        try:
            available = await self._threads.storage(self._existing, held)
            unavailable = {bucket: id_ for bucket, id_ in snapshots.items() if bucket not in available}
            return await control(self._managers.record_lease, lease_id, duration_ms, available, unavailable)
        finally:
            await control(pins.let_go, held)

    async def renew(self, durations_ms: Sequence[tuple[str, int]]) -> list[int | FlussTieringError]:
        """Renew leases: see `LeaseService`."""
        return await self._threads.control(self._leases.renew, durations_ms)

    async def release(self, lease_id: str, buckets: Iterable[TableBucket], attempt_token: int | None) -> bool:
        """Release buckets of a lease: see `LeaseService`."""
        return await self._threads.control(self._leases.release, lease_id, buckets, attempt_token)

    async def drop(self, lease_id: str, attempt_token: int | None) -> LeaseDrop:
        """Drop a lease: see `LeaseService`."""
        return await self._threads.control(self._leases.drop, lease_id, attempt_token)

    def _existing(self, snapshots: Mapping[TableBucket, int]) -> dict[TableBucket, int]:
        return {
            bucket: snapshot_id
            for bucket, snapshot_id in snapshots.items()
            if self._storage.kv_snapshot(bucket, snapshot_id) is not None
        }
