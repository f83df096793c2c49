"""Rows that are written to a real Fluss cluster, as our reader and Fluss's own client read them."""

import pickle
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fluss_tables import COLUMNS, descriptor, new_path, rows
from refusals import refused
from row_of_all_types import NESTED_COLUMNS, nested_batch

from fluss_support import FlussCluster
from fluss_tiering.formats.bucketing import assign_buckets
from fluss_tiering.formats.log.batch import ChangeType
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.storage.fluss import writer
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset
from fluss_tiering.storage.fluss.rpc.calls.tables import drop_partition, list_partitions
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError, UnknownBucketError
from fluss_tiering.storage.fluss.storage import FlussStorage
from waiting import wait_until

LOOKUPS = Path(__file__).parents[1] / "support" / "pyfluss_lookups.py"
MOMENT = datetime.fromisoformat("2026-11-21T17:00:00")
LAKE_FORMAT = "table.datalake.format"


def table_of(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def has_log(fluss: FlussClient, table: TableInfo, bucket: TableBucket) -> bool:
    """Return whether a server leads the bucket, rather than that its partition was dropped."""
    try:
        fluss.call(log_offset(table.path, bucket, OffsetType.LATEST))
    except FlussServerError as error:
        if error.fluss_error is not FlussError.PARTITION_NOT_EXISTS:
            raise
        return False
    return True


def read(storage: FlussStorage, table: TableInfo) -> dict[TableBucket, list[tuple[int, dict]]]:
    """Return the records of the logs by bucket: change type and row."""
    found: dict[TableBucket, list[tuple[int, dict]]] = {}
    for info in storage.buckets(table.path):
        log = found[info.bucket] = []
        for batch in storage.reader().read_log(table, info.bucket, 0, info.log_end_offset):
            records = batch.records.to_pylist()
            appended = [ChangeType.APPEND_ONLY] * len(records)
            kinds = appended if batch.change_types is None else batch.change_types.tolist()
            log += zip(kinds, records, strict=True)
    return found


def test_rows_without_a_key_are_spread_evenly(storage: FlussStorage) -> None:
    table = storage.create_table(new_path(), descriptor(num_buckets=2))
    ends = storage.write(table.path, WriteKind.APPEND, table_of(rows(0, 10_000)))
    assert list(ends.values()) == [5_000, 5_000]
    # A small write goes to one bucket, and the next write to the other one.
    first = storage.write(table.path, WriteKind.APPEND, table_of(rows(10_000, 10_010)))
    second = storage.write(table.path, WriteKind.APPEND, table_of(rows(10_010, 10_020)))
    assert (list(first.values()), list(second.values())) == ([5_010], [5_010])
    assert first.keys() != second.keys()
    ids = sorted(row["id"] for log in read(storage, table).values() for _, row in log)
    assert ids == list(range(10_020))
    assert storage.write(table.path, WriteKind.APPEND, table_of(rows(0, 0))) == {}


def test_rows_with_a_key_go_where_the_lake_buckets_them(storage: FlussStorage) -> None:
    made_from = TableDescriptor(columns=COLUMNS, bucket_keys=("id",), num_buckets=3)
    table = storage.create_table(new_path(), made_from)
    storage.write(table.path, WriteKind.APPEND, table_of(rows(0, 100)))
    expected = assign_buckets(pa.array(range(100), pa.int64()), COLUMNS[0].data_type, 3).tolist()
    for bucket, log in read(storage, table).items():
        assert [row["id"] for _, row in log] == [n for n in range(100) if expected[n] == bucket.bucket]


def test_many_rows_take_several_batches(storage: FlussStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_BATCH_BYTES", 20_000)
    for primary_key in (False, True):
        table = storage.create_table(new_path(), descriptor(primary_key=primary_key))
        kind = WriteKind.UPSERT if primary_key else WriteKind.APPEND
        ends = storage.write(table.path, kind, table_of(rows(0, 5_000)))
        assert ends == {TableBucket(table.table_id, 0): 5_000}
        (log,) = read(storage, table).values()
        assert [row for _, row in log] == rows(0, 5_000).to_pylist()


def test_a_key_that_is_changed_very_often_at_once(storage: FlussStorage) -> None:
    # Fluss failed at more than 65,536 changes of small rows in one batch, whose types have a page of 128 KiB.
    table = storage.create_table(new_path(), descriptor(primary_key=True))
    count = 70_000
    changes = pa.table({"id": [1] * count, "name": [None, "x"] * (count // 2)}, schema=arrow_schema(COLUMNS))
    assert list(storage.write(table.path, WriteKind.UPSERT, changes).values()) == [2 * count - 1]
    storage.write(table.path, WriteKind.UPSERT, table_of(rows(0, count)))
    assert list(storage.write(table.path, WriteKind.DELETE, table_of(rows(0, count))).values()) == [4 * count]


def test_upserts_and_deletes_make_a_changelog(storage: FlussStorage) -> None:
    table = storage.create_table(new_path(), descriptor(primary_key=True))
    storage.write(table.path, WriteKind.UPSERT, table_of(rows(0, 3)))
    changed = pa.table({"name": ["new"], "id": [1]})
    storage.write(table.path, WriteKind.UPSERT, changed)
    # Columns that are not part of the key are ignored. An unknown key leaves no trace.
    ends = storage.write(table.path, WriteKind.DELETE, pa.table({"id": [2, 99], "name": [None, "x"]}))
    (log,) = read(storage, table).values()
    assert [(ChangeType(kind).name, row["id"], row["name"]) for kind, row in log] == [
        *[("INSERT", n, f"name-{n}") for n in range(3)],
        ("UPDATE_BEFORE", 1, "name-1"),
        ("UPDATE_AFTER", 1, "new"),
        ("DELETE", 2, "name-2"),
    ]
    assert list(ends.values()) == [6]


def test_fluss_reads_the_nested_values_of_rows(storage: FlussStorage) -> None:
    """The cluster makes the changelog from the new rows and the stored rows."""
    row = nested_batch()
    nulls = [pa.array([8], pa.int32()), *[pa.nulls(1, field.type) for field in row.schema][1:]]
    written = pa.Table.from_batches([row, pa.RecordBatch.from_arrays(nulls, schema=row.schema)])
    table = storage.create_table(new_path(), TableDescriptor(NESTED_COLUMNS, primary_key=("c0",)))
    storage.write(table.path, WriteKind.UPSERT, written)
    storage.write(table.path, WriteKind.UPSERT, written.slice(0, 1))
    (info,) = storage.buckets(table.path)
    batches = storage.reader().read_log(table, info.bucket, 0, info.log_end_offset)
    assert pa.Table.from_batches([batch.records for batch in batches]).equals(written.take([0, 1, 0, 0]))


def test_nothing_is_written_when_a_row_is_wrong(storage: FlussStorage) -> None:
    log = storage.create_table(new_path(), descriptor())
    with refused(ErrorCode.INVALID_ROWS, "'id'", "null"):
        storage.write(log.path, WriteKind.APPEND, pa.table({"id": [*range(20_000), None], "name": ["x"] * 20_001}))
    with refused(ErrorCode.INVALID_ROWS, "no primary key", "expected append"):
        storage.write(log.path, WriteKind.DELETE, table_of(rows(0, 1)))
    assert [info.log_end_offset for info in storage.buckets(log.path)] == [0]


def test_a_table_that_is_bucketed_for_no_iceberg_lake_is_left_to_fluss(storage: FlussStorage) -> None:
    table = storage.create_table(new_path(), descriptor(primary_key=True, **{LAKE_FORMAT: "paimon"}))
    with refused(ErrorCode.INVALID_TABLE, str(table.path), "paimon", "iceberg", "client of Fluss"):
        storage.write(table.path, WriteKind.UPSERT, table_of(rows(0, 1)))


def test_partitions_are_made_where_they_are_missing(storage: FlussStorage, fluss: FlussClient) -> None:
    columns = (*COLUMNS, Column("day", DataType.parse("STRING NOT NULL")))
    made_from = TableDescriptor(columns=columns, primary_key=("id", "day"), partition_keys=("day",), num_buckets=2)
    table = storage.create_table(new_path(), made_from)
    assert table.descriptor.bucket_keys == ("id",)
    days = ["monday", "friday"] * 50
    names = [f"name-{n}" for n in range(100)]
    written = pa.table({"id": list(range(100)), "name": names, "day": days}, schema=arrow_schema(columns))
    ends = storage.write(table.path, WriteKind.UPSERT, written)
    assert sum(ends.values()) == 100
    by_partition = {info.bucket: info.partition_values for info in storage.buckets(table.path)}
    assert set(by_partition.values()) == {("monday",), ("friday",)}
    for bucket, log in read(storage, table).items():
        assert {(row["day"],) for _, row in log} == {by_partition[bucket]}
    storage.write(table.path, WriteKind.DELETE, written.slice(0, 1))
    assert sum(info.log_end_offset for info in storage.buckets(table.path)) == 101

    # Somebody else drops it: the first write fails, and the next one creates it again.
    fluss.call(drop_partition(table.path, {"day": "monday"}))
    # A tablet server of Fluss 1.0 ends when it flushes rows of a partition that is dropped, so nothing is written until
    # the partition is gone.
    dropped = [bucket for bucket, values in by_partition.items() if values == ("monday",)]
    wait_until(lambda: not any(has_log(fluss, table, bucket) for bucket in dropped))
    with refused(ErrorCode.PARTITION_NOT_EXIST, "PARTITION_NOT_EXISTS"):
        storage.write(table.path, WriteKind.UPSERT, written.slice(0, 1))
    storage.write(table.path, WriteKind.UPSERT, written.slice(0, 1))
    assert len(fluss.call(list_partitions(table.path))) == 2
    # We drop it: the next write creates it again at once.
    storage.drop_partition(table.path, ["monday"])
    assert {info.partition_values for info in storage.buckets(table.path)} == {("friday",)}
    assert sum(storage.write(table.path, WriteKind.UPSERT, written.slice(0, 1)).values()) == 1
    for values in (["sunday"], ["monday", "9"], []):
        with refused(ErrorCode.PARTITION_NOT_EXIST):
            storage.drop_partition(table.path, values)
    with refused(ErrorCode.INVALID_ROWS, "'day'", "NUL"):
        storage.write(table.path, WriteKind.UPSERT, pa.table({"id": [1], "name": ["x"], "day": ["a\0b"]}))
    with refused(ErrorCode.INVALID_REQUEST, "no/slash"):
        storage.write(table.path, WriteKind.UPSERT, pa.table({"id": [1], "name": ["x"], "day": ["no/slash"]}))


KEYS = {
    "INT": [-7, 0, 2**31 - 1],
    "BIGINT": [-1, 300, 2**63 - 1],
    "STRING": ["a", "schön"],
    "DATE": [date(1969, 7, 20), date(2026, 11, 21)],
    "DECIMAL(10, 2)": [Decimal("-1.25"), Decimal("300.00")],
    "DECIMAL(30, 2)": [Decimal("-1.25"), Decimal("123456789012345678901234.50")],
    "TIMESTAMP(3)": [MOMENT.replace(microsecond=5_000), MOMENT.replace(year=1969)],
    "TIMESTAMP(6)": [MOMENT.replace(microsecond=5), MOMENT.replace(year=1969)],
}


@pytest.mark.parametrize("times", [1, 3])
def test_a_write_that_a_server_is_not_ready_for_is_repeated(
    storage: FlussStorage, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    table = storage.create_table(new_path(), descriptor())
    early = iter([UnknownBucketError("a partition that the server has not learned of")] * times)
    send = FlussClient.call

    def call(client: FlussClient, call: Call, *args: Any, **kwargs: Any) -> Any:
        if call.api is ApiKey.PRODUCE_LOG and (error := next(early, None)) is not None:
            raise error
        return send(client, call, *args, **kwargs)

    monkeypatch.setattr(FlussClient, "call", call)
    assert sum(storage.write(table.path, WriteKind.APPEND, table_of(rows(0, 2))).values()) == 2
    assert next(early, None) is None


@pytest.mark.system
def test_fluss_s_own_client_finds_the_rows_under_their_keys(storage: FlussStorage, fluss_cluster: FlussCluster) -> None:
    name = Column("name", DataType.parse("STRING"))
    wanted, expected = [], []
    for text, keys in KEYS.items():
        columns = (Column("id", DataType.parse(f"{text} NOT NULL")), name)
        table = storage.create_table(new_path(), TableDescriptor(columns=columns, primary_key=("id",), num_buckets=3))
        expected.append([f"name-{n}" for n in range(len(keys))])
        rows_of = pa.table([keys, expected[-1]], schema=arrow_schema(columns))
        storage.write(table.path, WriteKind.UPSERT, rows_of)
        wanted.append((table, [{"id": key} for key in keys]))
    # The bucket key may be a part of the key.
    columns = (*COLUMNS, Column("day", DataType.parse("STRING NOT NULL")))
    made_from = TableDescriptor(columns=columns, primary_key=("id", "day"), bucket_keys=("id",), num_buckets=3)
    table = storage.create_table(new_path(), made_from)
    written = pa.table([[1, 1, 2], ["a", "b", "c"], ["x", "y", "x"]], schema=arrow_schema(columns))
    storage.write(table.path, WriteKind.UPSERT, written)
    wanted.append((table, [{"id": key, "day": day} for key in (1, 2) for day in ("x", "y")]))
    expected.append(["a", "b", "c", None])

    found = look_up(fluss_cluster, wanted)
    for (table, _), rows_found, names in zip(wanted, found, expected, strict=True):
        assert [row and row["name"] for row in rows_found] == names, table.descriptor.columns


def look_up(cluster: FlussCluster, wanted: list[tuple[TableInfo, list[dict]]]) -> list[list[dict | None]]:
    """Return the rows that Fluss's own client finds of each table under its keys."""
    command = [sys.executable, str(LOOKUPS), cluster.bootstrap]
    keys = [(str(table.path), keys) for table, keys in wanted]
    done = subprocess.run(command, input=pickle.dumps(keys), capture_output=True, timeout=60, check=False)
    assert done.stdout, done.stderr.decode()
    return pickle.loads(done.stdout)
