"""What a worker writes for a piece. A plain reader of Parquet says which rows and which deletes are in its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine_support import VirtualClock
from fluss_tiering.formats.micros import lake_type
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.files import FileContent, LakeFile
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.spark.round import pieces
from fluss_tiering.spark.round.pieces import PieceWork, StageJob
from fluss_tiering.spark.round.plan import LogPiece, Piece, SnapshotPiece
from fluss_tiering.spark.round.result import PieceResult
from fluss_tiering.storage.embedded.storage import EmbeddedStorage

PATH = TablePath("db", "t")
COLUMNS = (
    Column("id", DataType.parse("INT NOT NULL")),
    Column("day", DataType.parse("STRING NOT NULL")),
    Column("name", DataType.parse("STRING")),
)
SYSTEM = (("__bucket", "INT"), ("__offset", "BIGINT"), ("__timestamp", "TIMESTAMP_LTZ(6)"))
NOON_MS = 1_700_000_000_000
MINUTE_MS = 60_000

Row = tuple[int, str | None]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON_MS)


@pytest.fixture
def storage(tmp_path: Path, clock: VirtualClock) -> Iterator[EmbeddedStorage]:
    opened = EmbeddedStorage.open(tmp_path / "data", clock=clock)
    yield opened
    opened.close()


def make(storage: EmbeddedStorage, *, key: bool) -> TableInfo:
    primary, buckets = (("day", "id"), ("id",)) if key else ((), ())
    descriptor = TableDescriptor(COLUMNS, primary, buckets, 1, partition_keys=("day",))
    return storage.create_table(PATH, descriptor)


def write(storage: EmbeddedStorage, kind: WriteKind, rows: Sequence[Row], day: str = "mon") -> None:
    columns = {"id": [key for key, _ in rows], "day": [day] * len(rows), "name": [name for _, name in rows]}
    storage.write(PATH, kind, pa.table(columns, schema=arrow_schema(COLUMNS)))


def bucket_of(storage: EmbeddedStorage, day: str = "mon") -> TableBucket:
    (found,) = (info.bucket for info in storage.buckets(PATH) if info.partition_values == (day,))
    return found


def job_of(storage: EmbeddedStorage, table: TableInfo, folder: Path, *todo: Piece, **settings: Any) -> StageJob:
    columns = [*COLUMNS, *(Column(name, DataType.parse(kind)) for name, kind in SYSTEM)]
    schema = pa.schema([pa.field(column.name, lake_type(column.data_type)) for column in columns])
    keys = table.descriptor.primary_key
    deletes = pa.schema([schema.field(name) for name in keys]) if keys else None
    writer = ParquetFileWriter(schema, deletes, ("zstd", None), 512 << 20, {})
    work = [PieceWork(piece, f"file://{folder}/lake/{number}") for number, piece in enumerate(todo)]
    return StageJob(table, storage.describe(), "", writer, work, 1, **settings)


def read(files: Sequence[LakeFile], content: FileContent = FileContent.DATA) -> list[dict[str, Any]]:
    paths = [urlparse(file.location).path for file in files if file.content is content]
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def stamped(rows: Sequence[dict[str, Any]]) -> list[tuple[int, str | None, int, int]]:
    """Return key, name, offset and time of the rows, in the order of the file."""
    return [(row["id"], row["name"], row["__offset"], int(row["__timestamp"].timestamp() * 1000 // 1)) for row in rows]


def only(job: StageJob) -> PieceResult:
    (result,) = job([0])
    return result


# Each key has one change in the piece: an equality delete of Iceberg leaves rows of its own commit alone.
def test_of_many_changes_of_a_key_the_last_is_written(storage: EmbeddedStorage, clock: VirtualClock, tmp_path: Path):
    table = make(storage, key=True)
    write(storage, WriteKind.UPSERT, [(1, "a"), (2, "b"), (3, "c")])
    clock.advance(MINUTE_MS)
    write(storage, WriteKind.UPSERT, [(1, "a2"), (4, "d")])
    write(storage, WriteKind.DELETE, [(2, None)])
    bucket = bucket_of(storage)
    (end,) = (info.log_end_offset for info in storage.buckets(PATH))
    piece = LogPiece(bucket, 0, end, deletes=True, partition_values=("mon",))

    result = only(job_of(storage, table, tmp_path, piece))

    rows = sorted(stamped(read(result.files)))
    assert [row[:2] for row in rows] == [(1, "a2"), (3, "c"), (4, "d")]
    assert [row[3] for row in rows] == [NOON_MS + MINUTE_MS, NOON_MS, NOON_MS + MINUTE_MS]
    # +I 1, +I 2, +I 3, -U 1, +U 1, +I 4, -D 2
    assert [row[2] for row in rows] == [4, 2, 5]
    deleted = read(result.files, FileContent.EQUALITY_DELETES)
    assert sorted(row["id"] for row in deleted) == [1, 2, 3, 4]
    assert [set(row) for row in deleted] == [{"day", "id"}] * 4
    assert result.rows == 6, "an update counts once"


def test_the_parts_of_a_snapshot_have_each_row_once(storage: EmbeddedStorage, tmp_path: Path):
    table = make(storage, key=True)
    write(storage, WriteKind.UPSERT, [(number, "n") for number in range(300)])
    storage.take_kv_snapshots(PATH)
    (info,) = storage.buckets(PATH)
    snapshot = info.latest_kv_snapshot
    assert snapshot is not None
    middle = b"\x40"
    parts = (SnapshotPiece(snapshot, None, middle), SnapshotPiece(snapshot, middle, None))

    results = list(job_of(storage, table, tmp_path, *parts)([0, 1]))

    assert [result.piece for result in results] == [0, 1]
    found = [[row["id"] for row in read(result.files)] for result in results]
    assert all(found)
    assert [result.rows for result in results] == list(map(len, found))
    assert sorted(key for part in found for key in part) == list(range(300))


def test_a_task_does_the_pieces_that_it_was_given_and_no_other(storage: EmbeddedStorage, tmp_path: Path):
    table = make(storage, key=False)
    for day in ("mon", "tue", "wed"):
        write(storage, WriteKind.APPEND, [(1, day)], day)
    todo = [LogPiece(bucket_of(storage, day), 0, 1, partition_values=(day,)) for day in ("mon", "tue", "wed")]

    results = list(job_of(storage, table, tmp_path, *todo)([2, 0]))

    assert [(result.piece, read(result.files)[0]["name"]) for result in results] == [(2, "wed"), (0, "mon")]
    # Attempts of one task never write to the same file; outside of Spark there is the attempt 0.
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == ["0-0-00000.parquet", "2-0-00000.parquet"]


def test_each_attempt_of_a_task_has_files_of_its_own(storage: EmbeddedStorage, tmp_path: Path, monkeypatch):
    table = make(storage, key=False)
    write(storage, WriteKind.APPEND, [(1, "a")])
    spark = SimpleNamespace(get=lambda: SimpleNamespace(taskAttemptId=lambda: 17))
    monkeypatch.setattr(pieces, "TaskContext", spark)

    result = only(job_of(storage, table, tmp_path, LogPiece(bucket_of(storage), 0, 1, partition_values=("mon",))))

    assert [Path(file.location).name for file in result.files] == ["0-17-00000.parquet"]


@pytest.mark.parametrize("key", [True, False])
def test_a_piece_that_cannot_be_read_to_its_end_leaves_no_files(storage: EmbeddedStorage, tmp_path: Path, key: bool):
    table = make(storage, key=key)
    write(storage, WriteKind.UPSERT if key else WriteKind.APPEND, [(1, "a"), (2, "b")])
    beyond = LogPiece(bucket_of(storage), 0, 99, deletes=key, partition_values=("mon",))

    with pytest.raises(FlussTieringError) as failed:
        only(job_of(storage, table, tmp_path, beyond))

    assert failed.value.code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE
    assert not [path for path in tmp_path.glob("lake/**/*") if path.is_file()]


def test_an_interrupted_worker_removes_what_it_has_written(storage: EmbeddedStorage, tmp_path: Path, monkeypatch):
    table = make(storage, key=False)
    write(storage, WriteKind.APPEND, [(1, "a"), (2, "b")])
    job = job_of(storage, table, tmp_path, LogPiece(bucket_of(storage), 0, 2, partition_values=("mon",)))
    close = cast("Any", job.writer.open_piece(0, "file:///dev/null", 0)).__class__.close

    def interrupted(writer: Any) -> None:
        assert [file for file in close(writer) if Path(urlparse(file.location).path).exists()]
        raise KeyboardInterrupt

    monkeypatch.setattr("fluss_tiering.lake.iceberg.parquet.ParquetPieceWriter.close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        only(job)
    assert not [path for path in tmp_path.glob("lake/**/*") if path.is_file()]


@pytest.mark.parametrize(("platform", "expected"), [("linux", 3 << 20), ("darwin", 3 << 10)])
def test_the_unit_of_the_peak_memory_is_that_of_the_platform(monkeypatch, platform: str, expected: int):
    used = SimpleNamespace(ru_maxrss=3 << 10)
    monkeypatch.setattr(pieces, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(pieces, "resource", SimpleNamespace(RUSAGE_SELF="self", getrusage={"self": used}.get))
    assert pieces.peak_bytes() == expected
