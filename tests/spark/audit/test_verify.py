"""A lake table is equal to its source after rounds, and every kind of damage is reported with its key."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_support import LEGACY, Tiering, command, data_folder, named

from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.spark.audit.clean import clean_table
from fluss_tiering.spark.audit.report import Difference, TableAudit


def found(audit: TableAudit) -> list[tuple]:
    return sorted((each.kind, *each.key.values(), each.source_rows, each.lake_rows) for each in audit.differences)


def keyed_with_history(tiering: Tiering, rows: int = 2000, **options) -> TableInfo:
    """Return a table that was tiered from a snapshot and a log, then with changes and deletes."""
    table = tiering.table(num_buckets=3, **options)
    tiering.write(table, named(range(rows), "first"))
    tiering.client.take_kv_snapshots([table.path])
    tiering.round(table, named(range(rows // 2, rows), "second"))
    tiering.write(table, {**named(range(10, 20), "third"), 1999999: None})
    tiering.delete(table, [3, 4, 15])
    tiering.tier(table)
    return table


def test_what_rounds_have_tiered_is_equal_while_writes_go_on(tiering: Tiering):
    keyed = keyed_with_history(tiering)
    log = tiering.table(primary_key=False, num_buckets=2, properties=LEGACY)
    clean = tiering.table(primary_key=False, num_buckets=2)
    for step in range(2):
        for each in (log, clean):
            tiering.round(each, named(range(step * 500, step * 500 + 500), "row"))
    stop = threading.Event()

    def write_on() -> None:
        step = 0
        while not stop.wait(0.2):
            step += 1
            tiering.write(keyed, named(range(100), f"later {step}"))
            tiering.delete(keyed, range(100, 110))
            tiering.write(log, named(range(10), f"later {step}"))

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        audits = {table.path: tiering.audit(table) for table in (keyed, log, clean)}
    finally:
        stop.set()
        writer.join()

    for table in (keyed, log, clean):
        audit = audits[table.path]
        assert audit.equal
        assert not audit.differences
        assert audit.lake_snapshot_id == tiering.client.lake_snapshot(table.path).snapshot_id
    assert sum(bucket.lake.rows for bucket in audits[keyed.path].buckets) == 2000 + 1 - 3
    assert [bucket.source.rows for bucket in audits[log.path].buckets] == [
        end
        for _, end in sorted((b.bucket, e) for b, e in tiering.client.lake_snapshot(log.path).log_end_offsets.items())
    ]
    # Its rows do not say in which bucket they are.
    assert [(each.log_end_offset, each.lake.rows) for each in audits[clean.path].buckets] == [(1000, 1000)]
    tiering.tier(keyed)
    assert tiering.audit(keyed).equal


def test_one_row_changed_one_doubled_one_missing_and_one_too_many_are_named_by_key(tiering: Tiering):
    table = keyed_with_history(tiering)
    name = tiering.name(table)
    tiering.spark.sql(f"UPDATE {name} SET name = 'changed' WHERE id = 77")
    tiering.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE id = 88")
    tiering.spark.sql(f"DELETE FROM {name} WHERE id = 99")
    tiering.spark.sql(f"INSERT INTO {name} SELECT 5000, name FROM {name} WHERE id = 77")
    # A null and a value that change places are a change too.
    tiering.spark.sql(f"UPDATE {name} SET name = '' WHERE id = 1999999")

    audit = tiering.audit(table)

    assert not audit.equal
    assert found(audit) == [
        (Difference.CHANGED, 77, 1, 1),
        (Difference.CHANGED, 1999999, 1, 1),
        (Difference.EXTRA, 5000, 0, 1),
        (Difference.MISSING, 99, 1, 0),
        (Difference.REPEATED, 88, 1, 2),
    ]
    assert not audit.more_differences
    few = tiering.audit(table, max_differences=2)
    assert (len(few.differences), few.more_differences) == (2, True)


def test_rows_of_a_log_are_named_by_bucket_and_offset(tiering: Tiering):
    table = tiering.tiered(named(range(1000), "row"), primary_key=False, num_buckets=2, properties=LEGACY)
    name = tiering.name(table)
    row = tiering.lake(table)[500]
    where = f"__bucket = {row['__bucket']} AND __offset"
    tiering.spark.sql(f"DELETE FROM {name} WHERE {where} = 3")
    tiering.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE {where} = 5")
    # Only its time differs.
    tiering.spark.sql(f"UPDATE {name} SET __timestamp = __timestamp + INTERVAL 1 SECOND WHERE {where} = 7")

    audit = tiering.audit(table)

    assert found(audit) == [
        (Difference.CHANGED, 7, 1, 1),
        (Difference.MISSING, 3, 1, 0),
        (Difference.REPEATED, 5, 1, 2),
    ]
    assert {each.bucket for each in audit.differences} == {row["__bucket"]}
    assert [bucket.equal for bucket in audit.buckets].count(False) == 1


def test_rows_of_a_dropped_partition_that_was_made_again_are_explained(tiering: Tiering, monkeypatch, capsys):
    columns = (Column("k", DataType.parse("INT NOT NULL")), Column("day", DataType.parse("STRING NOT NULL")))
    lake = {"table.datalake.enabled": "true"}
    descriptor = TableDescriptor(columns, ("k", "day"), ("k",), 1, lake, partition_keys=("day",))
    table = tiering.client.create_table(TablePath("db", "again"), descriptor)
    run = command(tiering, monkeypatch)
    for keys in ([1, 2], [2, 3]):
        rows = pa.table({"k": pa.array(keys, pa.int32()), "day": ["mon"] * 2})
        assert sum(tiering.client.write_rows(table.path, WriteKind.UPSERT, [rows])) == 2
        tiering.tier(table)
        if keys == [1, 2]:
            tiering.client.drop_partition(table.path, ["mon"])
    assert run("verify", str(table.path), "--server", tiering.target) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "k 1, day mon: extra (0 in the table, 1 in the lake)" in told
    assert "Rows that are only in the lake may be those of a dropped partition" in told

    rows = rows.set_column(1, "day", [["tue"] * 2])
    assert sum(tiering.client.write_rows(table.path, WriteKind.UPSERT, [rows])) == 2
    tiering.client.drop_partition(table.path, ["tue"], drop_untiered=True)
    run("verify", str(table.path), "--server", tiering.target)
    told = " ".join(capsys.readouterr().err.split())
    assert "2 log records never came into the lake" in told  # E6
    assert "They are in neither of the two, and are not compared" in told


ROW = {
    "pair": ("ROW<a INT, b INT>", {"a": 1, "b": None}),
    "numbers": ("ARRAY<INT>", [1, 2, None]),
    "lists": ("ARRAY<ARRAY<INT>>", [[1], [2, 3]]),
    "times": ("MAP<STRING, TIMESTAMP(6)>", [("a", datetime(2026, 1, 31, 12, 30, 0, 123456))]),  # noqa: DTZ001
    "rows": ("MAP<INT, ROW<a INT, b STRING>>", [(1, None)]),
    "bytes": ("MAP<BYTES, INT>", [(b"a", 1)]),
    "ratio": ("DOUBLE", -0.0),
    "unknown": ("DOUBLE", float("nan")),
}
CHANGES = (
    "pair = named_struct('a', CAST(NULL AS INT), 'b', 1)",
    "numbers = array(1, 2)",
    "numbers = array(1, 2, NULL, NULL)",
    "numbers = array(NULL, 1, 2)",
    "lists = array(array(1, 2), array(3))",
    "lists = array(array(1), array(2, 3), array())",
    "times = map('a', TIMESTAMP_NTZ '2026-01-31 12:30:00.123457')",
    "times = map('a', CAST(NULL AS TIMESTAMP_NTZ))",
    "rows = map(1, named_struct('a', CAST(NULL AS INT), 'b', CAST(NULL AS STRING)))",
    "bytes = map(X'62', 1)",
    "ratio = 0.0D",
)


def test_a_change_at_any_depth_of_a_value_is_found(tiering: Tiering):
    columns = (
        Column("id", DataType.parse("INT NOT NULL")),
        *(Column(name, DataType.parse(kind)) for name, (kind, _) in ROW.items()),
    )
    lake = {"table.datalake.enabled": "true"}
    table = tiering.client.create_table(TablePath("db", "nested"), TableDescriptor(columns, ("id",), ("id",), 1, lake))
    count = len(CHANGES) + 1
    values = {"id": list(range(count)), **{name: [value] * count for name, (_, value) in ROW.items()}}
    rows = pa.RecordBatch.from_pydict(values, schema=arrow_schema(columns))
    assert sum(tiering.client.write_rows(table.path, WriteKind.UPSERT, [rows])) == count
    tiering.tier(table)
    assert tiering.audit(table).equal

    for number, change in enumerate(CHANGES):
        tiering.spark.sql(f"UPDATE {tiering.name(table)} SET {change} WHERE id = {number}")

    assert found(tiering.audit(table)) == [(Difference.CHANGED, number, 1, 1) for number in range(len(CHANGES))]


def test_a_log_that_begins_later_is_compared_from_a_leased_snapshot(tiering: Tiering, monkeypatch):
    table = tiering.table(num_buckets=2)
    tiering.write(table, named(range(100), "first"))
    tiering.client.take_kv_snapshots([table.path])
    tiering.write(table, named(range(50, 120), "second"))
    tiering.delete(table, [1])
    tiering.tier(table)
    list_buckets, acquire = TieringClient.list_buckets, TieringClient.acquire_lease
    leased = []

    def truncated(client, paths):
        return {
            path: [replace(info, log_start_offset=info.latest_kv_snapshot.log_offset) for info in infos]
            for path, infos in list_buckets(client, paths).items()
        }

    def recorded(client, lease_id, duration_ms, snapshots, **kwargs):
        leased.append(snapshots)
        return acquire(client, lease_id, duration_ms, snapshots, **kwargs)

    monkeypatch.setattr(TieringClient, "list_buckets", truncated)
    monkeypatch.setattr(TieringClient, "acquire_lease", recorded)

    assert tiering.audit(table).equal
    assert [len(snapshots) for snapshots in leased] == [2]
    assert tiering.client.list_leases() == []
    tiering.write(table, named(range(3), "later"))
    tiering.client.take_kv_snapshots([table.path])
    with pytest.raises(FlussTieringError, match="tier the table and verify it again") as raised:
        tiering.audit(table)
    assert raised.value.code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE


def test_the_command_says_so_in_json_and_by_its_exit_code(tiering: Tiering, monkeypatch, capsys):
    run = command(tiering, monkeypatch)
    table = tiering.tiered(named(range(10), "row"), num_buckets=2)

    assert run("verify", str(table.path), "--server", tiering.target) == 0
    assert "equal: 10 rows at lake snapshot" in capsys.readouterr().out
    tiering.spark.sql(f"DELETE FROM {tiering.name(table)} WHERE id = 4")
    assert run("verify", str(table.path), "--server", tiering.target) == 1
    told = capsys.readouterr().out
    assert "differs from the table" in told
    assert "id 4: missing (1 in the table, 0 in the lake)" in told
    assert run("verify", str(table.path), "--server", tiering.target, "--json") == 1
    (audit,) = json.loads(capsys.readouterr().out)
    assert not audit["equal"]
    (difference,) = audit["differences"]
    assert (difference["kind"], difference["key"]) == ("missing", {"id": 4})
    assert sum(bucket["lake_rows"] for bucket in audit["buckets"]) == 9


def test_key_columns_may_have_any_names(tiering: Tiering):
    keys = ("last", "source", "lake", "a`b", "a.b")
    integer = DataType.parse("INT NOT NULL")
    columns = (*(Column(key, integer) for key in keys), Column("v", DataType.parse("STRING")))
    descriptor = TableDescriptor(columns, keys, ("last",), 2, {"table.datalake.enabled": "true"})
    table = tiering.client.create_table(TablePath("db", "odd_keys"), descriptor)
    ids = pa.array(range(10), pa.int32())
    rows = pa.RecordBatch.from_arrays(
        [*[ids] * len(keys), ids.cast(pa.string())], schema=arrow_schema(table.descriptor.columns)
    )
    list(tiering.client.write_rows(table.path, WriteKind.UPSERT, [rows]))
    tiering.tier(table)
    assert tiering.audit(table).equal

    tiering.spark.sql(f"DELETE FROM {tiering.name(table)} WHERE last = 3")

    assert found(tiering.audit(table)) == [(Difference.MISSING, 3, 3, 3, 3, 3, 1, 0)]


def test_an_audit_makes_no_lake_table_and_misses_one_that_was_dropped(tiering: Tiering):
    never = tiering.table()
    tiering.write(never, named(range(5), "row"))
    dropped = tiering.tiered(named(range(5), "row"))
    tiering.spark.sql(f"DROP TABLE {tiering.name(dropped)}")

    assert tiering.audit(never) == TableAudit(never.path, None)
    with pytest.raises(FlussTieringError, match="it was renamed or dropped") as missed:
        tiering.audit(dropped)
    assert missed.value.code is ErrorCode.LAKE_TABLE_MISMATCH
    for table in (never, dropped):
        assert clean_table(tiering.spark, table, grace=timedelta(days=3), delete=True).orphans == ()
        assert not tiering.spark.catalog.tableExists(tiering.name(table))


def without_first_page_header(content: bytes) -> bytes:
    return content[:4] + bytes(36) + content[40:]


def with_a_flipped_bit(content: bytes) -> bytes:
    """Return a file that can be decoded, and has another value."""
    rows = pq.read_table(io.BytesIO(content))
    for at in range(len(content)):
        flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        try:
            if not pq.read_table(io.BytesIO(flipped)).equals(rows):
                return flipped
        except (OSError, pa.ArrowException):
            """Decoding notices this bit."""
    raise AssertionError("each flipped bit is noticed")


def test_a_missing_file_of_deletion_vectors_is_named(tiering: Tiering):
    table = keyed_with_history(tiering, properties={"iceberg.format-version": "3"})
    file, *_ = sorted(data_folder(table).rglob("*.puffin"))
    with broken(file, None), pytest.raises(FlussTieringError) as raised:
        tiering.audit(table)
    assert f"position delete file missing: file:{file}: expected the Puffin file" in raised.value.message


@contextmanager
def broken(file: Path, damaged: Callable[[bytes], bytes] | None) -> Iterator[None]:
    content = file.read_bytes()
    if damaged is None:
        file.unlink()
    else:
        file.write_bytes(damaged(content))
    try:
        yield
    finally:
        # Other tests move the whole lake.
        file.write_bytes(content)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("damaged", [None, without_first_page_header, with_a_flipped_bit])
@pytest.mark.parametrize("kind", ["data", "position delete"])
def test_a_file_that_is_missing_or_damaged_is_named(
    tiering: Tiering, kind: str, damaged: Callable[[bytes], bytes] | None
):
    table = keyed_with_history(tiering)
    files = sorted(data_folder(table).rglob("*.parquet"))
    (file, *_) = [each for each in files if ("-positions-" in each.name) is (kind == "position delete")]
    with broken(file, damaged), pytest.raises(FlussTieringError) as raised:
        tiering.audit(table)
    assert f"{kind} file {'damaged' if damaged else 'missing'}: file:{file}" in raised.value.message
    assert "restore it from a backup" in raised.value.message
    assert tiering.audit(table).equal


def test_a_clean_table_whose_number_of_buckets_was_changed_is_refused_by_name(tiering: Tiering):
    table = tiering.tiered(named([1], "a"), num_buckets=2)
    with pytest.raises(FlussTieringError, match=r"the number of buckets of table .* was changed") as refused:
        tiering.audit(replace(table, bucket_count_epoch=1))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
