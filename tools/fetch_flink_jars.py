"""Fetch the jars of Flink into `.cache/flink`, once.

`make bench-flink` and long tests use them. Maven Central has no distribution of Flink, but its libraries run a mini
cluster in the calling process. The jars of Fluss for Flink, its lake plugin and its Hadoop come from the jars of the
Fluss version (`fetch_fluss_jars`).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from fetch_fluss_jars import FlussVersion, run_maven, version_named

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
_DEPENDENCY: Final = (
    "<dependency><groupId>org.apache.flink</groupId><artifactId>{name}</artifactId>"
    f"<version>{FLINK_VERSION}</version></dependency>"
)
_COPY: Final = (
    "<execution><id>copy</id><phase>validate</phase><goals><goal>copy-dependencies</goal></goals>"
    "<configuration><outputDirectory>{folder}</outputDirectory></configuration></execution>"
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
    if JARS.exists():
        return
    JARS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JARS.parent) as scratch:
        folder = Path(scratch) / "jars"
        run_maven(
            Path(scratch),
            _COPY.format(folder=folder),
            dependencies="".join(_DEPENDENCY.format(name=name) for name in _FLINK),
            what="the jars of Flink that Fluss's own tiering and readers run with",
        )
        folder.replace(JARS)


if __name__ == "__main__":
    for name in sys.argv[1:] or ["0.9.1"]:
        class_path(version_named(name))
