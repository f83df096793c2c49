"""The Spark stage of a round: the pieces are spread over tasks, and each piece returns one result."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, cast

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.round.deletes import DeleteJob
from fluss_tiering.spark.round.keepalive import RoundGuard
from fluss_tiering.spark.round.pieces import StageJob
from fluss_tiering.spark.round.result import PieceResult

POOL_PROPERTY: Final = "spark.scheduler.pool"
_OWN_ERROR: Final = re.compile(r"^(?:\w+\.)*FlussTieringError: (.+)$", re.MULTILINE)
_EXECUTOR_LOST: Final = re.compile(r"ExecutorLostFailure \((executor .+)\) Reason: (.+)$", re.MULTILINE)
_WORKER_DIED: Final = "Python worker exited unexpectedly"
_TRACEBACK: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
_JVM_ERROR: Final = re.compile(r"^: (?:\w+\.)+\w+: (.+)$", re.MULTILINE)
_PYTHON_ERROR: Final = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Exit)\b.*)$", re.MULTILINE)
_NOT_STARTED: Final = (
    re.compile(r"^Error from python worker:\n(?:.*\n)*?\s*(\S.*)\nPYTHONPATH was:", re.MULTILINE),
    re.compile(r"IOException: (Cannot run program .+)$", re.MULTILINE),
)
_SET_PYTHON: Final = "Set PYSPARK_PYTHON to a Python of the driver's version on each worker."
_MORE_MEMORY: Final = "raise spark.executor.memoryOverhead, or give executors fewer cores"
_WHAT_TO_DO: Final = {
    # What PyArrow says of a folder without rights, of an immutable one, and of a file system that is read-only.
    re.compile(r"^PermissionError\b|\bErrno 30\b"): (
        "; expected files that Spark's executors may read, in a folder in which they may create new ones: look at the "
        "owner and the rights of both, whether they are immutable (lsattr), and whether their file system is mounted "
        "read-only"
    ),
    # Our own files on the executor's disk are named by errors of ours, so that this is a file of the lake.
    re.compile(r"\bErrno 28\b"): (
        "; expected room for the files of the lake table: look at the free space of the lake's folder, and at quotas"
    ),
    re.compile(r"PYTHON_VERSION_MISMATCH"): f" {_SET_PYTHON}",
    # What YARN says of its limit names the setting already.
    re.compile(r"\b137\b(?!.*memoryOverhead)"): f"; it was killed, most often for lack of memory: {_MORE_MEMORY}",
}
"""What a Python error says -> what is added to it."""

_LONGEST_WAIT_S: Final = 30.0
"""As long as Spark waits before its first job (`spark.scheduler.maxRegisteredResourcesWaitingTime`)."""
_SETTLED_S: Final = 1.0
"""Executors that start together register within this time of each other."""
_LOOK_S: Final = 0.1

Job = StageJob | DeleteJob


class _Share:
    """A job as its tasks receive it: without the work, of which each task receives its own part."""

    def __init__(self, job: Job) -> None:
        self._job: Any = replace(cast("Any", job), work=())

    def __call__(self, numbered: Iterable[tuple[int, Any]]) -> Iterator[PieceResult]:
        own = list(numbered)
        for result in replace(self._job, work=[work for _, work in own])(range(len(own))):
            yield replace(result, piece=own[result.piece][0])


def run_stage(spark: SparkSession, job: Job, group: str, guard: RoundGuard) -> list[PieceResult]:
    """Run a stage and return what the successful attempts of all tasks wrote, in the order of the pieces.

    Args:
        job: The work of the tasks.
        group: The name of the Spark job group, by which the stage is watched and cancelled.
        guard: The guard of the round. When the round is lost, the stage is cancelled.

    Raises:
        FlussTieringError: the reason why the round was lost, if it was; UNKNOWN if a task failed for good.
    """
    context = spark.sparkContext
    context.setJobGroup(group, f"tier {job.table.path}")
    # Each table has a pool of its own: in FAIR mode the pools share the cores.
    context.setLocalProperty(POOL_PROPERTY, f"table-{job.table.table_id}")

    pieces = len(job.work)
    try:
        # This is not a data frame, since no row passes through Spark, and the first query plan takes seconds.
        work = context.parallelize(list(enumerate(job.work)), job.tasks)
        results: list[PieceResult] = work.mapPartitions(_Share(job)).collect()
    except (Py4JError, PySparkException) as error:
        guard.check()
        raise failure_of(error) from None
    results.sort(key=lambda result: result.piece)
    if [result.piece for result in results] != list(range(pieces)):
        raise FlussTieringError(
            ErrorCode.UNKNOWN,
            f"Spark returned the results of pieces {[result.piece for result in results]}, expected {pieces} of them",
        )
    return results


def cancel_stage(spark: SparkSession, group: str) -> None:
    """End the stage of a round, also if it has not begun yet. If Spark has ended, do nothing.

    Args:
        group: The name of the Spark job group, which no other round has.
    """
    context = spark.sparkContext
    with contextlib.suppress(Py4JError, OSError, AttributeError):  # pyspark forgets `_jsc` when the context is stopped
        jobs = context._jsc.sc()  # noqa: SLF001 - pyspark cancels present jobs only
        try:
            jobs.cancelJobGroupAndFutureJobs(group)
        except Py4JError:  # Spark 3.5 has no such call
            jobs.cancelJobGroup(group)


def failure_of(error: Py4JError | PySparkException) -> FlussTieringError:
    """Return the error of a failed Spark job, in one line."""
    return FlussTieringError(ErrorCode.UNKNOWN, _cause(error))


def _what_to_do(error: str) -> str:
    return next((told for pattern, told in _WHAT_TO_DO.items() if pattern.search(error)), "")


def _cause(error: Py4JError | PySparkException) -> str:
    """Return the innermost reason: our own error, a lost executor, the worker's Python error, or the JVM's message."""
    text = str(error)
    if own := _OWN_ERROR.findall(text):
        return str(own[-1])
    if lost := _EXECUTOR_LOST.findall(text):
        reason = ": ".join(lost[-1])
        return f"a Spark executor was lost: {reason}{_what_to_do(reason)}"
    if _WORKER_DIED in text:
        return f"a Spark executor's Python worker died, killed or out of memory: see its log, and {_MORE_MEMORY}"
    for pattern in _NOT_STARTED:
        if failed := pattern.search(text):
            return f"a Spark worker's Python did not start: {failed[1]}. {_SET_PYTHON}"
    # Not every error is called so: pyarrow's are ArrowInvalid and the like.
    if raised := _TRACEBACK.findall(text) or _PYTHON_ERROR.findall(text):
        return f"a Spark task failed: {raised[-1]}{_what_to_do(raised[-1])}"
    # py4j's first line names only the call.
    if said := _JVM_ERROR.findall(text):
        return f"a Spark job failed: {said[0]}"
    return f"a Spark task failed: {text.splitlines()[0] if text else type(error).__name__}"


class Parallelism:
    """Tells how many tasks an application runs at the same time, once its executors are there.

    Spark counts the cores of the executors that have registered. When an application begins, there are none yet. A
    round would then be cut into too few pieces, and an application that requests executors by the number of its tasks
    would never get more. So the settings come first, and without them the first executors are waited for.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._waited = False

    def __call__(self) -> int:
        """Return the number of tasks, at least 1. The first call may wait for executors."""
        configured = self._configured()
        if configured is None and not self._waited and not self._context.master.startswith("local"):
            self._wait()
            self._waited = True
        return max(1, int(self._context.defaultParallelism), configured or 0)

    def _configured(self) -> int | None:
        """Return how many tasks the executors of the settings run; None if the settings do not name their number."""
        # `SparkContext.getConf` copies all settings, with a call into the JVM for each of more than a hundred.
        conf = self._context._jsc.sc().conf()  # noqa: SLF001
        cores = conf.get("spark.executor.cores", "")
        dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        count = conf.get("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances", "")
        if not count or (not cores and self._context.master.startswith("spark:")):
            return None
        return int(count) * int(cores or 1) // int(conf.get("spark.task.cpus", "1"))

    def _wait(self) -> None:
        began = settled = time.monotonic()
        seen = 0
        while (now := time.monotonic()) - began < _LONGEST_WAIT_S:
            registered = self._registered()
            if registered != seen:
                seen, settled = registered, now
            if seen and now - settled >= _SETTLED_S:
                return
            time.sleep(_LOOK_S)

    def _registered(self) -> int:
        """Return how many executors have registered. Spark counts the driver as one, too."""
        return len(self._context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # noqa: SLF001
