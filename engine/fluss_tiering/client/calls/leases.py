"""The calls of the KvSnapshotLeases service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluss_tiering.api.v1 import kv_snapshot_leases_pb2 as pb
from fluss_tiering.client.calls.arguments import checked_arguments
from fluss_tiering.client.calls.call import PAGE_SIZE, UnaryCall
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import AcquiredLease, KvSnapshotLease, LeaseDrop
from fluss_tiering.wire import leases as wire
from fluss_tiering.wire.buckets import bucket_to_pb


@checked_arguments
def acquire_lease(
    lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int], allow_empty: bool
) -> UnaryCall[pb.AcquireKvSnapshotLeaseRequest, pb.AcquireKvSnapshotLeaseResponse, AcquiredLease]:
    """Lease snapshots, and begin an attempt."""
    return UnaryCall(
        lambda stubs: stubs.leases.AcquireKvSnapshotLease,
        pb.AcquireKvSnapshotLeaseRequest(
            lease_id=lease_id,
            lease_duration_ms=duration_ms,
            snapshots_to_lease=wire.snapshots_to_pb(snapshots),
            allow_empty=allow_empty,
        ),
        lambda response: wire.acquired_from_pb(lease_id, response),
    )


@checked_arguments
def renew_leases(
    durations_ms: Mapping[str, int],
) -> UnaryCall[pb.RenewKvSnapshotLeasesRequest, pb.RenewKvSnapshotLeasesResponse, dict[str, int | FlussTieringError]]:
    """Renew leases; each has an answer of its own."""
    return UnaryCall(
        lambda stubs: stubs.leases.RenewKvSnapshotLeases,
        pb.RenewKvSnapshotLeasesRequest(
            renewals=[
                pb.PbLeaseRenewal(lease_id=lease_id, lease_duration_ms=duration_ms)
                for lease_id, duration_ms in durations_ms.items()
            ]
        ),
        lambda response: {renewed.lease_id: wire.renewed_from_pb(renewed) for renewed in response.renewed},
    )


@checked_arguments
def release_lease(
    lease_id: str, buckets: Iterable[TableBucket], attempt_token: int | None
) -> UnaryCall[pb.ReleaseKvSnapshotLeaseRequest, pb.ReleaseKvSnapshotLeaseResponse, bool]:
    """Release buckets of a lease; the answer is False if the attempt is stale."""
    return UnaryCall(
        lambda stubs: stubs.leases.ReleaseKvSnapshotLease,
        pb.ReleaseKvSnapshotLeaseRequest(
            lease_id=lease_id,
            buckets_to_release=[bucket_to_pb(bucket) for bucket in buckets],
            attempt_token=attempt_token,
        ),
        lambda response: not response.stale_attempt,
    )


@checked_arguments
def drop_lease(
    lease_id: str, attempt_token: int | None
) -> UnaryCall[pb.DropKvSnapshotLeaseRequest, pb.DropKvSnapshotLeaseResponse, LeaseDrop]:
    """Drop a lease."""
    return UnaryCall(
        lambda stubs: stubs.leases.DropKvSnapshotLease,
        pb.DropKvSnapshotLeaseRequest(lease_id=lease_id, attempt_token=attempt_token),
        wire.drop_from_pb,
    )


@checked_arguments
def list_leases(
    lease_id: str | None,
) -> UnaryCall[pb.ListKvSnapshotLeasesRequest, pb.ListKvSnapshotLeasesResponse, list[KvSnapshotLease]]:
    """Read the lease of this id, if it exists, or all leases."""
    return UnaryCall(
        lambda stubs: stubs.leases.ListKvSnapshotLeases,
        pb.ListKvSnapshotLeasesRequest(lease_id=lease_id or "", page_size=PAGE_SIZE),
        lambda response: [wire.lease_from_pb(lease) for lease in response.leases],
    )
