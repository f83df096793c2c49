"""What a `spark-submit` of the tiering application is made of: its file, arguments, Spark settings.

Imports neither pyspark nor pyarrow: an Airflow task and the command line build a submit without loading either.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fluss_tiering.model.lease import DEFAULT_LEASE_DURATION_MS
from fluss_tiering.model.table import TablePath

APPLICATION: Final = Path(__file__).with_name("application.py")
"""The file to hand to `spark-submit`."""

PACKAGES: Final = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.xerial:sqlite-jdbc:3.54.1.0")
"""What Spark needs beside itself: Iceberg, and the driver of the default catalog's SQLite file."""

JARS_VARIABLE: Final = "FLUSS_TIERING_SPARK_JARS"
"""Environment variable: comma-separated local jars instead of `PACKAGES`, for hosts that need not resolve them."""


def application_arguments(
    *,
    server: str,
    tables: Sequence[TablePath],
    lease_id: str | None = None,
    attempt_token: int | None = None,
    lease_duration_ms: int = DEFAULT_LEASE_DURATION_MS,
    claim_timeout_s: float | None = None,
    max_round_bytes: int | None = None,
    max_round_duration: str | None = None,
    table_concurrency: int | None = None,
    outcome_in_status: bool = False,
    drain: bool = False,
    follow: bool = False,
    time_budget: str | None = None,
) -> list[str]:
    """The application's command line; what is None keeps the application's own default."""
    options: dict[str, object | None] = {
        "--server": server,
        "--lease-id": lease_id,
        "--attempt-token": attempt_token,
        "--lease-duration-ms": lease_duration_ms,
        "--claim-timeout": claim_timeout_s,
        "--max-round-bytes": max_round_bytes,
        "--max-round-duration": max_round_duration,
        "--table-concurrency": table_concurrency,
        "--time-budget": time_budget,
    }
    arguments = [text for name, value in options.items() if value is not None for text in (name, str(value))]
    flags = {"--outcome-in-status": outcome_in_status, "--drain": drain, "--follow": follow}
    arguments += [flag for flag, given in flags.items() if given]
    return [*arguments, *(str(path) for path in tables)]


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
