"""Changes of a log, merged with the entries of a KV snapshot; without a cluster."""

import pyarrow as pa
import pytest
from fluss_tables import COLUMNS
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_tiering.formats.compacted.row import decode_values, encode_values
from fluss_tiering.formats.log.batch import ChangeType, LogBatch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableDescriptor, TableInfo, TablePath
from fluss_tiering.storage.fluss.kv_scan import ClusterKvScan
from fluss_tiering.storage.fluss.reading import kv_changes
from fluss_tiering.storage.fluss.reading.kv_changes import KvChanges
from fluss_tiering.storage.fluss.table_formats import encode_primary_keys
from fluss_tiering.storage.rocksdb_files import ENTRY_SCHEMA

SCHEMA = arrow_schema(COLUMNS)
TABLE = TableInfo(
    1, TablePath("db", "t"), 1, TableDescriptor(COLUMNS, ("id",), ("id",), 1, {"table.datalake.format": "iceberg"}), 0
)

ids = st.integers(0, 30)
names = st.text("ab", max_size=3)


def batch_of(rows: dict[int, str]) -> pa.RecordBatch:
    return pa.record_batch([list(rows), list(rows.values())], schema=SCHEMA)


def entries_of(rows: dict[int, str], chunk: int) -> list[pa.RecordBatch]:
    """Return the entries of a snapshot in chunks of this many."""
    records = batch_of(rows)
    entries = pa.table(
        [encode_primary_keys(TABLE.descriptor, records), encode_values(records, COLUMNS, 1)], schema=ENTRY_SCHEMA
    ).sort_by("key")
    return entries.to_batches(max_chunksize=chunk)


def log_of(before: dict[int, str], changes: list[tuple[int, str | None]], chunk: int) -> tuple[list, dict[int, str]]:
    """Return the log batches for changes (None is a delete), each of this many rows, and the rows after them."""
    rows, records = dict(before), []
    for key, name in changes:
        if key in rows:
            records.append((ChangeType.UPDATE_BEFORE if name is not None else ChangeType.DELETE, key, rows[key]))
        if name is None:
            rows.pop(key, None)
        else:
            records.append((ChangeType.UPDATE_AFTER if key in rows else ChangeType.INSERT, key, name))
            rows[key] = name
    batches = []
    for start in range(0, len(records), chunk):
        kinds, keys, values = zip(*records[start : start + chunk], strict=True)
        kinds = pa.array(kinds, pa.uint8()).to_numpy()
        batches.append(LogBatch(start, 0, kinds, pa.record_batch([keys, values], schema=SCHEMA)))
    return batches, rows


def rows_of(batches: list[pa.RecordBatch]) -> list[tuple[int, str]]:
    values = pa.concat_arrays([batch.column("value") for batch in batches] or [pa.array([], pa.binary())])
    return [(row["id"], row["name"]) for row in decode_values(values, COLUMNS, 1).to_pylist()]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    before=st.dictionaries(ids, names),
    changes=st.lists(st.tuples(ids, st.none() | names), max_size=40),
    chunk=st.integers(1, 8),
    reduced_at=st.sampled_from([0, 1 << 20]),
    spilled_at=st.sampled_from([0, 1 << 20]),
)
def test_changes_over_a_snapshot_are_the_rows_of_now(before, changes, chunk, reduced_at, spilled_at) -> None:
    batches, after = log_of(before, changes, chunk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_changes, "_REDUCED_AT_BYTES", reduced_at)
        patch.setattr(kv_changes, "_SPILLED_AT_BYTES", spilled_at)
        patch.setattr(kv_changes, "_CHANGES_IN_BATCH", chunk)
        patch.setattr(kv_changes, "_CHUNK_BYTES", chunk * 20)
        laid = KvChanges(TABLE, batches)
        # Ids below 256 have the same order as their keys.
        expected = sorted(after.items())
        assert rows_of(list(laid.over(entries_of(before, chunk), None))) == expected
        for first in range(0, 31, 15):
            key = first.to_bytes(8, "little")
            later = entries_of({id_: name for id_, name in before.items() if id_ >= first}, chunk)
            assert rows_of(list(laid.over(later, key))) == [row for row in expected if row[0] >= first]
        laid.close()
        laid.close()


def test_changes_that_do_not_fit_into_memory_leave_no_files_behind(tmp_path, monkeypatch) -> None:  # D43
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(kv_changes, "_REDUCED_AT_BYTES", 0)
    monkeypatch.setattr(kv_changes, "_SPILLED_AT_BYTES", 0)
    batches, after = log_of({}, [(number, "a") for number in range(20)], 5)

    def broken():
        yield from batches
        raise ConnectionError("the log cannot be read")

    with pytest.raises(ConnectionError):
        KvChanges(TABLE, broken())
    assert list(tmp_path.iterdir()) == []

    laid = KvChanges(TABLE, batches)
    assert len(list(tmp_path.iterdir())) == 1
    assert rows_of(list(laid.over([], None))) == sorted(after.items())
    laid.close()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_changes_is_named(tmp_path, monkeypatch) -> None:  # D43
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "gone"))
    monkeypatch.setattr(kv_changes, "_REDUCED_AT_BYTES", 0)
    monkeypatch.setattr(kv_changes, "_SPILLED_AT_BYTES", 0)
    batches, _ = log_of({}, [(number, "a") for number in range(20)], 5)
    with pytest.raises(FlussTieringError, match=r"make a temporary folder in .*gone") as raised:
        KvChanges(TABLE, batches)
    assert raised.value.code is ErrorCode.STORAGE


@settings(max_examples=30, deadline=None)
@given(
    rows=st.dictionaries(ids, names, min_size=1),
    chunk=st.integers(1, 8),
    max_rows=st.none() | st.integers(1, 9),
    max_bytes=st.none() | st.integers(1, 200),
)
def test_a_scan_reads_as_much_as_is_asked_for_and_the_same_again(rows, chunk, max_rows, max_bytes) -> None:  # K7, K15
    expected = sorted(rows.items())

    def rows_from(key):
        first = 0 if key is None else int.from_bytes(key, "little")
        yield from entries_of({id_: name for id_, name in rows.items() if id_ >= first}, chunk)

    ended = []
    scan = ClusterKvScan(
        bucket=TableBucket(1, 0),
        log_offset=7,
        rows_from=rows_from,
        renew=lambda: None,
        release=ended.append,
        on_lost=lambda: None,
    )
    assert scan.has_rows
    position, read = None, []
    while True:
        batch = scan.read(position, max_bytes, max_rows)
        again = scan.read(position, max_bytes, max_rows)
        assert (again.values, again.next_position) == (batch.values, batch.next_position)
        assert len(batch.values) >= 1
        if max_rows is not None:
            assert len(batch.values) <= max_rows
        if max_bytes is not None and len(batch.values) > 1:
            assert sum(len(value) + 4 for value in batch.values.to_pylist()) <= max_bytes
        read += rows_of([pa.record_batch([batch.values, batch.values], schema=ENTRY_SCHEMA)])
        if batch.next_position is None:
            break
        position = batch.next_position
    assert read == expected
    scan.close()
    scan.close()
    assert ended == [scan]
