"""Whether the Spark application of a driver has ended by itself: its JVM was killed, or has stopped its context."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_ENDED: Final = (
    "Spark has ended by itself, so this application ends, too: the JVM was killed or has failed; look at its messages "
    "and at the machine's memory, then start the application again"
)


def spark_has_ended(context: SparkContext) -> bool:
    """Ask the JVM. Without an answer there is none any more."""
    try:
        return bool(context._jsc.sc().isStopped())  # noqa: SLF001 - pyspark has no such call
    except (Py4JError, OSError, AttributeError):  # pyspark forgets `_jsc` when the context is stopped
        return True


def spark_ended_error() -> FlussTieringError:
    """Return the error of an application whose Spark has ended."""
    return FlussTieringError(ErrorCode.UNAVAILABLE, _ENDED)
