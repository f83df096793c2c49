"""The Spark stage of a round: the pieces are spread over tasks, and each piece returns one result."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, cast

from py4j.protocol import Py4JError
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
_NO_ACCESS: Final = re.compile(r"^PermissionError\b|\bErrno 30\b")
"""What PyArrow says of a folder without rights, of an immutable one, and of a file system that is read-only."""
_ACCESS: Final = (
    "; expected files that Spark's executors may read, in a folder in which they may create new ones: look at the "
    "owner and the rights of both, whether they are immutable (lsattr), and whether their file system is mounted "
    "read-only"
)
_NO_ROOM: Final = re.compile(r"\bErrno 28\b")
_ROOM: Final = (
    "; expected room for the files of the lake table: look at the free space of the lake's folder, and at quotas"
)
"""Our own files on the executor's disk are named by errors of ours, so that this is a file of the lake."""

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
        spark: The session.
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
        spark: The session.
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


def _what_to_look_at(error: str) -> str:
    if _NO_ACCESS.search(error):
        return _ACCESS
    return _ROOM if _NO_ROOM.search(error) else ""


def _cause(error: Py4JError | PySparkException) -> str:
    """Return the innermost reason: our own error, a lost executor, the worker's Python error, or the JVM's message."""
    text = str(error)
    if own := _OWN_ERROR.findall(text):
        return str(own[-1])
    if lost := _EXECUTOR_LOST.findall(text):
        return f"a Spark executor was lost: {': '.join(lost[-1])}"
    if _WORKER_DIED in text:
        return "a Spark executor's Python worker died, killed or out of memory: see the executor's log"
    # Not every error is called so: pyarrow's are ArrowInvalid and the like.
    if raised := _TRACEBACK.findall(text) or _PYTHON_ERROR.findall(text):
        return f"a Spark task failed: {raised[-1]}{_what_to_look_at(raised[-1])}"
    # py4j's first line names only the call.
    if said := _JVM_ERROR.findall(text):
        return f"a Spark job failed: {said[0]}"
    return f"a Spark task failed: {text.splitlines()[0] if text else type(error).__name__}"
