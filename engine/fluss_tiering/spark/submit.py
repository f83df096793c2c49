"""What a `spark-submit` of the tiering application is made of: its file, arguments, Spark settings.

Imports neither pyspark nor pyarrow: an Airflow task and the command line build a submit without loading either.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fluss_tiering.spark.options import OPTIONS, TierOptions

APPLICATION: Final = Path(__file__).with_name("application.py")
"""The file to hand to `spark-submit`."""

PACKAGES: Final = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.xerial:sqlite-jdbc:3.54.1.0")
"""What Spark needs beside itself: Iceberg, and the driver of the default catalog's SQLite file."""

JARS_VARIABLE: Final = "FLUSS_TIERING_SPARK_JARS"
"""Environment variable: comma-separated local jars instead of `PACKAGES`, for hosts that need not resolve them."""


def application_arguments(options: TierOptions) -> list[str]:
    """Return the application's command line, which `options.parse_arguments` reads as the same options.

    Spark's master is not part of it: `spark-submit` is told of it.
    """
    values: list[str] = []
    flags: list[str] = []
    for option in OPTIONS.values():
        flag, value = option.about.flag, getattr(options, option.name)
        if not option.about.in_application or (value == option.default and not option.about.always_passed_on):
            continue
        if option.is_flag:
            flags.append(flag)
        else:
            values += [flag, str(value)]
    return [*values, *flags, *(str(path) for path in options.tables)]


def spark_conf(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Spark settings that the application relies on; what a user sets in Spark itself wins where it is set later."""
    conf = {
        # One table's long stage must not hold up the others of the application.
        "spark.scheduler.mode": "FAIR",
        # Workers otherwise take the first python3 on PATH, which need not have this package.
        "spark.pyspark.python": environment.get("PYSPARK_PYTHON", sys.executable),
        "spark.ui.showConsoleProgress": "false",
    }
    if jars := environment.get(JARS_VARIABLE):
        return {**conf, "spark.jars": jars}
    return {**conf, "spark.jars.packages": ",".join(PACKAGES)}


def conf_arguments(conf: Mapping[str, str]) -> list[str]:
    """Settings as arguments of `spark-submit`, `spark-sql` and `pyspark`."""
    return [text for key, value in conf.items() for text in ("--conf", f"{key}={value}")]
