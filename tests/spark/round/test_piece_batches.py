"""How a piece hands batches to its writer: the rows, their offsets and times, and the keys whose rows are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from engine_support import SCHEMA, table_info
from fluss_tiering.formats.log.batch import ChangeType, LogBatch
from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, LiveDataFile
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, StorageDescription, TableBucket, TableInfo
from fluss_tiering.spark.round import pieces
from fluss_tiering.spark.round.pieces import PieceWork, StageJob
from fluss_tiering.spark.round.plan import LogPiece, Piece, SnapshotPiece
from fluss_tiering.spark.round.result import PieceResult

BUCKET = TableBucket(7, 5)
SNAPSHOT = KvSnapshot(BUCKET, 3, 10, 5, 100, "kv/3")
LIVE = (LiveDataFile("live.parquet", (), 5),)
MON = ("mon",)
FROM_SNAPSHOT = -1


def rows(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids), "name": [f"row {each}" for each in ids]}, schema=SCHEMA)


def changes(offset: int, *given: tuple[int, ChangeType]) -> LogBatch:
    kinds = np.array([kind for _, kind in given], np.uint8)
    return LogBatch(offset, 1000 + offset, kinds, rows(*(key for key, _ in given)))


class Reader:
    """A reader of a log and of a snapshot with these batches, which keeps what it was asked for."""

    def __init__(self, log: Sequence[LogBatch] = (), snapshot: Sequence[pa.RecordBatch] = ()) -> None:
        self._log = log
        self._snapshot = snapshot
        self.asked: list[tuple[object, ...]] = []

    def read_log(self, *of: object) -> Iterator[LogBatch]:
        self.asked.append(of)
        yield from self._log

    def read_kv_snapshot(self, *of: object) -> Iterator[pa.RecordBatch]:
        self.asked.append(of)
        yield from self._snapshot


class Writer:
    """A lake writer that keeps how its piece was opened and what it was told. It writes no files."""

    def __init__(self) -> None:
        self.opened: list[tuple[Any, ...]] = []
        self.deleted: list[int] = []
        self.written: list[tuple[int, int, int]] = []
        self.ended: list[str] = []

    def open_piece(self, *place: Any) -> Writer:
        self.opened.append(("deletes", *place))
        return self

    def open_noting_piece(self, *place: Any) -> Writer:
        self.opened.append(("notes", *place))
        return self

    def write(self, batch: pa.RecordBatch, offsets: np.ndarray, timestamps_ms: np.ndarray) -> None:
        assert (offsets.dtype, timestamps_ms.dtype) == (np.int64, np.int64)
        self.written += zip(batch["id"].to_pylist(), offsets.tolist(), timestamps_ms.tolist(), strict=True)

    def delete(self, keys: pa.RecordBatch) -> None:
        assert keys.schema.names == ["id"]
        self.deleted += keys["id"].to_pylist()

    def close(self) -> list[LakeFile]:
        self.ended.append("closed")
        return [LakeFile(FileContent.DATA, 0, "a file", 1, FileMetrics(1))]

    def abort(self) -> None:
        self.ended.append("aborted")

    def keys(self) -> str:
        assert self.ended == ["closed"]
        return "where the keys are"


@pytest.fixture
def do(monkeypatch: pytest.MonkeyPatch):
    """Do one piece with this reader and this writer."""

    def one(table: TableInfo, work: PieceWork, reader: Reader, writer: Writer) -> PieceResult:
        monkeypatch.setattr(pieces, "open_split_reader", lambda *_: reader)
        job = StageJob(table, StorageDescription("embedded", "", "", ""), "", cast("Any", writer), [work], 1)
        (result,) = job([0])
        return result

    return one


@pytest.mark.parametrize("of_snapshot", [True, False])
@pytest.mark.parametrize("way", ["by key", "by position", "noted"])
def test_a_piece_deletes_rows_as_its_place_needs_it(do, way: str, of_snapshot: bool):
    piece: Piece = LogPiece(BUCKET, 0, 2, deletes=True, partition_values=MON)
    if of_snapshot:
        piece = SnapshotPiece(SNAPSHOT, partition_values=MON, deletes=True)
    live = LIVE if way == "by position" else None
    reader = Reader([changes(0, (1, ChangeType.INSERT), (2, ChangeType.INSERT))], [rows(1, 2)])
    writer = Writer()

    result = do(table_info(7), PieceWork(piece, "here", live, notes_keys=way == "noted"), reader, writer)

    place = (5, "here", 0, MON)
    assert writer.opened == [("notes", *place) if way == "noted" else ("deletes", *place, live)]
    assert (writer.deleted, [each[0] for each in writer.written], result.rows) == ([1, 2], [1, 2], 2)
    assert [file.location for file in result.files] == ["a file"]
    assert isinstance(result.files, tuple)
    assert result.keys == ("where the keys are" if way == "noted" else None)
    assert (result.piece, result.expired, writer.ended) == (0, None, ["closed"])


@pytest.mark.parametrize("deletes", [True, False])
def test_all_batches_of_a_snapshot_are_written(do, deletes: bool):
    table, reader, writer = table_info(7), Reader(snapshot=[rows(3, 1), rows(2), rows(5, 4)]), Writer()
    result = do(table, PieceWork(SnapshotPiece(SNAPSHOT, b"a", b"b", deletes=deletes), "here"), reader, writer)
    assert reader.asked == [(table, SNAPSHOT, b"a", b"b")]
    assert writer.written == [(key, FROM_SNAPSHOT, FROM_SNAPSHOT) for key in (3, 1, 2, 5, 4)]
    assert writer.deleted == ([3, 1, 2, 5, 4] if deletes else [])
    assert result.rows == 5


def test_all_batches_of_a_log_are_written_with_their_offsets_and_times(do):
    table = table_info(7, primary_key=False)
    reader = Reader([LogBatch(10, 1000, None, rows(1, 2)), LogBatch(12, 2000, None, rows(3))])
    writer = Writer()
    result = do(table, PieceWork(LogPiece(BUCKET, 10, 13), "here"), reader, writer)
    assert reader.asked == [(table, BUCKET, 10, 13)]
    assert writer.written == [(1, 10, 1000), (2, 11, 1000), (3, 12, 2000)]
    assert (writer.deleted, result.rows) == ([], 3)


@pytest.mark.parametrize("deletes", [True, False])
def test_of_the_batches_of_a_changelog_the_last_change_of_each_key_is_written(do, deletes: bool):
    table = table_info(7)
    reader = Reader(
        [
            changes(10, (1, ChangeType.INSERT), (2, ChangeType.INSERT), (3, ChangeType.INSERT)),
            changes(13, (1, ChangeType.UPDATE_BEFORE), (1, ChangeType.UPDATE_AFTER), (2, ChangeType.DELETE)),
        ]
    )
    writer = Writer()
    result = do(table, PieceWork(LogPiece(BUCKET, 10, 16, deletes=deletes), "here"), reader, writer)
    assert reader.asked == [(table, BUCKET, 10, 16)]
    assert sorted(writer.written) == [(1, 14, 1013), (3, 12, 1010)]
    assert sorted(writer.deleted) == ([1, 2, 3] if deletes else [])
    assert result.rows == 5, "an update counts once"


def test_a_piece_that_cannot_be_written_is_undone(do, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise FlussTieringError(ErrorCode.STORAGE, "disk full")

    monkeypatch.setattr(Writer, "write", refuse)
    writer = Writer()
    with pytest.raises(FlussTieringError, match="disk full"):
        do(table_info(7), PieceWork(SnapshotPiece(SNAPSHOT), "here"), Reader(snapshot=[rows(1)]), writer)
    assert writer.ended == ["aborted"]
