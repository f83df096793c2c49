import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from embedded_tables import (
    LOG_COLUMNS,
    PATH,
    TurnedClock,
    columns,
    end_offsets,
    kv_table,
    log_rows,
    log_table,
    opened,
    read_log,
    read_rows,
    segments,
    storage_with,
)
from refusals import refused

from fluss_tiering.formats.bucketing import assign_buckets
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableDescriptor, WriteKind
from fluss_tiering.storage import writes

APPEND = WriteKind.APPEND
ZSTD_FRAME = bytes.fromhex("28b52ffd")
LZ4_FRAME = bytes.fromhex("04224d18")


def test_rows_come_back_with_their_offsets_and_time(tmp_path: Path) -> None:
    clock = TurnedClock(1_000)
    with opened(tmp_path, clock=clock) as storage:
        table = storage.create_table(PATH, log_table())
        bucket = TableBucket(table.table_id, 0)
        assert storage.write(PATH, APPEND, log_rows(0, 3)) == {bucket: 3}
        clock.now = 2_000
        assert storage.write(PATH, APPEND, log_rows(3, 8)) == {bucket: 8}
        assert storage.write(PATH, APPEND, log_rows(0, 0)) == {}
        batches = read_log(storage.reader(), table, 0, 0, 8)
        assert [(batch.base_offset, batch.commit_timestamp, batch.records.num_rows) for batch in batches] == [
            (0, 1_000, 3),
            (3, 2_000, 5),
        ]
        assert all(batch.change_types is None for batch in batches)
        assert pa.Table.from_batches([batch.records for batch in batches]).equals(log_rows(0, 8))


def test_any_range_is_read_from_any_segment(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=2_000) as storage:
        table = storage.create_table(PATH, log_table(properties={"table.log.arrow.compression.type": "NONE"}))
        for start in range(0, 60, 3):
            storage.write(PATH, APPEND, log_rows(start, start + 3))
        assert len(segments(tmp_path)) > 2
        reader = storage.reader()
        for start in range(60):
            for end in (start, start + 1, min(start + 7, 60), 60):
                batches = read_log(reader, table, 0, start, end)
                assert [value for batch in batches for value in batch.records.column("id").to_pylist()] == list(
                    range(start, end)
                )
                assert [batch.base_offset for batch in batches][:1] == ([start] if end > start else [])
        info = storage.buckets(PATH)[0]
        assert info.log_size_bytes == sum(segment.stat().st_size for segment in segments(tmp_path))
        assert (info.log_start_offset, info.log_end_offset) == (0, 60)
    with opened(tmp_path, segment_bytes=2_000) as storage:
        assert storage.buckets(PATH)[0] == info
        assert [row["id"] for row in read_rows(storage)] == list(range(60))


@pytest.mark.parametrize("missing", [(0, 11), (10, 11), (20, 21), (5, 4)])
def test_a_range_that_the_log_does_not_hold_is_refused(tmp_path: Path, missing: tuple[int, int]) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table())
        storage.write(PATH, APPEND, log_rows(0, 10))
        with refused(ErrorCode.LOG_OFFSET_OUT_OF_RANGE, "offsets"):
            read_log(storage.reader(), table, 0, *missing)
        with refused(ErrorCode.LOG_OFFSET_OUT_OF_RANGE):
            list(storage.fetch_log(TableBucket(table.table_id, 0), *missing))


def test_an_empty_log_has_no_range_but_the_empty_one(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table())
        assert read_log(storage.reader(), table, 0, 0, 0) == []
        with refused(ErrorCode.LOG_OFFSET_OUT_OF_RANGE):
            read_log(storage.reader(), table, 0, 0, 1)


def test_a_reader_names_the_damaged_batch(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=1) as storage:
        table = storage.create_table(PATH, log_table())
        for start in range(0, 30, 10):
            storage.write(PATH, APPEND, log_rows(start, start + 10))
        _, second, third = segments(tmp_path)
        whole = second.read_bytes()
        second.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with refused(ErrorCode.CORRUPT_DATA, str(second), "position 0", "checksum", "restore"):
            read_log(storage.reader(), table, 0, 0, 30)
        assert len(read_log(storage.reader(), table, 0, 0, 10)) == 1
        assert len(read_log(storage.reader(), table, 0, 20, 30)) == 1
        second.write_bytes(whole[:-1])
        with refused(ErrorCode.CORRUPT_DATA, str(third), "offset 20", "offset 10"):
            read_log(storage.reader(), table, 0, 5, 30)
        third.rename(third.with_name("third.log"))
        with refused(ErrorCode.CORRUPT_DATA, "third.log", "foreign"):
            read_log(storage.reader(), table, 0, 0, 10)


def test_rows_are_spread_by_the_hash_of_the_bucket_key(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table(4, bucket_keys=("id",)))
        rows = log_rows(0, 1_000)
        expected = assign_buckets(rows.column("id").combine_chunks(), LOG_COLUMNS[0].data_type, 4)
        storage.write(PATH, APPEND, rows)
        for bucket, end in enumerate(end_offsets(storage)):
            found = [row for batch in read_log(storage.reader(), table, bucket, 0, end) for row in batch.records[0]]
            assert [value.as_py() for value in found] == np.flatnonzero(expected == bucket).tolist()


def test_a_key_of_several_columns_decides_the_bucket_by_all_of_them(tmp_path: Path) -> None:
    key = columns(id="INT NOT NULL", line="BOOLEAN NOT NULL", day="STRING NOT NULL", value="INT")
    rows = [{"id": n // 4, "line": n % 2 == 0, "day": "mo" if n % 4 < 2 else "tu", "value": n} for n in range(400)]
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, TableDescriptor(key, primary_key=("id", "line", "day"), num_buckets=4))
        for _ in range(2):
            storage.write(PATH, WriteKind.UPSERT, pa.Table.from_pylist(rows, schema=arrow_schema(key)))
        storage.write(PATH, WriteKind.DELETE, pa.Table.from_pylist(rows, schema=arrow_schema(key[:3])))
        places: dict[tuple[object, ...], set[int]] = {}
        for bucket, end in enumerate(end_offsets(storage)):
            for batch in read_log(storage.reader(), table, bucket, 0, end):
                for row in batch.records.to_pylist():
                    places.setdefault((row["id"], row["line"], row["day"]), set()).add(bucket)
        assert len(places) == 400
        assert all(len(buckets) == 1 for buckets in places.values())
        by_id = [{number for (key, *_), found in places.items() if key == n for number in found} for n in range(100)]
        assert max(map(len, by_id)) > 2


def test_without_a_bucket_key_small_writes_take_turns_and_large_ones_are_split_evenly(tmp_path: Path) -> None:
    with storage_with(tmp_path, log_table(4)) as storage:
        for start in range(0, 600, 100):
            storage.write(PATH, APPEND, log_rows(start, start + 100))
        assert end_offsets(storage) == [200, 200, 100, 100]
        storage.write(PATH, APPEND, log_rows(600, 600 + 40_000))
        assert end_offsets(storage) == [10_150] * 4
        ids = [row["id"] for row in read_rows(storage)]
        assert sorted(ids) == list(range(40_600))
        # Each bucket gets consecutive rows of a write.
        parts = [ids[10_150 * bucket + (200 if bucket < 2 else 100) : 10_150 * (bucket + 1)] for bucket in range(4)]
        assert all(part == list(range(part[0], part[0] + len(part))) for part in parts)


@pytest.mark.slow
def test_a_large_write_becomes_batches_that_a_reader_can_hold(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, TableDescriptor(columns(text="STRING")))
        storage.write(PATH, APPEND, pa.table({"text": ["x" * 100_000] * 300}))
        sizes = [batch.records.nbytes for batch in read_log(storage.reader(), table, 0, 0, 300)]
        assert len(sizes) > 2
        assert max(sizes) < 10 << 20
        storage.write(PATH, APPEND, pa.table({"text": ["x"] * 70_000}))
        assert [batch.records.num_rows for batch in read_log(storage.reader(), table, 0, 300, 70_300)] == [
            65_536,
            4_464,
        ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table({"id": [1]}), "no column 'name'"),
        (pa.table({"id": [1], "name": ["a"], "extra": [2]}), "no column 'extra'"),
        (pa.table({"id": ["x"], "name": ["a"]}), "column 'id' is string"),
        (pa.table({"id": pa.array([None], pa.int64()), "name": ["a"]}), "null"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path: Path, rows: pa.Table, message: str) -> None:
    with storage_with(tmp_path, log_table(2)) as storage:
        with refused(ErrorCode.INVALID_ROWS, message, "expected"):
            storage.write(PATH, APPEND, rows)
        assert end_offsets(storage) == [0, 0]


def test_a_write_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "_MAX_WRITE_BYTES", 1_000)
    with storage_with(tmp_path, log_table()) as storage:
        with refused(ErrorCode.INVALID_ROWS, "expected at most 1000", "write fewer at once"):
            storage.write(PATH, APPEND, log_rows(0, 100))
        storage.write(PATH, APPEND, log_rows(0, 100).slice(90))
        assert end_offsets(storage) == [10]


def test_a_null_bucket_key_is_refused_before_the_first_row_is_written(tmp_path: Path) -> None:
    with storage_with(tmp_path, TableDescriptor(columns(id="BIGINT"), bucket_keys=("id",), num_buckets=2)) as storage:
        with refused(ErrorCode.INVALID_ROWS, "bucket key"):
            storage.write(PATH, APPEND, pa.table({"id": [1, 2, 3, None]}))
        assert end_offsets(storage) == [0, 0]


def test_a_write_must_mean_what_the_table_can_take(tmp_path: Path) -> None:
    with storage_with(tmp_path, log_table()) as storage:
        for kind in (WriteKind.UPSERT, WriteKind.DELETE):
            with refused(ErrorCode.INVALID_ROWS, "no primary key", "expected append"):
                storage.write(PATH, kind, log_rows(0, 1))
        storage.drop_table(PATH)
        storage.create_table(PATH, kv_table())
        with refused(ErrorCode.INVALID_ROWS, "has a primary key", "expected upsert or delete"):
            storage.write(PATH, APPEND, log_rows(0, 1))


@pytest.mark.parametrize(
    ("properties", "frame"),
    [
        ({}, ZSTD_FRAME),
        ({"table.log.arrow.compression.type": "zstd"}, ZSTD_FRAME),
        ({"table.log.arrow.compression.type": "LZ4_FRAME"}, LZ4_FRAME),
        ({"table.log.arrow.compression.type": "NONE"}, b"row 998row 999"),
    ],
)
def test_batches_are_compressed_as_the_table_says(tmp_path: Path, properties: dict[str, str], frame: bytes) -> None:
    with storage_with(tmp_path, log_table(properties=properties), log_rows(0, 1_000)) as storage:
        assert frame in segments(tmp_path)[0].read_bytes()
        assert [row["id"] for row in read_rows(storage)] == list(range(1_000))


def test_writers_in_many_threads_lose_nothing(tmp_path: Path) -> None:
    with storage_with(tmp_path, log_table(3, bucket_keys=("id",))) as storage:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda n: storage.write(PATH, APPEND, log_rows(n * 50, n * 50 + 50)), range(64)))
        assert sorted(row["id"] for row in read_rows(storage)) == list(range(64 * 50))
    with opened(tmp_path) as storage:
        assert sorted(row["id"] for row in read_rows(storage)) == list(range(64 * 50))


def test_dropping_a_table_under_writers_and_readers_ends_them_cleanly(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table(2, bucket_keys=("id",)))
        storage.write(PATH, APPEND, log_rows(0, 20_000))
        under_way = storage.reader().read_log(table, TableBucket(table.table_id, 0), 0, end_offsets(storage)[0])
        codes: list[ErrorCode] = []
        started = threading.Barrier(5)

        def write_on() -> None:
            started.wait()
            try:
                while True:
                    storage.write(PATH, APPEND, log_rows(0, 500))
            except FlussTieringError as error:
                codes.append(error.code)

        first = next(under_way)
        writers = [threading.Thread(target=write_on) for _ in range(4)]
        for writer in writers:
            writer.start()
        started.wait()
        storage.drop_table(PATH)
        for writer in writers:
            writer.join(timeout=30)
        assert codes == [ErrorCode.TABLE_NOT_EXIST] * 4
        assert first.records.num_rows > 0
        assert list(under_way) == []
        with refused(ErrorCode.TABLE_NOT_EXIST, "not dropped meanwhile"):
            read_log(storage.reader(), table, 0, 0, 1)
        assert not list((tmp_path / "tables" / "shop").iterdir())
