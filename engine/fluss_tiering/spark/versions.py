"""The versions of Spark that are supported, and the packages that each of them needs.

This module imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

ICEBERG: Final = {
    "3.5": "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
"""The newest Iceberg runtime of each version of Spark that is supported."""

_SQLITE: Final = "org.xerial:sqlite-jdbc:3.54.1.0"
"""The JDBC driver for the SQLite file of the default catalog."""
_NEWEST: Final = "4.1"
_PYTHON_TIMEOUT_S: Final = 60


def spark_version(pyspark: str | None = None) -> str:
    """Return the version of Spark, as "4.1": the newest that is supported if pyspark is not installed.

    Args:
        pyspark: The version of pyspark; None for the one that is installed.
    """
    installed = pyspark or _installed("pyspark")
    return _NEWEST if installed is None else _minor(installed)


def spark_version_of(python: str) -> str | None:
    """Return the version of Spark, as "4.1", of the pyspark that another Python has; None if it has none."""
    command = [python, "-c", "import importlib.metadata as each; print(each.version('pyspark'))"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PYTHON_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return _minor(answer.stdout.strip())


def packages(version: str | None = None) -> tuple[str, ...]:
    """Return the Maven packages that a version of Spark needs: Iceberg, and the driver of the default catalog.

    Args:
        version: The version of Spark, as "4.1"; None for that of the pyspark that is installed.

    Raises:
        FlussTieringError: INVALID_REQUEST if the version is not supported.
    """
    version = version or spark_version()
    if version not in ICEBERG:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"Spark {version} is not supported, since it has no Iceberg runtime that fits: expected "
            f"{', '.join(ICEBERG)}; install for example `pyspark=={_NEWEST}.*`",
        )
    return ICEBERG[version], _SQLITE


def check_client() -> None:
    """Check that pyspark and pyspark-client, which own the same folder, are of one minor version.

    Patch versions may differ: not every one of pyspark has a pyspark-client, and an installer takes the newest of each.

    Raises:
        FlussTieringError: INVALID_REQUEST if they are not: pyspark then fails in odd ways.
    """
    spark, client = _installed("pyspark"), _installed("pyspark-client")
    if spark is not None and client is not None and _minor(spark) != _minor(client):
        wanted = _minor(spark)
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"pyspark {spark} and pyspark-client {client} are installed, and overwrite each other's files: expected "
            f"both of one version; run `pip install --force-reinstall --no-deps 'pyspark-client=={wanted}.*' "
            f"'pyspark=={wanted}.*'`",
        )


def _minor(version: str) -> str:
    """Return the first two parts of a version: "4.1" of "4.1.3"."""
    return ".".join(version.split(".")[:2])


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
