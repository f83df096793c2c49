"""What users read when something fails in Spark's JVM: one line, with the cause in front, and never a stack trace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from fluss_tiering.lake.iceberg.java import (
    is_conflict,
    is_iceberg,
    java_error_text,
    lake_errors,
    root_message,
)
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

ICEBERG = "org.apache.iceberg.exceptions."
UNKNOWN = f"{ICEBERG}CommitStateUnknownException"
NO_JAR = "Spark lacks a jar of the lake: name its package in spark.jars.packages, or add it to Spark's image"
NO_FILE_IO = "Cannot initialize FileIO X: Cannot find constructor for interface Y"
NO_SPACE = "no space is left for the lake, so free some, or enlarge the volume of its folder"


class JavaException:
    """An exception of the JVM, as py4j hands it out. It has an SQLSTATE if it is one of JDBC."""

    _target_id = "o1"

    def __init__(
        self, name: str, message: str | None = None, cause: JavaException | None = None, *, state: str | None = None
    ) -> None:
        self._name = name
        self._message = message
        self.cause = cause
        self._state = state

    def getClass(self) -> Any:  # noqa: N802 - Java's names
        return SimpleNamespace(getName=lambda: self._name, getSimpleName=lambda: self._name.rpartition(".")[2])

    def getMessage(self) -> str | None:  # noqa: N802
        return self._message

    def getCause(self) -> JavaException | None:  # noqa: N802
        return self.cause

    def getSQLState(self) -> str | None:  # noqa: N802
        if self._state is None:
            raise Py4JError(f"Method getSQLState([]) does not exist in {self._name}")
        return self._state or None


def thrown(exception: JavaException) -> Py4JJavaError:
    return Py4JJavaError("An error occurred while calling o1.commit.\n", exception)


REFUSED = JavaException("java.net.ConnectException", "Connection refused\n\tat java.net.Socket")


@pytest.mark.parametrize(
    ("exception", "text"),
    [
        (JavaException("java.lang.IllegalStateException", "broken\nin two lines"), "IllegalStateException: broken"),
        (JavaException("java.lang.NullPointerException"), "NullPointerException"),
        (
            JavaException(
                f"{ICEBERG}RuntimeIOException", "Failed to open", JavaException("java.io.IOException", "end")
            ),
            "IOException: end (RuntimeIOException: Failed to open)",
        ),
        # Java itself often repeats the cause in the message of the exception around it, and the other way round.
        (
            JavaException("E", "F: the end of it", JavaException("java.io.F", "the end of it")),
            "F: the end of it",
        ),
        (JavaException("E", "x", JavaException("F", "seen: E: x")), "F: seen: E: x"),
        (
            JavaException(f"{ICEBERG}RESTException", "Error occurred", REFUSED),
            "the lake cannot be reached: ConnectException: Connection refused (RESTException: Error occurred)",
        ),
        (
            JavaException(f"{ICEBERG}NotAuthorizedException", "no token"),
            "the lake refused the credentials given: NotAuthorizedException: no token",
        ),
        (
            JavaException("java.sql.SQLException", "No suitable driver found for jdbc:x"),
            (
                "Spark has no JDBC driver for the lake catalog: name its package in spark.jars.packages, or add it to "
                "Spark's image: SQLException: No suitable driver found for jdbc:x"
            ),
        ),
        (
            JavaException("E", "x", JavaException("java.lang.ClassNotFoundException", "org.apache.iceberg.X")),
            f"{NO_JAR}: ClassNotFoundException: org.apache.iceberg.X (E: x)",
        ),
        (
            JavaException(
                "BlobStorageException",
                'Status code 404, "<?xml version="1.0"?>\n<Error><Code>ContainerNotFound</Code>\n'
                "<Message>The specified container does not exist.\nRequestId:7</Message></Error>",
            ),
            "BlobStorageException: ContainerNotFound: The specified container does not exist.",
        ),
        (
            JavaException("E", NO_FILE_IO),
            f"{NO_JAR}: E: {NO_FILE_IO}",
        ),
        (
            JavaException("org.postgresql.util.PSQLException", "FATAL", state="28P01"),
            "the lake refused the credentials given: PSQLException: FATAL",
        ),
        (
            JavaException("org.postgresql.util.PSQLException", "gone", state="08006"),
            "the lake cannot be reached: PSQLException: gone",
        ),
        (JavaException("org.postgresql.util.PSQLException", "syntax", state="42601"), "PSQLException: syntax"),
        (JavaException("org.postgresql.util.PSQLException", "bad", state=""), "PSQLException: bad"),
        # The innermost cause that is known says the most.
        (
            JavaException(f"{ICEBERG}NotAuthorizedException", "refused", REFUSED),
            "the lake cannot be reached: ConnectException: Connection refused (NotAuthorizedException: refused)",
        ),
    ],
)
def test_an_exception_is_one_line_with_its_cause(exception: JavaException, text: str):
    assert java_error_text(thrown(exception)) == text


def test_usual_causes_are_named_in_words():
    for name in (
        *("HttpHostConnectException", "ConnectTimeoutException", "ConnectionRequestTimeoutException"),
        *("SocketTimeoutException", "NoHttpResponseException", "NoRouteToHostException", "UnknownHostException"),
        "ServiceUnavailableException",
    ):
        said = java_error_text(thrown(JavaException(f"some.{name}", "x")))
        assert said == f"the lake cannot be reached: {name}: x"


@pytest.mark.parametrize(
    ("name", "message", "words"),
    [
        (
            "java.io.FileNotFoundException",
            "/lake/a.avro (Permission denied)",
            (
                "Spark may not read or write a file of the lake, so look at its owner and its rights, and at those of "
                "its folder"
            ),
        ),
        (
            "org.sqlite.SQLiteException",
            "[SQLITE_READONLY] Attempt to write a readonly database (attempt to write a readonly database)",
            (
                "the lake catalog's database is read-only, so look at the owner and the rights of its file and of "
                "its folder"
            ),
        ),
        (
            "org.sqlite.SQLiteException",
            "[SQLITE_CANTOPEN] Unable to open the database file (unable to open database file)",
            (
                "the lake catalog's database cannot be opened, so look whether its folder is there, and at the owner "
                "and the rights of both"
            ),
        ),
        ("org.sqlite.SQLiteException", "[SQLITE_FULL] Insertion failed (database or disk is full)", NO_SPACE),
        ("java.io.IOException", "No space left on device", NO_SPACE),
        ("java.io.FileNotFoundException", "/lake/a.avro (No space left on device)", NO_SPACE),
        (
            "java.io.FileNotFoundException",
            "/lake/a.avro (No such file or directory)",
            (
                "a file of the lake seems to be missing or damaged, so look at it, and restore it from a backup, or "
                "from an older version if its store keeps versions"
            ),
        ),
    ],
)
def test_what_a_person_can_mend_is_told_with_what_to_do(name: str, message: str, words: str):
    error = thrown(JavaException(f"{ICEBERG}RuntimeIOException", "Failed", JavaException(name, message)))
    simple = name.rpartition(".")[2]
    assert java_error_text(error) == f"{words}: {simple}: {message} (RuntimeIOException: Failed)"


def test_causes_that_form_a_circle_come_to_an_end():
    first = JavaException("a.First", "one")
    first.cause = JavaException("a.Second", "two", first)
    assert java_error_text(thrown(first)) == "Second: two (First: one)"
    assert root_message(thrown(first)) == "two"


def test_other_errors_of_the_connection_to_the_jvm():
    assert java_error_text(Py4JNetworkError("Answer is missing\nmore")) == (
        "the connection to Spark's JVM broke: Answer is missing"
    )
    unknown = "An error occurred while calling o1.f. Trace:\npy4j.Py4JException: Method f([]) does not exist\n\tat p.Q"
    assert java_error_text(Py4JError(unknown)) == "a call into Spark's JVM failed: Method f([]) does not exist"
    assert java_error_text(Py4JNetworkError()) == "the connection to Spark's JVM broke: Py4JNetworkError"
    assert java_error_text(PySparkException("[X] no such table\n\tat")) == "PySparkException: [X] no such table"
    assert java_error_text(PySparkException("")) == "PySparkException: no message"
    # What pyspark makes of Java's IllegalArgumentException.
    assert java_error_text(PySparkException(NO_FILE_IO)).startswith(NO_JAR)


def test_the_message_of_the_root_cause():
    assert root_message(thrown(JavaException("E", "outer", JavaException("F", "inner")))) == "inner"
    assert root_message(thrown(JavaException("E", "outer", JavaException("F")))) == ""


@pytest.mark.parametrize(
    ("exception", "conflict"),
    [
        (JavaException(f"{ICEBERG}CommitFailedException", "x"), True),
        (JavaException(f"{ICEBERG}ValidationException", "x"), True),
        (JavaException("java.lang.RuntimeException", "x", JavaException(f"{ICEBERG}ValidationException")), True),
        (JavaException("javax.xml.ValidationException", "x"), False),
        (JavaException(UNKNOWN, "x"), False),
        (JavaException(UNKNOWN, "x", JavaException(f"{ICEBERG}CommitFailedException")), False),
        (JavaException(f"{ICEBERG}ValidationException", "x", JavaException(UNKNOWN)), False),
    ],
)
def test_only_iceberg_s_own_exceptions_are_conflicts(exception: JavaException, conflict: bool):
    assert is_conflict(thrown(exception)) is conflict


def test_what_is_not_an_exception_of_the_jvm_is_no_conflict():
    assert not is_conflict(ValueError("ValidationException"))
    assert not is_conflict(Py4JError(f"{ICEBERG}ValidationException"))
    assert not is_iceberg(Py4JError(f"{ICEBERG}ValidationException"), "ValidationException")


def test_an_exception_of_iceberg_is_known_by_its_name():
    error = thrown(JavaException(f"{ICEBERG}NoSuchTableException"))
    assert is_iceberg(error, "NoSuchTableException")
    assert not is_iceberg(error, "NoSuchViewException")
    assert not is_iceberg(thrown(JavaException("org.other.NoSuchTableException")), "NoSuchTableException")


@pytest.mark.parametrize("error", [thrown(REFUSED), PySparkException("no"), Py4JNetworkError("away")])
def test_an_error_of_the_lake_says_what_could_not_be_done(error: Exception):
    with pytest.raises(FlussTieringError) as raised, lake_errors("open the lake table db.t"):
        raise error
    assert raised.value.code is ErrorCode.STORAGE
    assert raised.value.message == f"{java_error_text(error)}: could not open the lake table db.t"  # type: ignore[arg-type]
    assert raised.value.__suppress_context__, "nobody sees the stack trace of the JVM"


def test_our_own_errors_stay_what_they_are():
    own = FlussTieringError(ErrorCode.LAKE_TABLE_MISMATCH, "renamed")
    with pytest.raises(FlussTieringError) as raised, lake_errors("open it"):
        raise own
    assert raised.value is own
