"""The way into Spark's JVM, and its exceptions as errors of ours: class and message, never a Java stack trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from fluss_tiering.model.errors import ErrorCode, FlussTieringError


def jvm_of(spark: SparkSession) -> JVMView:
    """The JVM behind a session; pyspark has no public name for it."""
    return spark._jvm  # noqa: SLF001


def java_session_of(spark: SparkSession) -> JavaObject:
    """The session's object in the JVM."""
    return spark._jsparkSession  # noqa: SLF001


def java_error_text(error: Py4JError) -> str:
    """`SimpleClass: message`, with the root cause's behind it where that says something else."""
    if not isinstance(error, Py4JJavaError):
        return (
            f"the connection to Spark's JVM broke: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        )
    exception = error.java_exception
    root = exception
    while root.getCause() is not None:
        root = root.getCause()
    text = _class_and_message(exception)
    root_text = _class_and_message(root)
    return text if root_text in text else f"{text} (caused by {root_text})"


def _class_and_message(exception: JavaObject) -> str:
    name = exception.getClass().getSimpleName()
    message = exception.getMessage()
    return f"{name}: {message.splitlines()[0]}" if message else name


def is_iceberg(error: Py4JError, exception: str) -> bool:
    """Whether the JVM threw an exception of Iceberg's of that simple name."""
    return isinstance(error, Py4JJavaError) and (
        str(error.java_exception.getClass().getName()) == f"org.apache.iceberg.exceptions.{exception}"
    )


@contextmanager
def lake_errors(doing: str) -> Iterator[None]:
    """Turns a JVM exception inside the block into STORAGE, "could not `doing`: …"."""
    try:
        yield
    except Py4JError as error:
        raise FlussTieringError(ErrorCode.STORAGE, f"could not {doing}: {java_error_text(error)}") from None
