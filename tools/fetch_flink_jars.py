"""Fetch the jars of Flink into `.cache/flink`, once.

`make bench-flink` and long tests use them. Maven Central has no distribution of Flink, but its libraries run a mini
cluster in the calling process. The jars of Fluss for Flink, its lake plugin and its Hadoop come from the jars of the
Fluss version (`fetch_fluss_jars`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from fetch_fluss_jars import FlussVersion, version_named
from maven import fetch_folder

FLINK_VERSION: Final = "1.20.3"
JARS: Final = Path(__file__).resolve().parent.parent / ".cache" / "flink" / FLINK_VERSION

_FLINK: Final = (
    "flink-clients",
    "flink-connector-base",
    "flink-streaming-java",
    "flink-table-api-java-bridge",
    "flink-table-planner-loader",
    "flink-table-runtime",
)


def class_path(version: FlussVersion) -> list[Path]:
    """Fetch what is missing, and return the class path of a program that uses Flink, Fluss for Flink, and Iceberg.

    Raises:
        SystemExit: A jar is nowhere, or Maven is not installed or failed.
    """
    fetch()
    version.fetch()
    logging = sorted((version.jars / "lib").glob("log4j-*.jar"))
    plugin = sorted((version.jars / "plugins" / "iceberg").glob("*.jar"))
    return [*sorted(JARS.glob("*.jar")), *version.fetch_flink(), *plugin, *logging]


def fetch() -> None:
    """Fetch Flink's own jars with Maven. Their folder gets its name only when it is complete."""
    artifacts = [f"org.apache.flink:{name}:{FLINK_VERSION}" for name in _FLINK]
    fetch_folder(JARS, artifacts, what="the jars of Flink that Fluss's own tiering and readers run with")


if __name__ == "__main__":
    for name in sys.argv[1:] or ["0.9.1"]:
        class_path(version_named(name))
