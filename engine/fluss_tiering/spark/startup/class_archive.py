"""A class-data archive: Spark's classes as a JVM has them in memory, with which another one starts in half the time.

Java makes one of what a JVM has loaded when it ends (`-XX:ArchiveClassesAtExit`), and maps it at the start of a JVM
with the same class path (`-XX:SharedArchiveFile`); where that is another one, or a newer Java, it goes without.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.startup.driver_jvm import ARCHIVE_VARIABLE, OPTIONS_KEY, driver_jvm_conf, spark_conf_folder
from fluss_tiering.spark.startup.session import own_session
from fluss_tiering.spark.startup.warm_up import warm_up

_MASTER: Final = "local[2]"
_END_SECONDS: Final = 300.0


def make_class_archive(file: Path) -> int:
    """Starts Spark, does all that a first round waits for, and keeps what was loaded for it; bytes of the archive.

    Args:
        file: is there once it is whole; one that was there is replaced.

    Raises:
        FlussTieringError: INVALID_REQUEST where Java makes no archive with the settings of here, or the file has no
            folder; UNAVAILABLE when Spark does not start.
    """
    if not file.parent.is_dir():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"{file.parent} is no folder: expected one that is there, for {file.name}"
        )
    settings = spark_conf_folder()
    if settings.is_dir() and any(settings.iterdir()):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{settings} has files: Java makes no archive with a folder on the class path that is not empty; name an "
            "empty one as SPARK_CONF_DIR, here and for the applications",
        )
    conf = driver_jvm_conf({**os.environ, ARCHIVE_VARIABLE: ""})
    if not conf:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            "the environment has options for the driver's JVM (JDK_JAVA_OPTIONS or its like): expected none, so that "
            "the archive is made for applications as they start by themselves; unset them, here and for the "
            "applications",
        )
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}-") as folder:
        made = Path(folder) / "archive"
        options = f'{conf[OPTIONS_KEY]} -Xlog:disable "-XX:ArchiveClassesAtExit={made}"'
        with own_session(_MASTER, {OPTIONS_KEY: options}) as spark:
            warm_up(spark)
        _end_jvm()
        if not made.is_file():
            raise FlussTieringError(
                ErrorCode.UNKNOWN, "Java ended without an archive; its own lines above may say why: expected Java 17"
            )
        made.replace(file)
    return file.stat().st_size


def _end_jvm() -> None:
    """Ends what Spark leaves running until this process ends, and waits for it."""
    gateway = SparkContext._gateway  # noqa: SLF001
    # A later session of this process would use what has ended.
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_END_SECONDS)
