"""The KvSnapshotLeases service."""

# ruff: noqa: N802 - the methods are named by the API

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fluss_tiering.api.v1 import kv_snapshot_leases_pb2 as pb
from fluss_tiering.api.v1.kv_snapshot_leases_pb2_grpc import KvSnapshotLeasesServicer
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import KvSnapshotLease
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.services.pages import Collected, page_size_of
from fluss_tiering.server.services.table_access import TableAccess
from fluss_tiering.wire import leases as wire
from fluss_tiering.wire.buckets import bucket_from_pb
from fluss_tiering.wire.checks import bounded, bounded_total, identifier, optional_token

_LEASES_AT_ONCE: Final = 500
_SNAPSHOTS_AT_ONCE: Final = 10_000
_MAX_DURATION_MS: Final = 30 * 24 * 60 * 60 * 1000


class LeasesServicer(KvSnapshotLeasesServicer):
    """KV snapshot leases over gRPC."""

    def __init__(self, components: ServerComponents, access: TableAccess) -> None:
        self._threads = components.threads
        self._leases = components.backend.leases
        self._manager = components.managers.leases
        self._access = access

    async def AcquireKvSnapshotLease(
        self, request: pb.AcquireKvSnapshotLeaseRequest, context: object
    ) -> pb.AcquireKvSnapshotLeaseResponse:
        """Pin snapshots and begin an attempt."""
        lease_id = identifier(request, "lease_id", request.lease_id)
        duration_ms = _duration(lease_id, request.lease_duration_ms)
        tables = bounded(request, "snapshots_to_lease", request.snapshots_to_lease)
        bounded_total(request, "snapshots_to_lease", sum(len(table.bucket_snapshots) for table in tables))
        snapshots = wire.snapshots_from_pb(tables)
        acquired = await self._leases.acquire(lease_id, duration_ms, snapshots, allow_empty=request.allow_empty)
        return wire.acquired_to_pb(acquired)

    async def RenewKvSnapshotLeases(
        self, request: pb.RenewKvSnapshotLeasesRequest, context: object
    ) -> pb.RenewKvSnapshotLeasesResponse:
        """Renew leases, each on its own."""
        renewals = [
            (identifier(each, "lease_id", each.lease_id), _duration(each.lease_id, each.lease_duration_ms))
            for each in bounded(request, "renewals", request.renewals)
        ]
        renewed = await self._leases.renew(renewals)
        return pb.RenewKvSnapshotLeasesResponse(
            renewed=[
                wire.renewed_to_pb(lease_id, answer) for (lease_id, _), answer in zip(renewals, renewed, strict=True)
            ]
        )

    async def ReleaseKvSnapshotLease(
        self, request: pb.ReleaseKvSnapshotLeaseRequest, context: object
    ) -> pb.ReleaseKvSnapshotLeaseResponse:
        """Release buckets of a lease."""
        lease_id = identifier(request, "lease_id", request.lease_id)
        buckets = [bucket_from_pb(each) for each in bounded(request, "buckets_to_release", request.buckets_to_release)]
        released = await self._leases.release(lease_id, buckets, optional_token(request))
        return pb.ReleaseKvSnapshotLeaseResponse(stale_attempt=not released)

    async def DropKvSnapshotLease(
        self, request: pb.DropKvSnapshotLeaseRequest, context: object
    ) -> pb.DropKvSnapshotLeaseResponse:
        """Drop a lease."""
        lease_id = identifier(request, "lease_id", request.lease_id)
        return wire.drop_to_pb(await self._leases.drop(lease_id, optional_token(request)))

    async def ListKvSnapshotLeases(  # type: ignore[override] # serialized already, which the interceptor allows
        self, request: pb.ListKvSnapshotLeasesRequest, context: object
    ) -> bytes:
        """Return the lease of an id, or all leases, as a serialized ListKvSnapshotLeasesResponse."""
        size, after = page_size_of(request), request.page_token
        if request.lease_id:
            found = await self._threads.control(self._manager.leases, request.lease_id)
            return await self._threads.storage(_leases_to_bytes, found)
        collected = Collected("ListKvSnapshotLeases")
        count = 0
        while True:
            limit = min(_LEASES_AT_ONCE, size - count if size else _LEASES_AT_ONCE)
            page = await self._threads.control(self._manager.page, after, limit, _SNAPSHOTS_AT_ONCE)
            if not page:
                return collected.joined()
            leases = await self._access.visible_leases(page)
            # In a thread, because a lease may pin a hundred thousand snapshots.
            collected.add((page[0].lease_id,), await self._threads.storage(_leases_to_bytes, leases))
            after, count = page[-1].lease_id, count + len(leases)
            if size and count == size:
                end = pb.ListKvSnapshotLeasesResponse(next_page_token=after)
                return collected.joined() + end.SerializeToString()


def _duration(lease_id: str, duration_ms: int) -> int:
    if not 0 < duration_ms <= _MAX_DURATION_MS:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"lease {lease_id}: duration {duration_ms} ms, expected 1 ms to 30 days ({_MAX_DURATION_MS} ms)",
        )
    return duration_ms


def _leases_to_bytes(leases: Sequence[KvSnapshotLease]) -> bytes:
    messages = [wire.lease_to_pb(lease) for lease in leases]
    return pb.ListKvSnapshotLeasesResponse(leases=messages).SerializeToString()
