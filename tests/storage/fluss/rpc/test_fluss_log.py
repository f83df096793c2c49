from pathlib import Path

import pyarrow as pa
from fluss_reading import wait_until_moved
from fluss_tables import COLUMNS, append, descriptor, new_table, rows, upsert
from log_batches import iter_log_batches
from refusals import refused

from fluss_tiering.formats.log.batch import ChangeType
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.fluss.rpc.calls.log import FetchedLog, OffsetType, fetch_log, log_offset
from fluss_tiering.storage.fluss.rpc.calls.writes import produce_log
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.table_json import ClusterTable

SCHEMA = arrow_schema(COLUMNS)


def fetched(fluss: FlussClient, made: ClusterTable, offset: int, **arguments) -> FetchedLog:
    return fluss.call(fetch_log(made.info.path, TableBucket(made.info.table_id, 0), offset, **arguments))


def test_batches_come_back_however_they_are_compressed(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    for start, compression in ((0, "NONE"), (5, "ZSTD"), (10, "LZ4_FRAME")):
        assert append(fluss, made, rows(start, start + 5), compression=compression) == start
    answer = fetched(fluss, made, 0)
    batches = list(iter_log_batches(memoryview(answer.records), SCHEMA))
    assert [batch.base_offset for batch in batches] == [0, 5, 10]
    assert pa.Table.from_batches([batch.records for batch in batches]).to_pylist() == rows(0, 15).to_pylist()
    assert all(batch.change_types is None and batch.commit_timestamp > 1_700_000_000_000 for batch in batches)
    assert (answer.high_watermark, answer.remote_segments) == (15, ())
    bucket = TableBucket(made.info.table_id, 0)
    assert fluss.call(log_offset(made.info.path, bucket, OffsetType.LATEST)) == 15
    assert fluss.call(log_offset(made.info.path, bucket, OffsetType.EARLIEST)) == 0


def test_a_fetch_within_a_batch_returns_the_whole_batch(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    append(fluss, made, rows(0, 5), compression="ZSTD")
    append(fluss, made, rows(5, 9), compression="ZSTD")
    assert [batch.base_offset for batch in iter_log_batches(memoryview(fetched(fluss, made, 7).records), SCHEMA)] == [5]
    # A first batch that exceeds the limit is sent whole, and alone.
    first = fetched(fluss, made, 0, max_bytes=1)
    assert [batch.base_offset for batch in iter_log_batches(memoryview(first.records), SCHEMA)] == [0]
    assert fetched(fluss, made, 9).records == b""
    with refused(ErrorCode.LOG_OFFSET_OUT_OF_RANGE, f"bucket 0 of table {made.info.table_id}", "offset 10"):
        fetched(fluss, made, 10)


def test_columns_may_be_left_out(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    append(fluss, made, rows(0, 5), compression="ZSTD")
    answer = fetched(fluss, made, 0, projection=[1])
    names = pa.schema([SCHEMA.field("name")])
    (batch,) = iter_log_batches(memoryview(answer.records), names, verify_crc=False)
    assert batch.records.to_pylist() == rows(0, 5).select(["name"]).to_pylist()
    # Fluss does not change the checksum, which is that of the whole batch.
    with refused(ErrorCode.CORRUPT_DATA, "checksum"):
        list(iter_log_batches(memoryview(answer.records), names))


def test_changes_of_a_primary_key_table(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor(primary_key=True, tiered=True, table__datalake__freshness="1h"))
    assert upsert(fluss, made, rows(0, 3)) == 3
    assert upsert(fluss, made, rows(1, 2), deleted=[2]) == 6
    batches = list(iter_log_batches(memoryview(fetched(fluss, made, 0).records), SCHEMA))
    kinds = [ChangeType(kind) for batch in batches for kind in batch.change_types]
    assert kinds == [
        *[ChangeType.INSERT] * 3,
        *(ChangeType.UPDATE_BEFORE, ChangeType.UPDATE_AFTER, ChangeType.DELETE),
    ]
    ids = [row["id"] for batch in batches for row in batch.records.to_pylist()]
    assert ids == [0, 1, 2, 1, 1, 2]


def test_a_damaged_batch_is_refused(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    append(fluss, made, rows(0, 3), compression="NONE")
    records = bytearray(fetched(fluss, made, 0).records)
    records[-20] ^= 1
    with refused(ErrorCode.CORRUPT_DATA, "checksum"):
        list(iter_log_batches(memoryview(records), SCHEMA))


def test_a_write_that_is_no_batch_is_refused(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    bucket = TableBucket(made.info.table_id, 0)
    with refused(ErrorCode.CORRUPT_DATA, f"bucket 0 of table {made.info.table_id}"):
        fluss.call(produce_log(made.info.path, bucket, b"no batch" * 20))
    assert fluss.call(log_offset(made.info.path, bucket, OffsetType.LATEST)) == 0


def test_a_log_that_moved_to_the_remote_folder_is_read_there(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor(**{"table.log.tiered.local-segments": "1"}))
    step = 2_000
    for start in range(0, 5 * step, step):
        append(fluss, made, rows(start, start + step), compression="NONE")

    # Local segments are deleted once they are copied. A fetch then names the remote segments.
    wait_until_moved(fluss, made, 2_500)
    moved = fetched(fluss, made, 2_500)
    assert moved.records == b""
    read: list[int] = []
    position = moved.first_position
    expected = step  # the batch with offset 2500
    for segment in moved.remote_segments:
        content = Path(segment.path.removeprefix("file:")).read_bytes()
        assert len(content) == segment.size_bytes
        for batch in iter_log_batches(memoryview(content), SCHEMA, position=position):
            assert batch.base_offset == expected
            expected += batch.records.num_rows
            read += batch.records.column("id").to_pylist()
        assert expected == segment.end_offset
        position = 0
    local = fetched(fluss, made, expected)
    assert local.remote_segments == ()
    for batch in iter_log_batches(memoryview(local.records), SCHEMA):
        read += batch.records.column("id").to_pylist()
    assert read == list(range(step, 5 * step))
