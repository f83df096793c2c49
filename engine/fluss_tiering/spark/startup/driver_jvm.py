"""The settings of the JVM that an application starts. It plans and commits; no row passes through it.

Spark's own settings are for a JVM that computes. Ours compile quickly and only once, collect garbage in one thread, and
let the heap grow only as far as it is used. On two cores the first commit then comes a quarter earlier, and the JVM
needs 100 MB less memory. Java keeps only 48 MB for code that is compiled once, which a drain that plans, commits and
maintains for hours fills. A tenth of its time would then go into throwing code away and compiling it again.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

ARCHIVE_VARIABLE: Final = "FLUSS_TIERING_CLASS_ARCHIVE"
"""The environment variable that names a class-data archive to start with (`class_archive`)."""
OPTIONS_KEY: Final = "spark.driver.defaultJavaOptions"

_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -Xms64m"
_WARN_ON_STDERR: Final = "-Xlog:disable -Xlog:all=warning:stderr"
"""Java's warnings go to standard error, since standard output is for what a command prints."""
_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_FILES: Final = ("spark-defaults.conf", "spark-env.sh")
_TUNES: Final = re.compile(r"^[^#]*(?:driver\S*java-?options|java_(?:tool_)?options|submit_opts)", re.I | re.M)
logger = logging.getLogger(__name__)


def driver_jvm_conf(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return settings of the driver's JVM; none if `spark-submit` has started it, or if a user tunes it.

    A user tunes it with an environment variable of Java or Spark, in `PYSPARK_SUBMIT_ARGS`, or in Spark's files. With
    two garbage collectors, the user's and ours, a JVM would not start.
    """
    if under_spark_submit(environment):
        # Spark's home may not be on this machine: on YARN, pyspark is a zip file beside the driver.
        return {}
    if any(environment.get(name) for name in _VARIABLES) or _TUNES.search(environment.get("PYSPARK_SUBMIT_ARGS", "")):
        return {}
    files = (spark_conf_folder(environment) / name for name in _FILES)
    if any(_TUNES.search(file.read_text(errors="replace")) for file in files if file.is_file()):
        return {}
    return {OPTIONS_KEY: _OPTIONS + _with_archive(environment.get(ARCHIVE_VARIABLE))}


def under_spark_submit(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether `spark-submit` has started this process, and a JVM for it."""
    return "PYSPARK_GATEWAY_PORT" in environment


def spark_conf_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of Spark's configuration files, which need not exist."""
    return Path(environment.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))


def _with_archive(file: str | None) -> str:
    if not file:
        return ""
    if not Path(file).is_file():
        logger.warning(
            "%s=%s is not a file: Spark starts without it; make it with `fluss-tiering class-archive`",
            ARCHIVE_VARIABLE,
            file,
        )
        return ""
    return f' {_WARN_ON_STDERR} "-XX:SharedArchiveFile={file}"'
