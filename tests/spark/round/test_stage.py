"""How the pieces of a stage are spread over Spark's tasks, and how it is cancelled, with a plain stand-in for Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from engine_support import table_info
from fluss_tiering.lake.files import NotedPlace
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import StorageDescription, TableBucket, TableInfo
from fluss_tiering.model.tiering import Claim
from fluss_tiering.spark.round.deletes import DeleteJob
from fluss_tiering.spark.round.keepalive import RoundGuard
from fluss_tiering.spark.round.pieces import PieceWork, StageJob
from fluss_tiering.spark.round.plan import LogPiece
from fluss_tiering.spark.round.result import PieceResult
from fluss_tiering.spark.round.stage import Job, cancel_stage, run_stage

TABLE = table_info(7)
STORAGE = StorageDescription("embedded", "", "", "")
NO_WRITER = cast("Any", "a writer")
GONE = FlussTieringError(ErrorCode.FENCED_TIERING_EPOCH, "superseded")


@dataclass
class Context:
    """A Spark context that runs the tasks of a job here, the last one first, and keeps what it was told.

    It is its own session and its own distributed collection.
    """

    told: dict[str, str] = field(default_factory=dict)
    partitions: list[list[Any]] = field(default_factory=list)
    tasks: Callable[[Iterable[Any]], Iterator[Any]] = iter
    sent: list[Any] = field(default_factory=list)
    lost: Exception | None = None
    answers: list[PieceResult] | None = None

    @property
    def sparkContext(self) -> Context:  # noqa: N802 - Spark's name, as below
        return self

    def setJobGroup(self, group: str, description: str) -> None:  # noqa: N802
        self.told |= {"group": group, "description": description}

    def setLocalProperty(self, key: str, value: str) -> None:  # noqa: N802
        self.told[key] = value

    def parallelize(self, items: Sequence[Any], slices: int) -> Context:
        self.partitions = [list(items[number::slices]) for number in range(slices)]
        return self

    def mapPartitions(self, tasks: Callable[[Iterable[Any]], Iterator[Any]]) -> Context:  # noqa: N802
        self.tasks = tasks
        self.sent.append(tasks)
        return self

    def collect(self) -> list[Any]:
        if self.lost is not None:
            raise self.lost
        if self.answers is not None:
            return self.answers
        return [result for part in reversed(self.partitions) for result in self.tasks(iter(part))]


def guard() -> RoundGuard:
    return RoundGuard(Claim(7, TABLE.path, 3), lambda: None)


def run(context: Context, job: Job, guarded: RoundGuard | None = None) -> list[PieceResult]:
    return run_stage(cast("Any", context), job, "the group", guarded or guard())


def stage_job(count: int, tasks: int, table: TableInfo = TABLE) -> StageJob:
    work = tuple(PieceWork(LogPiece(TableBucket(7, number), 0, 10), f"piece-{number}") for number in range(count))
    return StageJob(table, STORAGE, "server:1", NO_WRITER, work, tasks, buffer_bytes=12345)


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, list[Any]]]:
    """Return the jobs as tasks do them, and the work that each has done. A piece has as many rows as its bucket's."""
    seen: list[tuple[Any, list[Any]]] = []

    def do(job: Any, numbers: Iterable[int]) -> Iterator[PieceResult]:
        seen.append((job, [job.work[number] for number in numbers]))
        for number, work in enumerate(seen[-1][1]):
            rows = work.piece.bucket.bucket if isinstance(work, PieceWork) else work.bucket
            yield PieceResult(number, rows, (), 0, "expired" if rows == 4 else None)

    monkeypatch.setattr(StageJob, "__call__", do)
    monkeypatch.setattr(DeleteJob, "__call__", do)
    return seen


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_each_piece_is_done_once_and_the_results_are_in_the_order_of_the_pieces(did, tasks: int):
    context, job = Context(), stage_job(5, tasks)
    results = run(context, job)
    assert [(each.piece, each.rows) for each in results] == [(number, number) for number in range(5)]
    assert [each.expired for each in results] == [None] * 4 + ["expired"], "nothing but the number is changed"
    assert len(did) == tasks
    assert sorted(work.location for _, done in did for work in done) == [work.location for work in job.work]
    for part, done in did:
        assert list(part.work) == done, "a task knows its own pieces only"
        assert (part.table, part.storage, part.target, part.writer, part.buffer_bytes) == (
            TABLE,
            STORAGE,
            "server:1",
            NO_WRITER,
            12345,
        )


def test_the_work_of_all_tasks_is_not_sent_to_each_of_them(did):
    context = Context()
    run(context, stage_job(50, 2))
    (sent,) = context.sent
    assert sent._job.work == ()


def test_the_second_stage_is_spread_in_the_same_way(did):
    places = [NotedPlace(number, f"place-{number}", (), (), ()) for number in range(3)]
    results = run(Context(), DeleteJob(TABLE, NO_WRITER, places, 2))
    assert [(each.piece, each.rows) for each in results] == [(0, 0), (1, 1), (2, 2)]
    assert [done for _, done in did] == [[places[1]], [places[0], places[2]]]


def test_a_stage_is_found_by_its_group_and_shares_the_cores_with_other_tables(did):
    context = Context()
    run(context, stage_job(1, 1))
    assert context.told == {"group": "the group", "description": "tier db.t7", "spark.scheduler.pool": "table-7"}


@pytest.mark.parametrize("found", [[0, 1, 1, 2], [0, 2], [], [0, 1, 2, 3]], ids=str)
def test_results_that_are_not_those_of_the_pieces_fail_the_round(found: list[int]):
    answers = [PieceResult(each, 0, (), 0) for each in found]
    with pytest.raises(FlussTieringError) as raised:
        run(Context(answers=answers), stage_job(3, 1))
    assert raised.value.code is ErrorCode.UNKNOWN
    assert f"{found}" in raised.value.message


@pytest.mark.parametrize("error", [PySparkException("MemoryError: no more"), Py4JError("MemoryError: no more")])
def test_a_task_that_fails_for_good_fails_the_round(error: Exception):
    with pytest.raises(FlussTieringError, match="a Spark task failed: MemoryError: no more") as raised:
        run(Context(lost=error), stage_job(3, 1))
    assert raised.value.code is ErrorCode.UNKNOWN
    assert raised.value.__suppress_context__, "the reason says it all"


def test_a_stage_that_was_cancelled_because_its_round_was_lost_gives_that_as_the_reason():
    lost = guard()
    lost.lose(GONE)
    with pytest.raises(FlussTieringError) as raised:
        run(Context(lost=PySparkException("Job 3 cancelled")), stage_job(3, 1), lost)
    assert raised.value is GONE


# Cancelling


class Jobs:
    """The scheduler of a Spark, which may be too old to cancel jobs that have not begun."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.cancelled: list[tuple[str, str]] = []

    def cancelJobGroupAndFutureJobs(self, group: str) -> None:  # noqa: N802 - Spark's name, as below
        if self.error is not None:
            raise self.error
        self.cancelled.append(("also future jobs", group))

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.append(("present jobs", group))


def session(jobs: object) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: jobs)))


def test_a_stage_is_also_cancelled_before_it_begins():
    jobs = Jobs()
    cancel_stage(session(jobs), "the group")
    assert jobs.cancelled == [("also future jobs", "the group")]


def test_an_older_spark_cancels_what_runs():
    jobs = Jobs(Py4JError("Method cancelJobGroupAndFutureJobs([class java.lang.String]) does not exist"))
    cancel_stage(session(jobs), "the group")
    assert jobs.cancelled == [("present jobs", "the group")]


@pytest.mark.parametrize(
    "ended",
    [
        session(Jobs(ConnectionRefusedError("the JVM has gone"))),
        session(SimpleNamespace()),
        SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None)),
    ],
    ids=["no JVM", "another object", "a context that was stopped"],
)
def test_a_spark_that_has_ended_has_nothing_to_cancel(ended: Any):
    cancel_stage(ended, "the group")


def test_a_jvm_that_ends_while_it_is_asked_has_nothing_to_cancel():
    def ended() -> Any:
        raise Py4JNetworkError("Answer from Java side is empty")

    cancel_stage(cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=ended)))), "group")


def test_another_error_is_not_taken_for_the_end_of_spark():
    with pytest.raises(ValueError, match="a defect"):
        cancel_stage(session(Jobs(ValueError("a defect"))), "the group")
