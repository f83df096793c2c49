"""KV snapshot leases as the gRPC services see them: pinned in this server's storage, or in a Fluss cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import AcquiredLease, LeaseDrop


class LeaseService(Protocol):
    """The calls on leases.

    A call that raises STORAGE or UNAVAILABLE has done nothing, or a part if it was about thousands of pins. Repeating
    it finishes it.
    """

    async def acquire(
        self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int], *, allow_empty: bool
    ) -> AcquiredLease:
        """Pin the snapshots that exist, and begin an attempt.

        Args:
            lease_id: The id of the lease.
            duration_ms: The duration of the lease in ms.
            snapshots: The KV snapshot id of each bucket to pin.
            allow_empty: Whether `snapshots` may be empty.

        Raises:
            FlussTieringError: INVALID_REQUEST if there is no snapshot to pin and that is not allowed; TABLE_NOT_EXIST
                if a table does not exist; TABLE_WITHOUT_PRIMARY_KEY if a table has no primary key; the errors of
                `KvSnapshotLeaseManager.acquire` and `pin_rest`.
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
