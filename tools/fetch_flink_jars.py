"""Fetch the jars of Flink, and those of Fluss for Flink, into `.cache/flink`, once.

`make bench-flink` and long tests use them. Maven Central has no distribution of Flink, but its libraries run a mini
cluster in the calling process. The lake plugin of Fluss and its Hadoop come from the jars of the Fluss cluster
(`fetch_fluss_jars`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import fetch_fluss_jars
from fetch_fluss_jars import FLUSS_VERSION, fetched, get_of, run_maven

FLINK_VERSION: Final = "1.20.3"
JARS: Final = Path(__file__).resolve().parent.parent / ".cache" / "flink" / f"{FLINK_VERSION}-fluss-{FLUSS_VERSION}"

_FLINK: Final = (
    "flink-clients",
    "flink-connector-base",
    "flink-streaming-java",
    "flink-table-api-java-bridge",
    "flink-table-planner-loader",
    "flink-table-runtime",
)
_FLUSS: Final = (
    f"org.apache.fluss:fluss-flink-1.20:{FLUSS_VERSION}",
    f"org.apache.fluss:fluss-flink-tiering:{FLUSS_VERSION}",
)
_DEPENDENCY: Final = (
    "<dependency><groupId>org.apache.flink</groupId><artifactId>{name}</artifactId>"
    f"<version>{FLINK_VERSION}</version></dependency>"
)
_COPY: Final = (
    "<execution><id>copy</id><phase>validate</phase><goals><goal>copy-dependencies</goal></goals>"
    "<configuration><outputDirectory>{folder}</outputDirectory></configuration></execution>"
)


def class_path() -> list[Path]:
    """Return the class path of a program that uses Flink, Fluss's connector and tiering service, and Iceberg."""
    logging = sorted(fetch_fluss_jars.LIB.glob("log4j-*.jar"))
    plugin = sorted((fetch_fluss_jars.PLUGINS / "iceberg").glob("*.jar"))
    return [*sorted(JARS.glob("*.jar")), *plugin, *logging]


def fetch() -> None:
    """Fetch the jars with Maven. Their folder gets its name only when it is complete."""
    fetch_fluss_jars.fetch()
    if JARS.exists():
        return
    JARS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JARS.parent) as scratch:
        folder = Path(scratch) / "jars"
        repository = run_maven(
            Path(scratch),
            _COPY.format(folder=folder) + "".join(map(get_of, _FLUSS)),
            dependencies="".join(_DEPENDENCY.format(name=name) for name in _FLINK),
            what="the jars of Flink that Fluss's own tiering and readers run with",
        )
        for artifact in _FLUSS:
            jar = fetched(repository, artifact)
            jar.replace(folder / jar.name)
        folder.replace(JARS)


if __name__ == "__main__":
    fetch()
