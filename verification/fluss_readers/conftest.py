"""Fluss's own readers as programs, compiled when the tests run."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import fetch_flink_jars
import java_programs
from engine_support import ServerThread
from fetch_fluss_jars import VERSIONS, FlussVersion
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath

_SOURCES = Path(__file__).parent / "java"
_TIMEOUT_S = 400
_SHOWN_CHARACTERS = 8000


class ReaderFailedError(AssertionError):
    """A reader refused what it was to read; with the end of what it said."""


@dataclass(frozen=True)
class Read:
    """What a reader printed: a line of its own, and for each row what it says of it, then the row's values."""

    head: str
    rows: Sequence[tuple[list, list]]

    @property
    def values(self) -> Counter[str]:
        return Counter(json.dumps(values) for _, values in self.rows)

    @property
    def live_values(self) -> Counter[str]:
        """What is left of rows that come with their kinds, as Flink writes these."""
        live: Counter[str] = Counter()
        for (kind,), values in self.rows:
            live[json.dumps(values)] += 1 if kind in {"+I", "+U"} else -1
        return Counter({row: count for row, count in live.items() if count})


class Readers:
    """Runs the programs of `java/`."""

    def __init__(self, folder: Path, version: FlussVersion) -> None:
        self._class_path = [folder, *fetch_flink_jars.class_path(version)]
        java_programs.compile_into(folder, sorted(_SOURCES.glob("*.java")), self._class_path)

    def read(self, main: str, *arguments: str) -> Read:
        """Raises ReaderFailedError when the program fails."""
        command = java_programs.java_command(main, arguments, self._class_path, ["-Xmx512m", "-XX:+UseSerialGC"])
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if ended.returncode:
            raise ReaderFailedError(f"{main} ended with {ended.returncode}:\n{ended.stderr[-_SHOWN_CHARACTERS:]}")
        head, *lines = (line for line in ended.stdout.splitlines() if line.startswith(("snapshot ", "plan ", "row ")))
        return Read(head.partition(" ")[2], [_row(line) for line in lines])

    def lake_rows(self, cluster, path) -> Read:
        """The lake snapshot of a table by Fluss's `IcebergLakeSource`; a row comes with where it lay.

        That is bucket, offset, time and the partition's values; before all rows comes for each bucket its partition's
        id or None, its number, and the offset at which the log goes on.
        """
        settings = [f"{key}={value}" for key, value in cluster.lake_catalog.items()]
        return self.read("LakeRows", cluster.bootstrap, path.database, path.table, *settings)

    def query(self, cluster, sql: str) -> Read:
        """What Flink SQL answers in batch mode, the cluster being the catalog `fluss`; a row comes with its kind."""
        return self.read("UnionRead", cluster.bootstrap, sql)

    def follow(self, cluster, sql: str, count: int) -> Read:
        """The first `count` changes that Flink SQL answers in streaming mode."""
        return self.read("UnionRead", cluster.bootstrap, sql, str(count))


@pytest.fixture(scope="session")
def readers(fluss_version, tmp_path_factory) -> Readers:
    return Readers(tmp_path_factory.mktemp("java"), VERSIONS[fluss_version])


@dataclass(frozen=True)
class LakeCatalog:
    """The catalog of a cluster's lake, and the settings of the cluster's servers for it."""

    catalog: dict[str, str]

    @property
    def settings(self) -> dict[str, str]:
        return {f"datalake.iceberg.{key}": value for key, value in self.catalog.items()}


@pytest.fixture
def lake_of_files(tmp_path) -> LakeCatalog:
    """A catalog of files: the SQLite one of other clusters is locked where Flink's tasks open it."""
    return LakeCatalog({"type": "hadoop", "warehouse": f"file://{tmp_path}/warehouse"})


@pytest.fixture
def server(fluss_cluster, tmp_path):
    with ServerThread(tmp_path / "server", fluss=fluss_cluster.bootstrap, metrics_enabled=False) as running:
        yield running


@pytest.fixture
def client(server):
    with TieringClient(server.target) as connected:
        yield connected


@pytest.fixture
def tier(server, spark):
    """Runs a round of ours."""
    from fluss_tiering.spark import application  # noqa: PLC0415 - Spark, for tests of our rounds only
    from fluss_tiering.spark.options import TierOptions  # noqa: PLC0415 - see above

    def run(path: TablePath) -> None:
        (result,) = application.run(TierOptions(server=server.target, tables=(path,)), spark)
        assert not result.failed, result.error

    return run


def _row(line: str) -> tuple[list, list]:
    decoder = json.JSONDecoder()
    about, end = decoder.raw_decode(line, len("row "))
    return about, json.loads(line[end:])
