"""Tables, buckets and KV snapshots <-> messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fluss_tiering.api.v1 import common_pb2, tables_pb2
from fluss_tiering.model.data_type import MAX_NESTING, Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import (
    BucketInfo,
    Column,
    DataType,
    DataTypeRoot,
    KvSnapshot,
    StorageDescription,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    WriteKind,
)
from fluss_tiering.wire.buckets import bucket_from_pb, bucket_of_table
from fluss_tiering.wire.checks import bounded, not_negative, required

_ROOT_PREFIX: Final = "PB_DATA_TYPE_ROOT_"
_ROOTS: Final[Mapping[DataTypeRoot, tables_pb2.PbDataTypeRoot.ValueType]] = {
    root: tables_pb2.PbDataTypeRoot.Value(_ROOT_PREFIX + root.name) for root in DataTypeRoot
}
_ROOTS_BY_NUMBER: Final = {number: root for root, number in _ROOTS.items()}
_KIND_PREFIX: Final = "PB_WRITE_KIND_"
_KINDS: Final[Mapping[WriteKind, tables_pb2.PbWriteKind.ValueType]] = {
    kind: tables_pb2.PbWriteKind.Value(_KIND_PREFIX + kind.name) for kind in WriteKind
}
_KINDS_BY_NUMBER: Final = {number: kind for kind, number in _KINDS.items()}


def path_to_pb(path: TablePath) -> common_pb2.PbTablePath:
    """The table's name."""
    return common_pb2.PbTablePath(database_name=path.database, table_name=path.table)


def path_from_pb(message: common_pb2.PbTablePath) -> TablePath:
    """The table's name; INVALID_TABLE when it is none."""
    return _path(message.database_name, message.table_name)


@lru_cache(maxsize=1 << 15)
def _path(database: str, table: str) -> TablePath:
    # The same tables come again and again, ten thousand in one answer: a name is checked once.
    return TablePath(database, table)


def descriptor_to_pb(descriptor: TableDescriptor) -> tables_pb2.PbTableDescriptor:
    """What a table is created from."""
    return tables_pb2.PbTableDescriptor(
        columns=[_column_to_pb(column) for column in descriptor.columns],
        primary_key=descriptor.primary_key,
        bucket_keys=descriptor.bucket_keys,
        num_buckets=descriptor.num_buckets,
        properties=descriptor.properties,
        comment=descriptor.comment,
        partition_keys=descriptor.partition_keys,
    )


def descriptor_from_pb(message: tables_pb2.PbTableDescriptor) -> TableDescriptor:
    """What a table is created from; INVALID_REQUEST or INVALID_TABLE for columns that are none."""
    return TableDescriptor(
        columns=tuple(_column_from_pb(column) for column in bounded(message, "columns", message.columns)),
        primary_key=tuple(message.primary_key),
        bucket_keys=tuple(message.bucket_keys),
        num_buckets=message.num_buckets,
        properties=dict(message.properties),
        comment=message.comment if message.HasField("comment") else None,
        partition_keys=tuple(message.partition_keys),
    )


def table_to_pb(table: TableInfo) -> tables_pb2.PbTableInfo:
    """A table that exists."""
    return tables_pb2.PbTableInfo(
        table_id=table.table_id,
        table_path=path_to_pb(table.path),
        schema_id=table.schema_id,
        descriptor=descriptor_to_pb(table.descriptor),
        created_time=table.created_time,
        lake_catalog_properties=table.lake_catalog_properties,
    )


def table_from_pb(message: tables_pb2.PbTableInfo) -> TableInfo:
    """A table that exists."""
    return TableInfo(
        table_id=message.table_id,
        path=path_from_pb(message.table_path),
        schema_id=message.schema_id,
        descriptor=descriptor_from_pb(message.descriptor),
        created_time=message.created_time,
        lake_catalog_properties=dict(message.lake_catalog_properties),
    )


@dataclass(frozen=True, slots=True)
class Alteration:
    """Options of a table to set, and keys of those to reset to their defaults."""

    set_properties: Mapping[str, str]
    reset_properties: frozenset[str]

    def apply(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The options after it."""
        kept = {key: value for key, value in properties.items() if key not in self.reset_properties}
        return {**kept, **self.set_properties}


def alteration_to_pb(
    path: TablePath, set_properties: Mapping[str, str], reset_properties: Iterable[str]
) -> tables_pb2.AlterTableRequest:
    """Options of a table to set and reset."""
    return tables_pb2.AlterTableRequest(
        table_path=path_to_pb(path), set_properties=set_properties, reset_properties=reset_properties
    )


def alteration_from_pb(message: tables_pb2.AlterTableRequest) -> Alteration:
    """Options of a table to set and reset; INVALID_REQUEST for none, or for one that is to be both."""
    alteration = Alteration(
        dict(bounded(message, "set_properties", message.set_properties)),
        frozenset(bounded(message, "reset_properties", message.reset_properties)),
    )
    if not alteration.set_properties and not alteration.reset_properties:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, "AlterTableRequest changes nothing: expected an option to set or to reset"
        )
    both = sorted(alteration.reset_properties.intersection(alteration.set_properties))
    if both or "" in alteration.set_properties or "" in alteration.reset_properties:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"AlterTableRequest sets and resets {both[0]!r}: expected one of them"
            if both
            else "AlterTableRequest names an option without a key: expected one as table.datalake.freshness",
        )
    return alteration


def kind_to_pb(kind: WriteKind) -> tables_pb2.PbWriteKind.ValueType:
    """What written rows mean."""
    return _KINDS[kind]


def kind_from_pb(number: tables_pb2.PbWriteKind.ValueType) -> WriteKind:
    """What written rows mean; INVALID_REQUEST for an unset or unknown kind."""
    if number not in _KINDS_BY_NUMBER:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"write kind {number} is unknown: expected one of {', '.join(WriteKind)}"
        )
    return _KINDS_BY_NUMBER[number]


def kv_snapshot_to_pb(snapshot: KvSnapshot) -> tables_pb2.PbKvSnapshot:
    """A KV snapshot, without its table's id, which the message around it has."""
    return tables_pb2.PbKvSnapshot(
        partition_id=snapshot.bucket.partition_id,
        bucket_id=snapshot.bucket.bucket,
        snapshot_id=snapshot.snapshot_id,
        log_offset=snapshot.log_offset,
        row_count=snapshot.row_count,
        size_bytes=snapshot.size_bytes,
        path=snapshot.path,
        split_keys=snapshot.split_keys,
    )


def kv_snapshot_from_pb(table_id: int, message: tables_pb2.PbKvSnapshot) -> KvSnapshot:
    """A KV snapshot of the table."""
    return KvSnapshot(
        bucket=bucket_of_table(table_id, message),
        snapshot_id=message.snapshot_id,
        log_offset=message.log_offset,
        row_count=message.row_count,
        size_bytes=message.size_bytes,
        path=message.path,
        split_keys=tuple(message.split_keys),
    )


def snapshot_ref_to_pb(bucket: TableBucket, snapshot_id: int) -> tables_pb2.PbKvSnapshotRef:
    """A KV snapshot by its name."""
    return tables_pb2.PbKvSnapshotRef(
        table_id=bucket.table_id,
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket,
        snapshot_id=snapshot_id,
    )


def snapshot_ref_from_pb(message: tables_pb2.PbKvSnapshotRef) -> tuple[TableBucket, int]:
    """A KV snapshot by its name: bucket and snapshot id."""
    return bucket_from_pb(message), not_negative(message, "snapshot_id", message.snapshot_id)


def buckets_to_pb(table: TableInfo, buckets: Iterable[BucketInfo]) -> tables_pb2.PbTableBuckets:
    """The buckets of a table."""
    return tables_pb2.PbTableBuckets(
        table_id=table.table_id,
        table_path=path_to_pb(table.path),
        buckets=[
            tables_pb2.PbBucketInfo(
                partition_id=info.bucket.partition_id,
                bucket_id=info.bucket.bucket,
                log_start_offset=info.log_start_offset,
                log_end_offset=info.log_end_offset,
                log_size_bytes=info.log_size_bytes,
                latest_kv_snapshot=None
                if info.latest_kv_snapshot is None
                else kv_snapshot_to_pb(info.latest_kv_snapshot),
                partition_values=info.partition_values,
            )
            for info in buckets
        ],
    )


def buckets_from_pb(message: tables_pb2.PbTableBuckets) -> tuple[TablePath, list[BucketInfo]]:
    """The buckets of a table, with its path."""
    return path_from_pb(message.table_path), [
        BucketInfo(
            bucket=bucket_of_table(message.table_id, info),
            log_start_offset=info.log_start_offset,
            log_end_offset=info.log_end_offset,
            log_size_bytes=info.log_size_bytes,
            latest_kv_snapshot=kv_snapshot_from_pb(message.table_id, info.latest_kv_snapshot)
            if info.HasField("latest_kv_snapshot")
            else None,
            partition_values=tuple(info.partition_values),
        )
        for info in message.buckets
    ]


def taken_snapshots_to_pb(table_id: int, snapshots: Sequence[KvSnapshot]) -> tables_pb2.PbTableKvSnapshots:
    """The KV snapshots taken of a table."""
    return tables_pb2.PbTableKvSnapshots(
        table_id=table_id, snapshots=[kv_snapshot_to_pb(snapshot) for snapshot in snapshots]
    )


def offsets_to_pb(offsets: Mapping[TableBucket, int]) -> list[tables_pb2.PbBucketOffset]:
    """Log end offsets of one table's buckets, as a write acknowledges them."""
    return [
        tables_pb2.PbBucketOffset(partition_id=bucket.partition_id, bucket_id=bucket.bucket, offset=offset)
        for bucket, offset in offsets.items()
    ]


def description_to_pb(description: StorageDescription) -> tables_pb2.DescribeStorageResponse:
    """Which storage a server has."""
    return tables_pb2.DescribeStorageResponse(
        kind=description.kind,
        data_dir=description.data_dir,
        data_dir_id=description.data_dir_id,
        server_version=description.server_version,
        bootstrap_servers=description.bootstrap_servers,
    )


def description_from_pb(message: tables_pb2.DescribeStorageResponse) -> StorageDescription:
    """Which storage a server has."""
    return StorageDescription(
        kind=message.kind,
        data_dir=message.data_dir,
        data_dir_id=message.data_dir_id,
        server_version=message.server_version,
        bootstrap_servers=message.bootstrap_servers,
    )


def _column_to_pb(column: Column | Field) -> tables_pb2.PbColumn:
    return tables_pb2.PbColumn(
        name=column.name,
        data_type=tables_pb2.PbDataType(
            root=_ROOTS[column.data_type.root],
            nullable=column.data_type.nullable,
            precision=column.data_type.precision,
            scale=column.data_type.scale,
            length=column.data_type.length,
            fields=[_column_to_pb(field) for field in column.data_type.fields],
        ),
        comment=column.comment,
    )


def _column_from_pb(message: tables_pb2.PbColumn) -> Column:
    return Column(message.name, _data_type(message, 0), message.comment if message.HasField("comment") else None)


def _data_type(message: tables_pb2.PbColumn, depth: int) -> DataType:
    data_type = required(message, "data_type", message.data_type)
    if data_type.root not in _ROOTS_BY_NUMBER:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"column {message.name!r}: data type {data_type.root} is unknown: expected {', '.join(DataTypeRoot)}",
        )
    if depth > MAX_NESTING:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE, f"column {message.name!r}: more than {MAX_NESTING} types in each other"
        )
    return DataType(
        _ROOTS_BY_NUMBER[data_type.root],
        data_type.nullable,
        data_type.precision,
        data_type.scale,
        data_type.length,
        tuple(
            Field(part.name, _data_type(part, depth + 1), part.comment if part.HasField("comment") else None)
            for part in data_type.fields
        ),
    )
