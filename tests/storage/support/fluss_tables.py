"""Tables on a real Fluss cluster, and rows in them, made with our own calls."""

from __future__ import annotations

import itertools
import json
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from fluss_tiering.api.fluss.v1 import tables_pb2
from fluss_tiering.formats.compacted.kv_batches import encode_kv_batch
from fluss_tiering.formats.compacted.row import encode_values
from fluss_tiering.formats.log.batch import LogCompression, encode_log_batch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, ServerKind
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata, path_to_pb
from fluss_tiering.storage.fluss.rpc.calls.kv import LatestKvSnapshot, latest_kv_snapshots
from fluss_tiering.storage.fluss.rpc.calls.tables import create_table, table
from fluss_tiering.storage.fluss.rpc.calls.writes import produce_log, put_kv
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.table_json import TableInfo, table_to_json
from waiting import wait_until

COLUMNS = (Column("id", DataType.parse("BIGINT NOT NULL")), Column("name", DataType.parse("STRING")))

_NUMBERS = itertools.count()
_LEADERS_S: Final = 15.0
_TABLES_THAT_MAY_BE_MISSED: Final = 5


def descriptor(*, primary_key: bool = False, tiered: bool = False, num_buckets: int = 1, **properties: str):
    options = {key.replace("__", "."): value for key, value in properties.items()}
    if tiered:
        options |= {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"} | options
    return TableDescriptor(
        columns=COLUMNS,
        primary_key=("id",) if primary_key else (),
        bucket_keys=("id",) if primary_key else (),
        num_buckets=num_buckets,
        properties=options,
    )


def new_path(name: str = "raw", database: str = "fluss") -> TablePath:
    return TablePath(database, f"{name}_{next(_NUMBERS)}")


def new_table(
    client: FlussClient, made_from: TableDescriptor, name: str = "raw", database: str = "fluss", **arguments
) -> TableInfo:
    return _made_with_leaders(client, lambda: create_table(new_path(name, database), made_from, **arguments))


def _made_with_leaders(client: FlussClient, creation: Callable[[], Call[Any, Any]]) -> TableInfo:
    """Create a table and return it once all its buckets have leaders.

    A coordinator of Fluss 0.9.1 that is busy may miss a new table, whose buckets then never have leaders. Another table
    is made in that case.

    Args:
        client: The client that makes it.
        creation: Returns the call that creates a table, with another path each time.
    """
    for _ in range(_TABLES_THAT_MAY_BE_MISSED):
        call = creation()
        path = TablePath(call.request.table_path.database_name, call.request.table_path.table_name)
        client.call(call)
        made = client.call(table(path))
        deadline = time.monotonic() + _LEADERS_S
        while not _has_leaders(client, made):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        else:
            return made
    raise AssertionError(f"the cluster elects no leaders of new tables, {path} being the last one")


def _has_leaders(client: FlussClient, made: TableInfo) -> bool:
    if made.descriptor.partition_keys:
        return True
    leaders = client.call(metadata([made.path], asked=ServerKind.COORDINATOR)).leaders
    buckets = range(made.descriptor.num_buckets)
    return all(leaders.get(TableBucket(made.table_id, each)) is not None for each in buckets)


def new_table_of_later(client: FlussClient, made_from: TableDescriptor, **options: str) -> TableInfo:
    """Make a table with options that the cluster does not know yet.

    They are among its custom properties, which we read in the same way; a double underscore stands for a dot.
    """

    def creation() -> Call[Any, Any]:
        call = create_table(new_path(), made_from)
        described = json.loads(call.request.table_json)
        described["custom_properties"] |= {key.replace("__", "."): value for key, value in options.items()}
        call.request.table_json = json.dumps(described).encode()
        return call

    return _made_with_leaders(client, creation)


def rows(first: int, end: int) -> pa.RecordBatch:
    ids = range(first, end)
    return pa.record_batch([list(ids), [f"name-{each}" for each in ids]], schema=arrow_schema(COLUMNS))


def append(
    client: FlussClient, made: TableInfo, batch: pa.RecordBatch, bucket: int = 0, *, compression: LogCompression
) -> int:
    """Append rows and return the offset of the first one."""
    encoded = encode_log_batch(0, 0, batch, schema_id=made.schema_id, change_types=None, compression=compression)
    return client.call(produce_log(made.path, TableBucket(made.table_id, bucket), encoded))


def upsert(
    client: FlussClient,
    made: TableInfo,
    batch: pa.RecordBatch,
    deleted: Iterable[int] = (),
    *,
    partition_id: int | None = None,
) -> int:
    """Upsert rows into bucket 0 and then delete ids; return the log's end after them."""
    deleted = list(deleted)
    # An Iceberg table's key is what Iceberg hashes: 8 bytes of a bigint (Fluss's `IcebergKeyEncoder`).
    keys = [struct.pack("<q", each) for each in [*batch.column("id").to_pylist(), *deleted]]
    values = [
        *encode_values(batch, made.descriptor.columns, made.schema_id).to_pylist(),
        *[None] * len(deleted),
    ]
    encoded = encode_kv_batch(keys, values, made.schema_id)
    return client.call(put_kv(made.path, TableBucket(made.table_id, 0, partition_id), encoded)).log_end_offset


def snapshot_behind(client: FlussClient, made: TableInfo, log_offset: int) -> LatestKvSnapshot:
    """Wait for a KV snapshot of bucket 0 that has the log up to an offset."""

    def newest() -> LatestKvSnapshot | None:
        latest = client.call(latest_kv_snapshots(made.path))[TableBucket(made.table_id, 0)]
        return latest if latest is not None and latest.log_offset >= log_offset else None

    return wait_until(newest)


def add_column(client: FlussClient, made: TableInfo, name: str, data_type: str) -> TableInfo:
    """Add a nullable column at the end, of a type as `DataType.parse` takes it, and return the table."""
    # Fluss numbers the fields of a ROW itself.
    added = json.loads(table_to_json(TableDescriptor((Column(name, DataType.parse(data_type)),))))
    kind = json.dumps(added["schema"]["columns"][0]["data_type"]).encode()
    request = tables_pb2.AlterTableRequest(
        table_path=path_to_pb(made.path),
        ignore_if_not_exists=False,
        add_columns=[tables_pb2.PbAddColumn(column_name=name, data_type_json=kind, column_position_type=0)],
    )
    client.call(
        Call(ApiKey.ALTER_TABLE, request, tables_pb2.AlterTableResponse, lambda _: None, ServerKind.COORDINATOR)
    )
    return client.call(table(made.path))
