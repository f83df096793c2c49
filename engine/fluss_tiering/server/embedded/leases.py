"""KV snapshot leases on the server's own storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lease import AcquiredLease, LeaseDrop
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.managers import Managers
from fluss_tiering.server.threads import ServerThreads


class OwnLeases:
    """A `LeaseService` for KV snapshots that this server deletes itself, so that it needs only to record the leases.

    Args:
        threads: The threads of the server.
        managers: The managers.
    """

    def __init__(self, threads: ServerThreads, managers: Managers) -> None:
        self._control = threads.control
        self._managers = managers
        self._leases = managers.leases

    async def acquire(
        self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int], *, allow_empty: bool
    ) -> AcquiredLease:
        """Pin snapshots: see `LeaseService`."""
        return await self._control(
            self._managers.acquire_lease, lease_id, duration_ms, snapshots, allow_empty=allow_empty
        )

    async def renew(self, durations_ms: Sequence[tuple[str, int]]) -> list[int | FlussTieringError]:
        """Renew leases: see `LeaseService`."""
        return await self._control(self._leases.renew, durations_ms)

    async def release(self, lease_id: str, buckets: Iterable[TableBucket], attempt_token: int | None) -> bool:
        """Release buckets of a lease: see `LeaseService`."""
        return await self._control(self._leases.release, lease_id, buckets, attempt_token)

    async def drop(self, lease_id: str, attempt_token: int | None) -> LeaseDrop:
        """Drop a lease: see `LeaseService`."""
        return await self._control(self._leases.drop, lease_id, attempt_token)
