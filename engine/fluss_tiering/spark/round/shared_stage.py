"""One Spark job for the small stages of several rounds.

A Spark job without rows costs 35 ms of CPU, as much as a hundred rows. So while a job runs, the small stages of other
tables wait, and then share the next one. A table that is alone waits for nothing.

Each table's failure stays its own. A stage that fails in a shared job, or whose shared job fails or takes long, runs
again in a job of its own, which Spark repeats and whose error is the table's. Until a table's own job works, its later
stages are not shared either. A round that is lost meanwhile ends the shared job, since it releases the snapshots that
the job still reads; the others then run by themselves.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fluss_tiering.spark.round.keepalive import RoundGuard
from fluss_tiering.spark.round.pieces import PieceWork, StageJob
from fluss_tiering.spark.round.result import PieceResult
from fluss_tiering.spark.round.stage import POOL_PROPERTY, Job, cancel_stage, failure_of, run_stage
from fluss_tiering.spark.runtime import SYSTEM, Event, Runtime

_MAX_SHARED_S: Final = 60.0
"""A shared job that takes longer is cancelled, and no stage waits longer for a job to end: a source may not answer."""
_LOOK_S: Final = 0.5
"""How often a round that waits for a shared job looks whether it may go on."""
_END_S: Final = 10.0
"""How long a round that was lost waits for the end of the shared job that reads for it."""
_SMALL_BYTES: Final = 4 << 20
"""The size of the pieces of a stage that shares a job, at most. A task does them in a fraction of a second."""
_MAX_STAGES: Final = 64
"""The number of stages in a shared job, at most."""

logger = logging.getLogger(__name__)

Results = list[PieceResult]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A stage that waits for a shared job.

    Attributes:
        job: The stage.
        woken: Is set when the stage is done, or is to run the next shared job.
        results: What the stage wrote; None if it is not done.
        ended: Whether its shared job has ended.
        group: The name of the Spark job group of its shared job; empty if it has no part in one.
    """

    job: StageJob
    woken: Event
    results: Results | None = None
    ended: bool = False
    group: str = ""


class SharedStages:
    """Runs the stages of an application's rounds. Its `run_stage` takes the place of the function of this name.

    Args:
        parallelism: Returns how many tasks run at the same time.
        alone: Runs a stage in a job of its own.
        together: Runs stages in one job, whose group has a name, and returns the results of each; None for a stage that
            failed.
        cancel: Ends a job by the name of its group, from any thread.
        runtime: The threads of the application.
    """

    def __init__(
        self,
        parallelism: Callable[[], int],
        alone: Callable[[SparkSession, Job, str, RoundGuard], Results] = run_stage,
        together: Callable[[SparkSession, Sequence[StageJob], int, str], list[Results | None]] | None = None,
        cancel: Callable[[SparkSession, str], None] = cancel_stage,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self._parallelism = parallelism
        self._alone = alone
        self._together = run_together if together is None else together
        self._cancel = cancel
        self._runtime = runtime
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._busy = False
        self._apart: set[int] = set()
        """The ids of the tables whose last stage did not work in a shared job."""

    def run_stage(self, spark: SparkSession, job: Job, group: str, guard: RoundGuard) -> Results:
        """Run a stage, together with others if it is small. See `stage.run_stage`."""
        table_id = job.table.table_id
        if isinstance(job, StageJob) and _is_small(job) and table_id not in self._apart:
            results = self._shared(spark, job, group, guard)
            guard.check()
            if results is not None:
                return results
            logger.info("the stage of %s runs in a Spark job of its own", job.table.path)
            self._apart.add(table_id)
        results = self._alone(spark, job, group, guard)
        self._apart.discard(table_id)
        return results

    def _shared(self, spark: SparkSession, job: StageJob, group: str, guard: RoundGuard) -> Results | None:
        mine = _Waiting(job, self._runtime.new_event())
        with self._lock:
            if self._busy:
                self._waiting.append(mine)
            else:
                self._busy = True
                mine.woken.set()
        deadline = self._runtime.monotonic() + _MAX_SHARED_S
        try:
            while not mine.woken.wait(_LOOK_S):
                guard.check()
                if self._runtime.monotonic() >= deadline and self._withdraw(mine):
                    # A job of one stage has no limit. Nobody else waits for it either.
                    self._hand_over(())
                    return None
        except BaseException:
            if not self._withdraw(mine) and not mine.ended:
                if mine.woken.is_set():
                    # It was just told to run the next job.
                    self._hand_over(())
                else:
                    self._cancel(spark, mine.group)
                    mine.woken.wait(_END_S)
            raise
        if mine.ended:
            return mine.results
        # This stage runs the next job, for itself and for all that wait by now.
        with self._lock:
            others, self._waiting = self._waiting[: _MAX_STAGES - 1], self._waiting[_MAX_STAGES - 1 :]
            shared = f"fluss-tiering-shared-{uuid.uuid4()}"
            for each in (mine, *others):
                each.group = shared
        try:
            if not others:
                return self._alone(spark, job, group, guard)
            return self._run(spark, [mine, *others])
        finally:
            self._hand_over(others)

    def _run(self, spark: SparkSession, stages: Sequence[_Waiting]) -> Results | None:
        done = self._together(spark, [each.job for each in stages], self._parallelism(), stages[0].group)
        for each, results in zip(stages, done, strict=True):
            each.results = results
        return stages[0].results

    def _withdraw(self, mine: _Waiting) -> bool:
        """Let a stage wait no longer, and return whether it did; not if it has its part in a job by now."""
        with self._lock:
            waits = mine in self._waiting
            if waits:
                self._waiting.remove(mine)
            return waits

    def _hand_over(self, ended: Sequence[_Waiting]) -> None:
        with self._lock:
            follower = self._waiting.pop(0) if self._waiting else None
            self._busy = follower is not None
            if follower is not None:
                # Whoever finds that a stage waits no longer must also find that it was woken.
                follower.woken.set()
        for each in ended:
            each.ended = True
            each.woken.set()


def run_together(spark: SparkSession, jobs: Sequence[StageJob], tasks: int, group: str) -> list[Results | None]:
    """Run stages in one Spark job. Return the results of each in the order of its pieces; None for one that failed.

    Args:
        jobs: The stages.
        tasks: How many Spark tasks share the stages, at most.
        group: The name of the Spark job group, which no other job has.
    """
    context = spark.sparkContext
    context.setJobGroup(group, f"tier {len(jobs)} tables with little new data")
    context.setLocalProperty(POOL_PROPERTY, "shared")
    timer = threading.Timer(_MAX_SHARED_S, cancel_stage, (spark, group))
    timer.start()
    try:
        # The jobs hold credentials. They are part of the tasks' code, which Spark does not write to a file.
        work = context.parallelize([(number, job.work) for number, job in enumerate(jobs)], min(len(jobs), tasks))
        done: dict[int, Results | None] = dict(work.mapPartitions(SharedTask(jobs)).collect())
    except (Py4JError, PySparkException) as error:
        logger.warning("a Spark job for %d tables failed: %s", len(jobs), failure_of(error).message)
        return [None] * len(jobs)
    finally:
        timer.cancel()
    return [done.get(number) for number in range(len(jobs))]


@dataclass(slots=True)
class SharedTask:
    """Stages as the tasks of a shared job receive them: without the work, of which each task receives its own part."""

    jobs: Sequence[Any] = field(repr=False)

    def __post_init__(self) -> None:
        self.jobs = [replace(job, work=()) for job in self.jobs]

    def __call__(self, numbered: Iterable[tuple[int, Sequence[PieceWork]]]) -> Iterator[tuple[int, Results | None]]:
        """Do the stages with these numbers. One that fails does not keep the others from being done."""
        for number, work in numbered:
            try:
                results = list(replace(self.jobs[number], work=work)(range(len(work))))
            except Exception:  # noqa: BLE001 - the stage runs again by itself, and then tells why
                yield number, None
            else:
                yield number, results


def _is_small(job: StageJob) -> bool:
    return sum(work.piece.size_bytes for work in job.work) <= _SMALL_BYTES
