"""Whether the Spark application of a driver ends: its JVM was killed or told to end, or its context was stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from fluss_tiering.lake.iceberg.java import causes
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_ENDED: Final = (
    "Spark has ended by itself, so this program ends, too: the JVM was killed or has failed; look at its messages and "
    "at the machine's memory, then start it again"
)


def spark_has_ended(context: SparkContext) -> bool:
    """Ask the JVM. Without an answer there is none any more."""
    try:
        return bool(context._jsc.sc().isStopped())  # noqa: SLF001 - pyspark has no such call
    except (Py4JError, OSError, AttributeError):  # pyspark forgets `_jsc` when the context is stopped
        return True


_OF_A_TASK: Final = "Job aborted due to stage failure"
_ENDS: Final = (
    "does not exist in the JVM",
    "SparkContext was shut down",
    "stopped SparkContext",
    "java.util.concurrent.RejectedExecutionException",
    "java.lang.IllegalStateException: Shutdown in progress",
)


def tells_end_of_spark(failure: BaseException | None) -> bool:
    """Return whether a failure, or one that led to it, tells that the JVM of Spark ends or has ended.

    While the JVM shuts down, calls fail before `spark_has_ended` sees it. A failed task never tells it, whatever its
    text says, because it may speak of an executor that shuts down.
    """
    for each in _chain(failure):
        if isinstance(each, Py4JNetworkError):
            return True
        if isinstance(each, Py4JError | PySparkException):
            try:
                text = _text(each)
            except (Py4JError, OSError):  # the JVM does not answer
                return True
            return _OF_A_TASK not in text and any(end in text for end in _ENDS)
    return False


def got_no_answer(failure: BaseException | None) -> bool:
    """Return whether a failure, or one that led to it, is a call to the JVM without an answer.

    The type of the failure does not prove it: py4j raises the same for a method that does not exist.
    """
    return any(
        isinstance(each, ConnectionError | Py4JError) and not isinstance(each, Py4JJavaError)
        for each in _chain(failure)
    )


def _chain(failure: BaseException | None) -> Iterator[BaseException]:
    """Yield a failure and those that led to it, the last one first."""
    while failure is not None:
        yield failure
        failure = failure.__cause__ or failure.__context__


def _text(failure: Py4JError | PySparkException) -> str:
    if not isinstance(failure, Py4JJavaError):
        return str(failure)
    return "\n".join(f"{each.getClass().getName()}: {each.getMessage()}" for each in causes(failure))


class SparkEndedError(FlussTieringError):
    """Says that the application ends because its Spark has ended. It is an interruption and no failure.

    Args:
        last_words: The last messages of the JVM that may say why it has ended; empty if there are none.
    """

    def __init__(self, last_words: str = "") -> None:
        super().__init__(ErrorCode.UNAVAILABLE, f"{_ENDED}{f'. Its last messages: {last_words}' if last_words else ''}")
