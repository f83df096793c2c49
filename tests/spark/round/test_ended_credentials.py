"""Pieces that the lake's credentials ended before are written with new ones, or the round leaves nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa
import pytest

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.lake.object_store import ExpiredCredentialsError
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import (
    Column,
    DataType,
    StorageDescription,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
)
from fluss_tiering.spark.round import pieces as pieces_module
from fluss_tiering.spark.round.pieces import PieceWork, StageJob
from fluss_tiering.spark.round.plan import LogPiece
from fluss_tiering.spark.round.renewal import write_all
from fluss_tiering.spark.round.result import PieceResult

SCHEMA = pa.schema([pa.field("id", pa.int64())])
TABLE = TableInfo(7, TablePath("db", "t"), 1, TableDescriptor((Column("id", DataType.parse("BIGINT")),)), 0)


def writer(session: str) -> ParquetFileWriter:
    return ParquetFileWriter(SCHEMA, None, ("zstd", None), 1 << 20, {"s3.session-token": session})


@dataclass
class Lake:
    """A lake whose catalog vends these sessions, one after the other, and then the last one for ever."""

    sessions: list[str]
    deleted: list[str] = field(default_factory=list)

    def file_writer(self, *, renew: bool = False) -> ParquetFileWriter:
        assert renew, "the store refused the last ones"
        return writer(self.sessions.pop(0) if len(self.sessions) > 1 else self.sessions[0])

    def delete_files(self, files: list[LakeFile]) -> None:
        self.deleted += [file.location for file in files]


def job() -> StageJob:
    work = tuple(PieceWork(LogPiece(TableBucket(7, number), 0, 10), f"piece-{number}") for number in range(4))
    return StageJob(TABLE, StorageDescription("embedded", "", "", ""), "", writer("first"), work, 4)


@dataclass
class Stages:
    """Runs stages: each session writes so many pieces before it ends."""

    valid_for: dict[str, int]
    seen: list[tuple[str, list[str], int]] = field(default_factory=list)

    def __call__(self, part: StageJob) -> list[PieceResult]:
        session = cast("ParquetFileWriter", part.writer).io_properties["s3.session-token"]
        self.seen.append((session, [each.location for each in part.work], part.tasks))
        return [self._result(number, each.location, session) for number, each in enumerate(part.work)]

    def _result(self, number: int, location: str, session: str) -> PieceResult:
        if self.valid_for[session] <= 0:
            return PieceResult(number, 0, (), 0, f"the {session} expired")
        self.valid_for[session] -= 1
        file = LakeFile(FileContent.DATA, 0, f"{location} of {session}", 1, FileMetrics(10))
        return PieceResult(number, 10, (file,), 0)


def locations(results: list[PieceResult]) -> list[str]:
    return [file.location for result in results for file in result.files]


def test_each_piece_is_written_once_by_the_session_that_was_valid() -> None:
    stages, lake = Stages({"first": 2, "second": 1, "third": 9}), Lake(["second", "third"])
    results = write_all(stages, cast("Any", lake), job())
    assert locations(results) == [
        "piece-0 of first",
        "piece-1 of first",
        "piece-2 of second",
        "piece-3 of third",
    ]
    assert [each.piece for each in results] == [0, 1, 2, 3]
    assert stages.seen == [
        ("first", ["piece-0", "piece-1", "piece-2", "piece-3"], 4),
        ("second", ["piece-2", "piece-3"], 2),
        ("third", ["piece-3"], 1),
    ]
    assert lake.deleted == []


@pytest.mark.parametrize(
    ("valid_for", "vended", "said", "stages"),
    [
        ({"first": 2}, ["first"], r"the lake catalog has no others: the first expired", 1),
        ({"first": 2, "second": 0}, ["second"], r"did not help: the second expired", 2),
        ({"first": 2, "second": 1}, ["second"], r"the lake catalog has no others: the second expired", 2),
    ],
)
def test_a_round_without_valid_credentials_says_so_and_deletes_its_files(
    valid_for: dict[str, int], vended: list[str], said: str, stages: int
) -> None:
    run, lake = Stages(valid_for), Lake(vended)
    written = sum(valid_for.values())
    with pytest.raises(FlussTieringError, match=said) as raised:
        write_all(run, cast("Any", lake), job())
    assert raised.value.code is ErrorCode.STORAGE
    for part in ("the lake table db.t", "in the middle of the round", "Nothing was committed", "let the lake catalog"):
        assert part in raised.value.message
    assert len(run.seen) == stages
    assert len(lake.deleted) == written


def test_files_of_a_session_that_ended_are_deleted_if_the_next_stage_fails() -> None:
    stages, lake = Stages({"first": 2}), Lake(["second"])

    def run(part: StageJob) -> list[PieceResult]:
        if stages.seen:
            raise FlussTieringError(ErrorCode.UNKNOWN, "a Spark executor was lost")
        return stages(part)

    with pytest.raises(FlussTieringError, match="a Spark executor was lost"):
        write_all(run, cast("Any", lake), job())
    assert lake.deleted == ["piece-0 of first", "piece-1 of first"]


def test_a_task_tells_which_pieces_are_left_and_tries_none_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def do(_: StageJob, number: int, *rest: object) -> PieceResult:
        tried.append(number)
        if number == 1:
            raise ExpiredCredentialsError("they expired at noon")
        return PieceResult(number, 10, (), 0)

    monkeypatch.setattr(StageJob, "_do", do)
    monkeypatch.setattr(pieces_module, "open_split_reader", lambda *_: None)
    results = list(job()(range(4)))
    assert [(each.piece, each.expired) for each in results] == [
        (0, None),
        (1, "they expired at noon"),
        (2, "they expired at noon"),
        (3, "they expired at noon"),
    ]
    assert tried == [0, 1]


def test_a_task_opens_one_reader_with_what_the_driver_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[object, ...]] = []
    used: list[object] = []

    def do(_: StageJob, number: int, attempt: int, reader: object) -> PieceResult:
        used.append(reader)
        return PieceResult(number, 10, (), 0)

    def open_reader(*known: object) -> int:
        opened.append(known)
        return len(opened)

    monkeypatch.setattr(StageJob, "_do", do)
    monkeypatch.setattr(pieces_module, "open_split_reader", open_reader)
    access, security = cast("Any", "access"), cast("Any", "security")
    stage = replace(job(), target="server:1", access=access, security=security)
    assert len(list(stage(range(4)))) == 4
    assert opened == [(stage.storage, "server:1", access, security)]
    assert used == [1, 1, 1, 1]


@pytest.mark.parametrize("error", [OSError("disk"), FlussTieringError(ErrorCode.STORAGE, "gone")])
def test_other_errors_stay_failures_of_the_task(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(StageJob, "_do", fail)
    monkeypatch.setattr(pieces_module, "open_split_reader", lambda *_: None)
    with pytest.raises(type(error)):
        list(job()(range(4)))
