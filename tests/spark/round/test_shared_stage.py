"""Which stages share a Spark job, and that a table's failure stays its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from test_stage import GONE, NO_WRITER, STORAGE, Context

from engine_support import table_info
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import Claim
from fluss_tiering.spark.round import shared_stage
from fluss_tiering.spark.round.keepalive import RoundGuard
from fluss_tiering.spark.round.pieces import PieceWork, StageJob
from fluss_tiering.spark.round.plan import LogPiece
from fluss_tiering.spark.round.result import PieceResult
from fluss_tiering.spark.round.shared_stage import SharedStages, run_together
from fluss_tiering.spark.round.stage import Job
from waiting import wait_until

SPARK = cast("Any", "a session")


def job_of(table_id: int, size: float = 100.0) -> StageJob:
    work = [
        PieceWork(LogPiece(TableBucket(table_id, number), 0, 10, size_bytes=size), f"{number}") for number in range(2)
    ]
    return StageJob(table_info(table_id), STORAGE, "server:1", NO_WRITER, work, 1)


def results_of(job: Job) -> list[PieceResult]:
    return [PieceResult(number, job.table.table_id, (), 0) for number in range(len(job.work))]


class Jobs:
    """Runs stages here, and keeps the ids of the tables of each job. A job of table 0 lasts until it is let go."""

    def __init__(self) -> None:
        self.alone: list[int] = []
        self.together: list[list[int]] = []
        self.let_go = threading.Event()
        self.failing: set[int] = set()
        self.cancelled: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.stages = SharedStages(lambda: 2, self._alone, self._together, self._cancel)
        self._threads = ThreadPoolExecutor(8)

    def _alone(self, spark: object, job: Job, group: str, guard: RoundGuard) -> list[PieceResult]:
        self.alone.append(job.table.table_id)
        assert job.table.table_id or self.let_go.wait(60)
        return results_of(job)

    def _cancel(self, spark: object, group: str) -> None:
        self.cancelled.append(group)
        self.may_end.set()

    def _together(
        self, spark: object, jobs: Sequence[StageJob], tasks: int, group: str
    ) -> list[list[PieceResult] | None]:
        assert tasks == 2
        self.together.append(sorted(job.table.table_id for job in jobs))
        assert self.may_end.wait(60)
        if group in self.cancelled:
            return [None] * len(jobs)
        return [None if job.table.table_id in self.failing else results_of(job) for job in jobs]

    def start(self, job: StageJob, guard: RoundGuard | None = None) -> Any:
        guard = guard or RoundGuard(Claim(job.table.table_id, job.table.path, 1), lambda: None)
        return self._threads.submit(self.stages.run_stage, SPARK, job, f"{job.table.table_id}", guard)

    def start_behind_table_0(self, *jobs: StageJob) -> list[Any]:
        self.let_go.clear()
        self.alone.clear()
        futures = [self.start(job_of(0))]
        wait_until(lambda: self.alone == [0])
        futures += [self.start(job) for job in jobs]
        wait_until(lambda: len(self.stages._waiting) + len(self.alone) == 1 + len(jobs))
        return futures


def rows(futures: Sequence[Any]) -> list[list[int]]:
    return [[each.rows for each in future.result(60)] for future in futures]


def test_stages_that_wait_for_a_job_share_the_next_one() -> None:
    jobs = Jobs()
    futures = jobs.start_behind_table_0(job_of(1), job_of(2), job_of(3))
    jobs.let_go.set()
    assert rows(futures) == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert (jobs.alone, jobs.together) == ([0], [[1, 2, 3]])


def test_a_stage_with_much_to_read_has_a_job_of_its_own() -> None:
    jobs = Jobs()
    futures = jobs.start_behind_table_0(job_of(1, size=3e6), job_of(2), job_of(3))
    assert rows(futures[1:2]) == [[1, 1]], "it does not wait"
    jobs.let_go.set()
    assert rows(futures)[2:] == [[2, 2], [3, 3]]
    assert (jobs.alone, jobs.together) == ([0, 1], [[2, 3]])


def test_a_stage_that_fails_in_a_shared_job_runs_by_itself_until_that_works() -> None:
    jobs = Jobs()
    jobs.failing = {2}
    futures = jobs.start_behind_table_0(job_of(1), job_of(2), job_of(3))
    jobs.let_go.set()
    assert rows(futures) == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert (jobs.alone, jobs.together) == ([0, 2], [[1, 2, 3]])
    jobs.failing = set()
    futures = jobs.start_behind_table_0(job_of(1), job_of(2))
    jobs.let_go.set()
    assert rows(futures) == [[0, 0], [1, 1], [2, 2]]
    assert jobs.together[1:] == [[1, 2]], "it worked by itself"


def test_a_round_that_is_lost_leaves_the_others_behind() -> None:
    jobs, lost = Jobs(), RoundGuard(Claim(1, table_info(1).path, 1), lambda: None)
    futures = jobs.start_behind_table_0()
    waiting = jobs.start(job_of(1), lost)
    wait_until(lambda: len(jobs.stages._waiting) == 1)
    lost.lose(GONE)
    with pytest.raises(FlussTieringError) as error:
        waiting.result(60)
    assert error.value is GONE
    futures += [jobs.start(job_of(2))]
    jobs.let_go.set()
    assert rows(futures) == [[0, 0], [2, 2]]
    assert jobs.together == []


def test_a_round_that_is_lost_ends_the_shared_job_that_reads_its_snapshots() -> None:
    jobs, lost = Jobs(), RoundGuard(Claim(2, table_info(2).path, 1), lambda: None)
    futures = jobs.start_behind_table_0(job_of(1))
    reading = jobs.start(job_of(2), lost)
    wait_until(lambda: len(jobs.stages._waiting) == 2)
    jobs.may_end.clear()
    jobs.let_go.set()
    wait_until(lambda: jobs.together == [[1, 2]])
    lost.lose(GONE)
    with pytest.raises(FlussTieringError) as error:
        reading.result(60)
    assert error.value is GONE
    assert len(jobs.cancelled) == 1
    assert rows(futures) == [[0, 0], [1, 1]]
    assert jobs.alone == [0, 1], "the other one ran by itself"


def test_a_stage_that_does_not_end_holds_up_the_others_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs()
    first, *others = jobs.start_behind_table_0(job_of(1), job_of(2))
    monkeypatch.setattr(shared_stage, "_MAX_SHARED_S", 0.0)
    later = jobs.start(job_of(3))
    assert rows([later]) == [[3, 3]], "it waited for no longer than the limit"
    assert rows([*others, jobs.start(job_of(4))]) == [[1, 1], [2, 2], [4, 4]]
    assert not first.done()
    jobs.let_go.set()
    assert rows([first]) == [[0, 0]]


def test_each_stage_of_a_shared_job_gets_its_results_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def do(job: StageJob, numbers: Sequence[int]) -> list[PieceResult]:
        if job.table.table_id == 2:
            raise OSError("no such file")
        assert [work.piece.bucket.table_id for work in job.work] == [job.table.table_id] * 2
        return results_of(job)

    monkeypatch.setattr(StageJob, "__call__", do)
    context = Context()
    done = run_together(cast("Any", context), [job_of(1), job_of(2), job_of(3)], 2, "a group")
    assert [each and [result.rows for result in each] for each in done] == [[1, 1], None, [3, 3]]
    assert [job.work for job in context.sent[0].jobs] == [(), (), ()], "a task receives its own work only"
    assert context.told["spark.scheduler.pool"] == "shared"
    context = Context(lost=PySparkException("ExecutorLostFailure"))
    assert run_together(cast("Any", context), [job_of(1), job_of(2)], 2, "a group") == [None, None]
