"""Reading some columns of a real cluster's logs: the rows, and the bytes that the cluster sends for them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from broken_columns import ZSTD_FRAME, with_broken_last_column
from fluss_reading import ObservedClient, bucket_of, moved_log
from fluss_tables import COLUMNS, add_column, append, descriptor, new_table, rows, upsert
from refusals import refused

from fluss_tiering.formats.log.batch import ChangeType, LogBatch, encode_log_batch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.calls.log import FetchedLog, fetch_log
from fluss_tiering.storage.fluss.rpc.client import FlussClient

COMPRESSION = "table.log.arrow.compression.type"
WIDE = tuple(
    Column(f"c{number}", DataType.parse(text))
    for number, text in enumerate(
        (
            "BIGINT NOT NULL",
            "STRING",
            "ARRAY<INT>",
            "MAP<STRING, BIGINT>",
            "ROW<a STRING, b ARRAY<BOOLEAN>>",
            "DECIMAL(20, 2)",
            "BOOLEAN",
        )
    )
)


def wide_rows(first: int, end: int) -> pa.RecordBatch:
    values = [
        [
            number,
            None if number % 5 == 0 else f"{number} " * 40,
            None if number % 3 == 0 else list(range(number % 4)),
            None if number % 4 == 0 else [(f"key {key}", key) for key in range(number % 3)],
            None if number % 6 == 0 else {"a": f"in {number}", "b": [True, None]},
            None if number % 7 == 0 else number,
            number % 2 == 0,
        ]
        for number in range(first, end)
    ]
    schema = arrow_schema(WIDE)
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*values, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def read(client, made: TableInfo, start: int, end: int, columns: list[str] | None) -> list[LogBatch]:
    return list(FlussSplitReader(client, unavailable_timeout_s=1).read_log(made, bucket_of(made), start, end, columns))


def records_of(batches: list[LogBatch]) -> pa.Table:
    return pa.Table.from_batches([batch.records for batch in batches])


def wide_table(fluss: FlussClient, compression: str) -> TableInfo:
    made = new_table(fluss, TableDescriptor(WIDE, properties={COMPRESSION: compression}))
    append(fluss, made, wide_rows(0, 300), compression=compression)
    append(fluss, made, wide_rows(300, 500), compression=compression)
    return made


@pytest.mark.parametrize("compression", ["LZ4_FRAME", "ZSTD"])
def test_leaders_send_only_the_columns_that_are_wanted(fluss: FlussClient, compression: str) -> None:
    made = wide_table(fluss, compression)
    whole = ObservedClient(fluss)
    everything = records_of(read(whole, made, 0, 500, None))
    assert everything.to_pylist() == pa.Table.from_batches([wide_rows(0, 500)]).to_pylist()
    assert all(asked is None for asked in whole.projections)
    names = everything.schema.names
    for index, name in enumerate(names):
        observed = ObservedClient(fluss)
        found = records_of(read(observed, made, 7, 450, [name]))
        assert found.equals(everything.select([name]).slice(7, 443))
        assert all(asked == [index] for asked in observed.projections)
        assert observed.records_bytes < whole.records_bytes * 0.9
    narrow = ObservedClient(fluss)
    assert read(narrow, made, 0, 500, ["c6"])
    assert narrow.records_bytes < whole.records_bytes / 10
    for chosen in itertools.permutations(("c0", "c4", "c5"), 2):
        observed = ObservedClient(fluss)
        assert records_of(read(observed, made, 0, 500, list(chosen))).equals(everything.select(chosen))
        assert all(asked == sorted(map(names.index, chosen)) for asked in observed.projections)


def test_rows_are_counted_without_a_column(fluss: FlussClient) -> None:
    made = wide_table(fluss, "ZSTD")
    observed = ObservedClient(fluss)
    batches = read(observed, made, 100, 400, [])
    assert [(batch.base_offset, batch.records.num_rows, batch.records.num_columns) for batch in batches] == [
        (100, 200, 0),
        (300, 100, 0),
    ]
    # The narrowest column is fetched, since Fluss sends at least one.
    assert observed.projections == [[6]]
    assert observed.records_bytes < 1_000


def test_all_columns_in_another_order_are_no_projection(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    append(fluss, made, rows(0, 5), compression="ZSTD")
    observed = ObservedClient(fluss)
    found = records_of(read(observed, made, 0, 5, ["name", "id"]))
    assert found.to_pylist() == rows(0, 5).select(["name", "id"]).to_pylist()
    assert found.schema.names == ["name", "id"]
    assert observed.projections == [None]


@pytest.mark.parametrize("columns", [["id"], ["name"], []])
def test_changes_keep_their_types(fluss: FlussClient, columns: list[str]) -> None:
    made = new_table(fluss, descriptor(primary_key=True))
    upsert(fluss, made, rows(0, 3))
    end = upsert(fluss, made, rows(1, 2), deleted=[2])
    observed = ObservedClient(fluss)
    batches = read(observed, made, 1, end, columns)
    assert [ChangeType(kind) for batch in batches for kind in batch.change_types] == [
        *[ChangeType.INSERT] * 2,
        *(ChangeType.UPDATE_BEFORE, ChangeType.UPDATE_AFTER, ChangeType.DELETE),
    ]
    expected = records_of(read(fluss, made, 1, end, None)).select(columns)
    found = records_of(batches)
    assert found.num_rows == 5
    assert found.equals(expected)
    assert None not in observed.projections


def test_columns_that_were_added_are_null_before(fluss: FlussClient) -> None:
    before = new_table(fluss, descriptor())
    append(fluss, before, rows(0, 5), compression="ZSTD")
    after = add_column(fluss, before, "added", "INT")

    def append_wider(first: int, end: int) -> None:
        schema = arrow_schema(after.descriptor.columns)
        wider = pa.record_batch([*rows(first, end).columns, pa.array(range(first, end), pa.int32())], schema=schema)
        append(fluss, after, wider, compression="ZSTD")

    append_wider(5, 8)
    # This client does not know the column yet.
    append(fluss, before, rows(8, 10), compression="ZSTD")
    append_wider(10, 12)
    added = [None if number < 5 or number in (8, 9) else number for number in range(12)]
    for columns in (["added"], ["added", "id"], ["name", "added"], ["id"], []):
        found = records_of(read(fluss, after, 3, 12, columns))
        expected = {"id": list(range(12)), "name": [f"name-{number}" for number in range(12)], "added": added}
        assert found.num_rows == 9
        assert found.schema.names == columns
        assert found.to_pydict() == {name: expected[name][3:] for name in columns}

    # Leaders cut batches to the wanted columns, but send a batch whole that is older than one of the columns.
    for columns, start, projections in (
        (["id"], 0, [[0]]),
        (["added"], 10, [[2]]),
        (["added"], 0, [[2], None]),
    ):
        observed = ObservedClient(fluss)
        read(observed, after, start, 12, columns)
        assert observed.projections == projections


def test_remote_segments_are_read_in_part(fluss: FlussClient) -> None:
    made = moved_log(fluss, **{COMPRESSION: "NONE"})
    observed = ObservedClient(fluss)
    found = read(observed, made, 2_500, 9_999, ["name"])
    assert records_of(found).to_pydict() == {"name": [f"name-{number}" for number in range(2_500, 9_999)]}
    assert found[0].base_offset == 2_500
    assert observed.records_bytes > 0
    assert records_of(read(fluss, made, 2_500, 9_999, [])).num_rows == 7_499

    # Columns that are not wanted are not decoded.
    segment = fluss.call(fetch_log(made.path, bucket_of(made), 0)).remote_segments[0]
    file = Path(segment.path.removeprefix("file:"))
    content = file.read_bytes()
    compressed = encode_log_batch(0, 0, rows(0, 2_000), schema_id=1, change_types=None, compression="ZSTD")
    file.write_bytes(with_broken_last_column(compressed))
    try:
        observed = ObservedClient(fluss, with_segment_end(2_000))
        assert records_of(read(observed, made, 0, 2_000, ["id"])).to_pydict() == {"id": list(range(2_000))}
        with refused(ErrorCode.CORRUPT_DATA, segment.path, "no records of the table's schema"):
            read(observed, made, 0, 2_000, ["name"])
    finally:
        file.write_bytes(content)


def with_segment_end(end: int):
    def alter(answer: FetchedLog) -> FetchedLog:
        first = replace(answer.remote_segments[0], end_offset=end)
        return replace(answer, remote_segments=(first,))

    return alter


def test_batches_that_are_compressed_otherwise_than_the_table_are_read_whole(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    for start, compression in ((0, "ZSTD"), (5, "LZ4_FRAME"), (10, "NONE"), (15, "ZSTD")):
        append(fluss, made, rows(start, start + 5), compression=compression)
    observed = ObservedClient(fluss)
    batches = read(observed, made, 2, 20, ["id"])
    assert records_of(batches).to_pydict() == {"id": list(range(2, 20))}
    assert [batch.base_offset for batch in batches] == [2, 5, 10, 15]
    assert observed.projections == [[0], None]


def test_of_a_table_without_compression_no_leader_cuts_batches_that_may_have_some(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor(**{COMPRESSION: "NONE"}))
    for start, compression in ((0, "NONE"), (5, "ZSTD"), (10, "LZ4_FRAME")):
        append(fluss, made, rows(start, start + 5), compression=compression)
    observed = ObservedClient(fluss)
    assert records_of(read(observed, made, 0, 15, ["id"])).to_pydict() == {"id": list(range(15))}
    assert set(observed.projections) == {None}


def test_a_damaged_projection_is_refused_or_read_whole(fluss: FlussClient) -> None:
    made = new_table(fluss, TableDescriptor(COLUMNS, properties={COMPRESSION: "ZSTD"}))
    append(fluss, made, rows(0, 40), compression="ZSTD")
    append(fluss, made, rows(40, 60), compression="ZSTD")
    whole = fluss.call(fetch_log(made.path, bucket_of(made), 0))
    cut = fluss.call(fetch_log(made.path, bucket_of(made), 0, projection=[1]))
    expected = [f"name-{number}" for number in range(60)]

    def flipped(position: int, answer: FetchedLog) -> FetchedLog:
        records = bytearray(answer.records)
        records[position % len(records)] ^= 0x55
        return replace(answer, records=bytes(records))

    class Answers:
        """Return the leader's answer with one damaged byte in the cut batch, and perhaps in the whole batch."""

        def __init__(self, position: int, *, all_damaged: bool) -> None:
            self.position, self.all_damaged = position, all_damaged

        def call(self, call: Any) -> Any:
            if call.api is not ApiKey.FETCH_LOG:
                return fluss.call(call)
            (asked,) = call.request.tables_req
            if asked.projection_pushdown_enabled:
                return flipped(self.position, cut)
            return flipped(-20, whole) if self.all_damaged else whole

    unnoticed, refusals = 0, []
    for position in range(len(cut.records)):
        try:
            found = read(Answers(position, all_damaged=False), made, 0, 60, ["name"])
        except FlussTieringError as error:
            # The batch has an unknown schema.
            refusals.append(error.code)
        else:
            # Without a checksum a value may be wrong, but no row may be missing or added.
            assert records_of(found).num_rows == 60, position
            unnoticed += records_of(found).column("name").to_pylist() != expected
    assert set(refusals) <= {ErrorCode.INVALID_TABLE, ErrorCode.CORRUPT_DATA}
    assert len(refusals) < 10
    assert unnoticed < len(cut.records) / 10
    frames = [cut.records.index(ZSTD_FRAME), cut.records.rindex(ZSTD_FRAME)]
    for position in frames:
        with refused(ErrorCode.CORRUPT_DATA, str(bucket_of(made)), str(made.path), "checksum"):
            read(Answers(position, all_damaged=True), made, 0, 60, ["name"])
        assert records_of(read(Answers(position, all_damaged=False), made, 0, 60, ["name"])).to_pydict() == {
            "name": expected
        }


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["id", "nmae"], "no column 'nmae': expected some of id, name"),
        (["name", "id", "name"], "column 'name' of table .* is asked for twice"),
    ],
)
def test_columns_that_are_not_there_are_refused(fluss: FlussClient, columns: list[str], message: str) -> None:
    made = new_table(fluss, descriptor())
    with pytest.raises(Exception, match=message) as caught:
        read(fluss, made, 0, 1, columns)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
