"""Rows that were written before a column was added, and after it."""

import pyarrow as pa
from fluss_reading import ids_of, read, snapshot_of
from fluss_tables import add_column, append, descriptor, new_table, rows, upsert
from refusals import refused

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.calls.tables import table_columns
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from waiting import wait_until


def wider(first: int, end: int, made) -> pa.RecordBatch:
    narrow = rows(first, end)
    return pa.record_batch(
        [*narrow.columns, pa.array(range(first, end), pa.int32())], schema=arrow_schema(made.descriptor.columns)
    )


def upsert_once_known(fluss: FlussClient, made, batch: pa.RecordBatch) -> int | None:
    """Return the log's end; None while the tablet server does not know the new schema."""
    try:
        return upsert(fluss, made, batch)
    except FlussServerError as error:
        if error.fluss_error is not FlussError.SCHEMA_NOT_EXIST:
            raise
        return None


def test_a_log_has_nulls_from_before_a_column_was_added(fluss: FlussClient) -> None:
    before = new_table(fluss, descriptor())
    append(fluss, before, rows(0, 5), compression="ZSTD")
    after = add_column(fluss, before, "added", "INT")
    assert after.schema_id > before.schema_id
    assert fluss.call(table_columns(after.path, before.schema_id)) == before.descriptor.columns
    append(fluss, after, wider(5, 8, after), compression="ZSTD")
    reader = FlussSplitReader(fluss)
    batches = read(reader, after, 3, 8)
    assert ids_of(batches) == list(range(3, 8))
    found = pa.Table.from_batches([batch.records for batch in batches])
    assert found.schema == arrow_schema(after.descriptor.columns)
    assert found.column("added").to_pylist() == [None, None, 5, 6, 7]
    # A reader that planned with the old columns must not lose the values of the new one.
    assert ids_of(read(reader, before, 0, 5)) == list(range(5))
    with refused(ErrorCode.INVALID_TABLE, str(after.path), "altered while it was read"):
        read(reader, before, 0, 8)


def test_a_snapshot_has_nulls_where_rows_are_from_before_a_column_was_added(fluss: FlussClient) -> None:
    # Fluss 0.9.1 does not add a column to a table that is tiered into Iceberg.
    before = new_table(fluss, descriptor(primary_key=True))
    upsert(fluss, before, rows(0, 6))
    after = add_column(fluss, before, "added", "INT")
    end = wait_until(lambda: upsert_once_known(fluss, after, wider(4, 8, after)))
    reader = FlussSplitReader(fluss)
    snapshot = snapshot_of(fluss, after, end)
    found = pa.Table.from_batches(reader.read_kv_snapshot(after, snapshot, None, None))
    assert found.schema == arrow_schema(after.descriptor.columns)
    assert dict(zip(found.column("id").to_pylist(), found.column("added").to_pylist(), strict=True)) == {
        **dict.fromkeys(range(4)),
        **{number: number for number in range(4, 8)},
    }
    assert sorted(found.column("name").to_pylist()) == [f"name-{number}" for number in range(8)]
    with refused(ErrorCode.INVALID_TABLE, str(before.path), "altered"):
        list(reader.read_kv_snapshot(before, snapshot, None, None))
