"""The Spark session that an application or a command starts for itself, and what Spark masks of its settings.

The properties of the lake catalog are settings of the session while SQL runs, for example that of `verify`. Spark shows
with each query which settings it had. By default it masks only some of those that hold secrets.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fluss_tiering.client.security import hide_token
from fluss_tiering.lake.iceberg.java import JAVA_ERRORS, java_error_text
from fluss_tiering.model.error_text import SECRET_NAMES
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.ended import SparkEndedError, got_no_answer, tells_end_of_spark
from fluss_tiering.spark.startup.checks import check_master, require_own_jvm
from fluss_tiering.spark.startup.interrupts import check_interrupt, interrupted_by_sigint, quieten_py4j
from fluss_tiering.spark.startup.jvm import ARCHIVE_VARIABLE, JvmProcess, own_jvm, under_spark_submit
from fluss_tiering.spark.startup.workers import local_workers_conf
from fluss_tiering.spark.submit import spark_conf
from fluss_tiering.spark.versions import check_client
from fluss_tiering.storage.fluss.access import hide_password

logger = logging.getLogger(__name__)

_DEATH_S: Final = 1.0
"""So long the end of a JVM that gives no answer any more is waited for: its connections end before its process does."""
REDACTION: Final = "spark.redaction.regex"
"""Spark's setting: a value is masked if this is found in its name or in itself."""
SECRETS: Final = f"(?i){SECRET_NAMES}|://[^/@ ]*:[^/@ ]+@"
"""Spark's own pattern, and what Iceberg's catalogs and stores call their secrets, and passwords in URLs."""


@contextmanager
def own_session(master: str, jvm: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start a Spark session, and stop it when the block ends.

    Args:
        master: Spark's master. Under `spark-submit` the master of its own command line is used.
        jvm: Settings of the session's JVM, if this process starts it.

    Raises:
        FlussTieringError: UNAVAILABLE if Spark does not start; INVALID_REQUEST if the master is no address, if
            it is one of Spark Connect, or if this version of Spark is not supported.
        SparkEndedError: if the block fails because the session's JVM was killed or has failed.
    """
    # Spark gives its environment to its workers.
    hide_token()
    hide_password()
    require_own_jvm(master, os.environ)
    builder = SparkSession.builder.appName("fluss-tiering").config("spark.api.mode", "classic")
    if not under_spark_submit():
        check_master(master)
        check_client()
        # This is not spark-submit, so this process starts the session's JVM. Spark then takes the workers' Python from
        # the environment only.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(master).config(map={**spark_conf(), **(jvm or {}), **redaction_conf(None, os.environ)})
    else:
        present = _conf_of_spark_submit()
        master = present.get("spark.master") or master
        builder = builder.config(map=redaction_conf(present.get(REDACTION), os.environ))
    python = os.environ.get("PYSPARK_PYTHON", "python3")
    builder = builder.config(map=local_workers_conf(master, python))
    quieten_py4j()
    with own_jvm() as process, interrupted_by_sigint():
        try:
            spark = builder.getOrCreate()
        except Exception as error:
            # An interrupt in the midst of a call leaves its answer on the connection. pyspark then takes that for the
            # answer to the call with which it stops what it has started, which fails in any way.
            check_interrupt()
            if isinstance(error, (*JAVA_ERRORS, ConnectionError)):
                raise _not_started(master, error, process.last_words()) from None
            raise
    _quieten_accumulators(spark)
    try:
        try:
            yield spark
        finally:
            check_interrupt()
    except Exception as error:
        if tells_end_of_spark(error) or process.died(_DEATH_S if got_no_answer(error) else 0):
            raise SparkEndedError(process.last_words()) from error
        raise
    else:
        if process.died():
            # Rounds that ended with it are results, and no exception.
            logger.error("Spark's JVM has ended: %s", process.last_words() or "it left no message")
    finally:
        if process.died():
            # pyspark would ask the JVM that is gone.
            process.end()
        else:
            _stop(spark, process)


def _conf_of_spark_submit() -> SparkConf:
    """Return the settings of the JVM that has started this process. pyspark sees them once it talks to that JVM."""
    try:
        SparkContext._ensure_initialized()  # noqa: SLF001
        return SparkConf()
    except (*JAVA_ERRORS, OSError) as error:
        raise FlussTieringError(
            ErrorCode.UNAVAILABLE, f"the JVM of spark-submit does not answer ({error}): start the application again"
        ) from None


def _stop(spark: SparkSession, process: JvmProcess) -> None:
    """Stop the session, or end its JVM if it cannot be stopped.

    Who ends a service signals all of its processes, so the JVM may be ending by itself. After an interrupt in the midst
    of a call, its answer is still on the connection, and the next call fails in any way.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that pyspark could not stop the JVM
            spark.stop()
    except Exception as error:  # noqa: BLE001 - see above
        logger.debug("the session could not be stopped, so its JVM is ended: %r", error)
        process.end()


def _quieten_accumulators(spark: SparkSession) -> None:
    """Let pyspark's server for accumulators, which nothing here uses, end without a traceback if the JVM is killed."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _not_started(master: str, error: Py4JError | PySparkException | ConnectionError, words: str) -> FlussTieringError:
    why = str(error) if isinstance(error, ConnectionError) else java_error_text(error)
    archive = os.environ.get(ARCHIVE_VARIABLE)
    damaged = f", and that {archive} is not damaged" if archive and Path(archive).is_file() else ""
    return FlussTieringError(
        ErrorCode.UNAVAILABLE,
        f"Spark does not start with the master {master!r} ({why}){f': {words}' if words else ''}. "
        "Check that Java 17 or 21 is installed, and that the master is right and can be reached"
        f"{damaged}; with --verbose Spark's own messages are shown",
    )


def redaction_conf(present: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the setting, unless a user has made it.

    Args:
        present: Its value under `spark-submit`; None if it has none, or if Spark has not been started yet.
        environment: The environment of the process.
    """
    if present is not None or REDACTION in environment.get("PYSPARK_SUBMIT_ARGS", ""):
        return {}
    return {REDACTION: SECRETS}
