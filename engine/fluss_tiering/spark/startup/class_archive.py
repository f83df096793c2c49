"""A class-data archive: Spark's loaded classes in a file, with which a JVM starts in half the time.

When a JVM ends, Java can write the classes that it has loaded (`-XX:ArchiveClassesAtExit`). A JVM with the same class
path maps this file when it starts (`-XX:SharedArchiveFile`). With another class path, or a newer Java, the JVM starts
without it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.startup.jvm import ARCHIVE_VARIABLE, OPTIONS_KEY, driver_jvm_conf, spark_conf_folder
from fluss_tiering.spark.startup.session import own_session
from fluss_tiering.spark.startup.workers import warm_up

_MASTER: Final = "local[2]"
_END_SECONDS: Final = 300.0


def make_class_archive(file: Path, starting: Callable[[], object] = lambda: None) -> int:
    """Start Spark, load what a first round needs, write the loaded classes to a file, and return its size in bytes.

    Args:
        file: The archive. It is replaced when the new archive is complete.
        starting: Called before Spark starts, if nothing speaks against it.

    Raises:
        FlussTieringError: INVALID_REQUEST if the settings of this host keep Java from making an archive, or if the
            file's folder does not exist or takes no file; UNAVAILABLE if Spark does not start; UNKNOWN if Java makes
            no archive.
    """
    _check_file(file)
    settings = spark_conf_folder()
    if settings.is_dir() and any(settings.iterdir()):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{settings} has files: Java makes no archive if a folder on the class path has any; set SPARK_CONF_DIR "
            "to an empty folder, here and for the applications",
        )
    conf = driver_jvm_conf({**os.environ, ARCHIVE_VARIABLE: ""})
    if not conf:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            "the environment has options for the driver's JVM (such as JDK_JAVA_OPTIONS): expected none, since the "
            "archive only serves applications with our own options; unset them, here and for the applications",
        )
    starting()
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}-") as folder:
        made = Path(folder) / "archive"
        options = f'{conf[OPTIONS_KEY]} -Xlog:disable "-XX:ArchiveClassesAtExit={made}"'
        with own_session(_MASTER, {OPTIONS_KEY: options}) as spark:
            warm_up(spark)
        _end_jvm()
        if not made.is_file():
            raise FlussTieringError(
                ErrorCode.UNKNOWN,
                "Java ended without an archive: expected Java 17 and 300 MB of free space beside the file; Java's own "
                "messages are shown by `fluss-tiering --verbose class-archive`",
            )
        made.replace(file)
    return file.stat().st_size


def _check_file(file: Path) -> None:
    """Refuse a file whose folder does not exist or takes no file. The rights of a folder alone do not say so."""
    if not file.parent.is_dir():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"{file.parent} is not a folder: expected an existing folder for {file.name}"
        )
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            return
    except OSError as error:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"cannot write {file}: {error.strerror}; expected a folder into which this user may write",
        ) from None


def _end_jvm() -> None:
    """End the JVM, which Spark leaves running until this process ends, and wait for its end."""
    gateway = SparkContext._gateway  # noqa: SLF001
    # A later session of this process would otherwise use the JVM that has ended.
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_END_SECONDS)
