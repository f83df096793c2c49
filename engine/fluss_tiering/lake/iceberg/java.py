"""Access to Spark's JVM. Its exceptions become our errors: class and message, never a Java stack trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

JAVA_ERRORS: Final = (Py4JError, PySparkException)
"""The exceptions that a call into the JVM may raise."""
_MAX_CAUSES: Final = 20
_REFUSED: Final = frozenset(
    {"NotAuthorizedException", "ForbiddenException", "AccessDeniedException", "AccessControlException"}
)
"""Exceptions of Iceberg's REST client, java.nio and Hadoop."""
_UNREACHABLE: Final = frozenset(
    {
        "ConnectException",
        "HttpHostConnectException",
        "ConnectTimeoutException",
        "ConnectionRequestTimeoutException",
        "SocketTimeoutException",
        "NoHttpResponseException",
        "NoRouteToHostException",
        "UnknownHostException",
        "ServiceUnavailableException",
    }
)
_NO_METHOD: Final = "Method "
"""With this word py4j tells that an object of the JVM has no method with a name and types of arguments."""
_EXCEPTIONS: Final = "org.apache.iceberg.exceptions."
_CONFLICTS: Final = frozenset({"CommitFailedException", "ValidationException"})
"""Exceptions of `org.apache.iceberg.exceptions`: the base of a commit is no longer the newest state."""
_UNKNOWN: Final = "CommitStateUnknownException"
"""The outcome of a commit is not known, whatever was first: its files may be those of the newest snapshot."""
UNKNOWN_OUTCOME: Final = (
    "it is not known whether this was committed, so its files are kept: the next round or maintenance goes on from "
    "what the lake table then shows, and `fluss-tiering clean` removes files that no snapshot needs"
)
"""What an error says of a commit whose outcome is not known."""
_WORDS_REFUSED: Final = "the lake refused the credentials given"
_WORDS_UNREACHABLE: Final = "the lake cannot be reached"
_WORDS_FORBIDDEN: Final = (
    "Spark may not read or write a file of the lake, so look at its owner and its rights, and at those of its folder"
)
_WORDS_READ_ONLY: Final = (
    "the lake catalog's database is read-only, so look at the owner and the rights of its file and of its folder"
)
_WORDS_CANNOT_OPEN: Final = (
    "the lake catalog's database cannot be opened, so look whether its folder is there, and at the owner and the "
    "rights of both"
)
_WORDS_FULL: Final = "no space is left for the lake, so free some, or enlarge the volume of its folder"
_DENIED: Final = "(Permission denied)"
"""With these words java.io tells that the operating system refuses to open a file. The exception is the same as for a
file that is missing."""
_SQLITE: Final = {
    "[SQLITE_READONLY": _WORDS_READ_ONLY,
    "[SQLITE_CANTOPEN": _WORDS_CANNOT_OPEN,
    "[SQLITE_FULL": _WORDS_FULL,
}
"""How the messages of SQLite's driver begin that a person can do something about."""
_NO_SPACE: Final = ("No space left on device", "No space left on device)")
"""How java.io's messages end when a volume is full: of a write, and of a file that could not be made."""
_WORDS_NO_GC: Final = (
    "the lake table has gc.enabled=false: files that it does not need may belong to other tables or branches, so only "
    "what knows these may delete them, for tables of Nessie its tool nessie-gc"
)
_NO_GC: Final = "GC is disabled"
"""What Iceberg says of an expiry or a removal of orphan files in such a table."""
_ADD_PACKAGE: Final = "name its package in spark.jars.packages, or add it to Spark's image"
_WORDS_NO_DRIVER: Final = f"Spark has no JDBC driver for the lake catalog: {_ADD_PACKAGE}"
_NO_CLASS: Final = frozenset({"ClassNotFoundException", "NoClassDefFoundError"})
_NO_CONSTRUCTOR: Final = "Cannot find constructor for interface"
"""What Iceberg says of the class of a catalog or of a store that is in no jar."""
_WORDS_NO_CLASS: Final = f"Spark lacks a jar of the lake: {_ADD_PACKAGE}"
_DAMAGE: Final = frozenset(
    {
        "NotFoundException",
        "FileNotFoundException",
        "NoSuchFileException",
        "EOFException",
        "ChecksumException",
        "InvalidAvroMagicException",
        "AvroRuntimeException",
        "JsonParseException",
        "JsonEOFException",
    }
)
"""Exceptions of Iceberg, java, Hadoop, Avro and Jackson."""
_WORDS_DAMAGE: Final = (
    "a file of the lake seems to be missing or damaged, so look at it, and restore it from a backup, or from an older "
    "version if its store keeps versions"
)
_TOLD_IN_XML: Final = re.compile(r"<Code>([^<\n]+)</Code>\s*<Message>([^<\n]+)")
"""What a store says in the body of its answer, which Azure's library puts into its message."""
_SQL_REFUSED: Final = "28"
_SQL_UNREACHABLE: Final = "08"
"""Classes of SQLSTATE (ISO 9075-2): invalid authorization, connection exception."""


def jvm_of(spark: SparkSession) -> JVMView:
    """Return the JVM of a session; pyspark has no public name for it."""
    return spark._jvm  # noqa: SLF001


def java_session_of(spark: SparkSession) -> JavaObject:
    """Return the session's object in the JVM."""
    return spark._jsparkSession  # noqa: SLF001


def java_error_text(error: Py4JError | PySparkException) -> str:
    """Return the cause of a Java exception in one line.

    A common cause is described in words. Then follows the root cause as `SimpleClass: message`, and the caught
    exception if it says something else.
    """
    if isinstance(error, PySparkException):
        # pyspark converts some Java exceptions to its own, for example java.lang.IllegalArgumentException.
        said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        return f"{_WORDS_NO_CLASS}: {said}" if _NO_CONSTRUCTOR in said else said
    if not isinstance(error, Py4JJavaError):
        # The text of an error without a message is "None".
        said = "" if error.args == (None,) else str(error)
        if _NO_METHOD in said and "does not exist" in said:
            # The JVM answered, but it does not know the method.
            return f"a call into Spark's JVM failed: {said[said.index(_NO_METHOD) :].splitlines()[0]}"
        return f"the connection to Spark's JVM broke: {said.splitlines()[0] if said else type(error).__name__}"
    # That the outcome of a commit is unknown is no cause.
    chain = [each for each in causes(error) if str(each.getClass().getSimpleName()) != _UNKNOWN] or list(causes(error))
    caught, root = _class_and_message(chain[0]), _class_and_message(chain[-1])
    text = root if root in caught or caught in root else f"{root} ({caught})"
    # The innermost known cause says the most.
    words = next(filter(None, (_usual_cause(exception) for exception in reversed(chain))), None)
    return text if words is None else f"{words}: {text}"


def root_message(error: Py4JJavaError) -> str:
    """Return the message of the root cause."""
    *_, root = causes(error)
    return root.getMessage() or ""


def causes(error: Py4JJavaError) -> Iterator[JavaObject]:
    """Yield the exception of the JVM and its causes, at most `_MAX_CAUSES`, since causes may form a circle."""
    exception = error.java_exception
    for _ in range(_MAX_CAUSES):
        if exception is None:
            return
        yield exception
        exception = exception.getCause()


def _usual_cause(exception: JavaObject) -> str | None:
    name = exception.getClass().getSimpleName()
    message = exception.getMessage() or ""
    state = _sql_state(exception)
    if message.startswith("No suitable driver"):
        return _WORDS_NO_DRIVER
    if name in _NO_CLASS or _NO_CONSTRUCTOR in message:
        return _WORDS_NO_CLASS
    if name in _REFUSED or state.startswith(_SQL_REFUSED):
        # "credentials: …" would be masked as a secret.
        return _WORDS_REFUSED
    if name in _UNREACHABLE or state.startswith(_SQL_UNREACHABLE):
        return _WORDS_UNREACHABLE
    if message.endswith(_DENIED):
        return _WORDS_FORBIDDEN
    if _NO_GC in message:
        return _WORDS_NO_GC
    if message.endswith(_NO_SPACE):
        return _WORDS_FULL
    if name in _DAMAGE:
        return _WORDS_DAMAGE
    return next((words for code, words in _SQLITE.items() if message.startswith(code)), None)


def _sql_state(exception: JavaObject) -> str:
    try:
        return exception.getSQLState() or ""
    except Py4JError:  # it is not an SQLException
        return ""


def _class_and_message(exception: JavaObject) -> str:
    name = exception.getClass().getSimpleName()
    message = exception.getMessage() or ""
    if told := _TOLD_IN_XML.search(message):
        message = ": ".join(told.groups())
    return f"{name}: {message.splitlines()[0]}" if message else name


def is_iceberg(error: Py4JError, exception: str) -> bool:
    """Return whether the JVM threw Iceberg's exception with this simple name."""
    return isinstance(error, Py4JJavaError) and (
        str(error.java_exception.getClass().getName()) == f"{_EXCEPTIONS}{exception}"
    )


def is_conflict(error: BaseException) -> bool:
    """Return whether a commit conflicts with another commit, however the JVM wraps this exception.

    The commit then certainly did not land, and never will: see `library`.
    """
    names = _names(error)
    return _UNKNOWN not in names and not names.isdisjoint(_CONFLICTS)


def is_unknown(error: BaseException) -> bool:
    """Return whether nobody knows if a commit landed, so that no file of it may be deleted."""
    return _UNKNOWN in _names(error)


def _names(error: BaseException) -> set[str]:
    """Return the names of Iceberg's exceptions in the chain of causes, without their package."""
    if not isinstance(error, Py4JJavaError):
        return set()
    return {str(exception.getClass().getName()).removeprefix(_EXCEPTIONS) for exception in causes(error)}


@contextmanager
def lake_errors(doing: str) -> Iterator[None]:
    """Turn an exception of the JVM inside the block into STORAGE with the text "CAUSE: could not `doing`".

    Of a commit whose outcome is not known, the text says so.
    """
    try:
        yield
    except JAVA_ERRORS as error:
        rest = f"; {UNKNOWN_OUTCOME}" if is_unknown(error) else ""
        raise FlussTieringError(ErrorCode.STORAGE, f"{java_error_text(error)}: could not {doing}{rest}") from None
