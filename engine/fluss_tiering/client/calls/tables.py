"""The unary calls of the Tables service."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from fluss_tiering.api.v1 import tables_pb2 as pb
from fluss_tiering.client.calls.arguments import checked_arguments, paths_to_pb
from fluss_tiering.client.calls.call import PAGE_SIZE, UnaryCall
from fluss_tiering.model.table import (
    BucketInfo,
    ClusterHealth,
    KvSnapshot,
    StorageDescription,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    WriteKind,
)
from fluss_tiering.wire import tables as wire
from fluss_tiering.wire.bucket_infos import buckets_from_pb
from fluss_tiering.wire.buckets import bucket_to_pb
from fluss_tiering.wire.kv_snapshots import kv_snapshot_from_pb, snapshot_ref_to_pb
from fluss_tiering.wire.storage import description_from_pb, health_from_pb


@checked_arguments
def describe_storage() -> UnaryCall[pb.DescribeStorageRequest, pb.DescribeStorageResponse, StorageDescription]:
    """Read which storage the server has."""
    return UnaryCall(lambda stubs: stubs.tables.DescribeStorage, pb.DescribeStorageRequest(), description_from_pb)


@checked_arguments
def cluster_health() -> UnaryCall[pb.GetClusterHealthRequest, pb.GetClusterHealthResponse, ClusterHealth | None]:
    """Read the health of the Fluss cluster behind the server."""
    return UnaryCall(lambda stubs: stubs.tables.GetClusterHealth, pb.GetClusterHealthRequest(), health_from_pb)


@checked_arguments
def create_table(
    path: TablePath, descriptor: TableDescriptor, ignore_if_exists: bool
) -> UnaryCall[pb.CreateTableRequest, pb.CreateTableResponse, TableInfo]:
    """Create a table."""
    return UnaryCall(
        lambda stubs: stubs.tables.CreateTable,
        pb.CreateTableRequest(
            table_path=wire.path_to_pb(path),
            descriptor=wire.descriptor_to_pb(descriptor),
            ignore_if_exists=ignore_if_exists,
        ),
        lambda response: wire.table_from_pb(response.table),
    )


@checked_arguments
def create_read_token(path: TablePath) -> UnaryCall[pb.CreateReadTokenRequest, pb.CreateReadTokenResponse, str]:
    """Make a token with which executors read a table."""
    return UnaryCall(
        lambda stubs: stubs.tables.CreateReadToken,
        pb.CreateReadTokenRequest(table_path=wire.path_to_pb(path)),
        lambda response: response.token,
    )


@checked_arguments
def alter_table(
    path: TablePath, set_properties: Mapping[str, str], reset_properties: Iterable[str]
) -> UnaryCall[pb.AlterTableRequest, pb.AlterTableResponse, TableInfo]:
    """Set options of a table, and reset others."""
    return UnaryCall(
        lambda stubs: stubs.tables.AlterTable,
        wire.alteration_to_pb(path, set_properties, reset_properties),
        lambda response: wire.table_from_pb(response.table),
    )


@checked_arguments
def drop_table(
    path: TablePath, ignore_if_not_exists: bool, drop_untiered: bool
) -> UnaryCall[pb.DropTableRequest, pb.DropTableResponse, int | None]:
    """Drop a table."""
    return UnaryCall(
        lambda stubs: stubs.tables.DropTable,
        pb.DropTableRequest(
            table_path=wire.path_to_pb(path), ignore_if_not_exists=ignore_if_not_exists, drop_untiered=drop_untiered
        ),
        _dropped_untiered,
    )


@checked_arguments
def drop_partition(
    path: TablePath, values: Sequence[str], ignore_if_not_exists: bool, drop_untiered: bool
) -> UnaryCall[pb.DropPartitionRequest, pb.DropPartitionResponse, int | None]:
    """Drop a partition."""
    return UnaryCall(
        lambda stubs: stubs.tables.DropPartition,
        pb.DropPartitionRequest(
            table_path=wire.path_to_pb(path),
            partition_values=values,
            ignore_if_not_exists=ignore_if_not_exists,
            drop_untiered=drop_untiered,
        ),
        _dropped_untiered,
    )


@checked_arguments
def list_tables(database: str | None) -> UnaryCall[pb.ListTablesRequest, pb.ListTablesResponse, list[TableInfo]]:
    """Read the tables of a database, or all tables."""
    return UnaryCall(
        lambda stubs: stubs.tables.ListTables,
        pb.ListTablesRequest(database_name=database or "", page_size=PAGE_SIZE),
        lambda response: [wire.table_from_pb(table) for table in response.tables],
    )


@checked_arguments
def get_tables(paths: Sequence[TablePath]) -> UnaryCall[pb.GetTablesRequest, pb.GetTablesResponse, list[TableInfo]]:
    """Read tables by name."""
    return UnaryCall(
        lambda stubs: stubs.tables.GetTables,
        pb.GetTablesRequest(table_paths=paths_to_pb(paths)),
        lambda response: [wire.table_from_pb(table) for table in response.tables],
    )


@checked_arguments
def list_buckets(
    paths: Sequence[TablePath],
) -> UnaryCall[pb.ListBucketsRequest, pb.ListBucketsResponse, dict[TablePath, list[BucketInfo]]]:
    """Read the buckets of tables."""
    return UnaryCall(
        lambda stubs: stubs.tables.ListBuckets,
        pb.ListBucketsRequest(table_paths=paths_to_pb(paths)),
        lambda response: dict(buckets_from_pb(table) for table in response.tables),
    )


@checked_arguments
def take_kv_snapshots(
    paths: Sequence[TablePath], buckets: Collection[TableBucket]
) -> UnaryCall[pb.TakeKvSnapshotsRequest, pb.TakeKvSnapshotsResponse, dict[int, list[KvSnapshot]]]:
    """Take KV snapshots of tables now."""
    return UnaryCall(
        lambda stubs: stubs.tables.TakeKvSnapshots,
        pb.TakeKvSnapshotsRequest(
            table_paths=paths_to_pb(paths),
            buckets=[bucket_to_pb(bucket) for bucket in buckets],
        ),
        lambda response: {
            table.table_id: [kv_snapshot_from_pb(table.table_id, snapshot) for snapshot in table.snapshots]
            for table in response.tables
        },
    )


@checked_arguments
def kv_snapshot_metadata(
    snapshots: Sequence[tuple[TableBucket, int]],
) -> UnaryCall[pb.GetKvSnapshotMetadataRequest, pb.GetKvSnapshotMetadataResponse, list[KvSnapshot]]:
    """Read KV snapshots by bucket and id, in the order of the request."""
    return UnaryCall(
        lambda stubs: stubs.tables.GetKvSnapshotMetadata,
        pb.GetKvSnapshotMetadataRequest(snapshots=[snapshot_ref_to_pb(*snapshot) for snapshot in snapshots]),
        lambda response: [
            kv_snapshot_from_pb(bucket.table_id, snapshot)
            for (bucket, _), snapshot in zip(snapshots, response.snapshots, strict=True)
        ],
    )


@checked_arguments
def fetch_log(bucket: TableBucket, start_offset: int, end_offset: int) -> pb.FetchLogRequest:
    """Return the request for the log batches that hold offsets."""
    return pb.FetchLogRequest(bucket=bucket_to_pb(bucket), start_offset=start_offset, end_offset=end_offset)


@checked_arguments
def fetch_kv_snapshot(
    bucket: TableBucket, snapshot_id: int, from_key: bytes | None, to_key: bytes | None
) -> pb.FetchKvSnapshotRequest:
    """Return the request for the entries of a KV snapshot in a range of keys."""
    return pb.FetchKvSnapshotRequest(
        bucket=bucket_to_pb(bucket), snapshot_id=snapshot_id, from_key=from_key, to_key=to_key
    )


@checked_arguments
def write_rows(path: TablePath, kind: WriteKind, arrow_ipc: bytes) -> pb.WriteRowsRequest:
    """Return the request to write rows."""
    return pb.WriteRowsRequest(table_path=wire.path_to_pb(path), kind=wire.kind_to_pb(kind), arrow_ipc=arrow_ipc)


def _dropped_untiered(response: pb.DropTableResponse | pb.DropPartitionResponse) -> int | None:
    return response.dropped_untiered_records if response.HasField("dropped_untiered_records") else None
