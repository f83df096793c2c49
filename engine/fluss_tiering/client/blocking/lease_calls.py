"""The calls about leases of KV snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fluss_tiering.client.blocking.connection import Connection
from fluss_tiering.client.calls import leases
from fluss_tiering.client.calls.call import parts
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import AcquiredLease, KvSnapshotLease, LeaseDrop


class LeaseCalls(Connection):
    """The part of a client that is about leases."""

    def acquire_lease(
        self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int], *, allow_empty: bool = False
    ) -> AcquiredLease:
        """Add KV snapshots to a lease, renew the whole lease, and begin an attempt.

        More snapshots than one request may name are added by several, each of which begins an attempt. If a later one
        fails, the lease has the snapshots of those before it, and repeating the call finishes it.

        Args:
            lease_id: The id of the lease. The lease is created if it does not exist.
            duration_ms: The time in milliseconds after which the lease expires unless it is renewed.
            snapshots: The id of the snapshot to lease for each bucket.
            allow_empty: Whether `snapshots` may be empty. The call then only begins an attempt.

        Raises:
            FlussTieringError: INVALID_REQUEST if the lease id, the duration or a bucket is invalid; TABLE_NOT_EXIST if
                there is no such table; TABLE_WITHOUT_PRIMARY_KEY if a table is a log table.
        """
        if not isinstance(snapshots, Mapping):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{snapshots!r:.100} are no snapshots to lease: expected a dict of snapshot ids by TableBucket",
            )
        acquired = [
            self._call(leases.acquire_lease(lease_id, duration_ms, dict(some), allow_empty))
            for some in parts(snapshots.items())
        ]
        unavailable = {bucket: id_ for each in acquired for bucket, id_ in each.unavailable_snapshots.items()}
        return replace(acquired[-1], unavailable_snapshots=unavailable)

    def renew_leases(self, durations_ms: Mapping[str, int]) -> dict[str, int | FlussTieringError]:
        """Renew leases, and return the new expiration time of each lease by its id.

        The value is the error KV_SNAPSHOT_LEASE_NOT_EXIST if the lease no longer exists. The holder of such a lease
        must stop.

        Args:
            durations_ms: The time in milliseconds after which each lease expires, by lease id.
        """
        return self._call(leases.renew_leases(durations_ms))

    def release_lease(self, lease_id: str, buckets: Iterable[TableBucket], *, attempt_token: int | None = None) -> bool:
        """Release buckets of a lease; return False and do nothing if a newer attempt has begun.

        Buckets that the lease does not have are ignored.
        """
        return all(self._call(leases.release_lease(lease_id, some, attempt_token)) for some in parts(buckets))

    def drop_lease(self, lease_id: str, *, attempt_token: int | None = None) -> LeaseDrop:
        """Drop a lease, with everything that it keeps."""
        return self._call(leases.drop_lease(lease_id, attempt_token))

    def list_leases(self, lease_id: str | None = None) -> list[KvSnapshotLease]:
        """Return the lease of this id, if it exists, or all leases."""
        return self._list(leases.list_leases(lease_id))
