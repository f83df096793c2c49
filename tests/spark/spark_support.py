"""Helpers for tests of rounds: a server with a lake, tables to write to, and rows to read back with Spark SQL."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from engine_support import SCHEMA, ServerProcess, descriptor
from fluss_tiering.cli.main import app
from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath, WriteKind
from fluss_tiering.model.tiering import TieringRound
from fluss_tiering.spark import application
from fluss_tiering.spark.audit.report import TableAudit
from fluss_tiering.spark.audit.verify import verify_table
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.round.progress import Progress
from fluss_tiering.spark.round.result import PieceResult, TableResult
from fluss_tiering.spark.round.services import RoundServices

_NUMBERS = itertools.count(1)

Rows = Mapping[int, str | None]

LEGACY = {"table.datalake.layout": "legacy"}
"""The option of a table whose lake table has a bucket, an offset and a time beside each row."""


def lake_catalog(folder: Path) -> dict[str, str]:
    """Return the properties of a catalog whose name no other test uses in its session."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "type": "jdbc",
        "name": f"rounds_{next(_NUMBERS)}",
        "uri": f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=30000",
        "jdbc.schema-version": "V1",
        "warehouse": f"file:{folder}/warehouse",
    }


def lake_server(folder: Path, **environment: str) -> ServerProcess:
    """Return a server with a lake of its own."""
    catalog = json.dumps(lake_catalog(folder / "lake"))
    return ServerProcess(folder, FLUSS_TIERING_LAKE_CATALOG=catalog, **environment)


def driver_environment() -> dict[str, str]:
    """Return the environment of a short-lived driver, without Spark's web page."""
    return {**os.environ, "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}


def submit_environment() -> dict[str, str]:
    """Return the environment of a short-lived driver of Spark's scripts, without an optimising compiler in its JVM."""
    return {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@dataclass(frozen=True)
class Tiering:
    """A server, its lake and a Spark session."""

    client: TieringClient
    spark: SparkSession
    target: str

    def table(self, *, primary_key: bool = True, num_buckets: int = 1, **options: Any) -> TableInfo:
        """Create a table with a key `id` and a `name`."""
        path = TablePath("db", f"t{next(_NUMBERS)}")
        return self.client.create_table(path, descriptor(primary_key=primary_key, num_buckets=num_buckets, **options))

    def write(self, table: TableInfo, rows: Rows, kind: WriteKind | None = None) -> None:
        if kind is None:
            kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
        batch = pa.RecordBatch.from_pydict({"id": list(rows), "name": list(rows.values())}, schema=SCHEMA)
        for _ in self.client.write_rows(table.path, kind, [batch]):
            pass

    def delete(self, table: TableInfo, keys: Iterable[int]) -> None:
        self.write(table, dict.fromkeys(keys), WriteKind.DELETE)

    def tier_all(self, *tables: TableInfo, **options: Any) -> list[TableResult]:
        paths = tuple(table.path for table in tables)
        return application.run(TierOptions(server=self.target, tables=paths, **options), self.spark, Progress())

    def tier(self, table: TableInfo, **options: Any) -> TableResult:
        """Run a round that must not fail."""
        (result,) = self.tier_all(table, **options)
        assert result.error is None, result.error
        return result

    def round(self, table: TableInfo, rows: Rows, **options: Any) -> TableResult:
        """Write rows, and run a round that must not fail."""
        self.write(table, rows)
        return self.tier(table, **options)

    def tiered(self, rows: Rows, **options: Any) -> TableInfo:
        """Create a table with rows that a round has tiered."""
        table = self.table(**options)
        self.round(table, rows)
        return table

    def fail(self, table: TableInfo, **options: Any) -> str:
        """Run a round that must fail, and let the table be claimed again at once."""
        (result,) = self.tier_all(table, **options)
        assert result.error is not None
        self.client.resume_tables([table.path])
        return result.error

    def name(self, table: TableInfo) -> str:
        """Return the lake table's name in Spark SQL, also in a session that has not tiered it."""
        properties = dict(table.lake_catalog_properties)
        catalog = properties.pop("name")
        if self.spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
            self.spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
            for key, value in {**properties, "cache-enabled": "false"}.items():
                self.spark.conf.set(f"spark.sql.catalog.{catalog}.{key}", value)
        return f"{catalog}.{table.path}"

    def lake(self, table: TableInfo) -> list[Row]:
        """Return the lake's rows, in the order of their keys."""
        rows = self.spark.table(self.name(table))
        return rows.orderBy(*(name for name in ("id", "__offset") if name in rows.columns)).collect()

    def lake_table(self, table: TableInfo) -> IcebergTable:
        """Return the lake table as rounds open it. It must be there."""
        found = IcebergCatalogs(self.spark).find_table(table)
        assert found is not None
        return found

    def audit(self, table: TableInfo, **options: Any) -> TableAudit:
        return verify_table(self.client, self.spark, table, target=self.target, **options)

    def equal(self, table: TableInfo) -> bool:
        """Return whether an audit finds the rows of the table in the lake."""
        return self.audit(table).equal

    def lake_rows(self, table: TableInfo) -> list[tuple[int, str | None]]:
        """Return the lake's rows without Fluss's columns."""
        return sorted((row.id, row.name) for row in self.lake(table))

    def snapshots(self, table: TableInfo) -> list[Row]:
        return self.spark.sql(f"SELECT * FROM {self.name(table)}.snapshots ORDER BY committed_at").collect()

    def files(self, table: TableInfo) -> list[str]:
        """Return the files of the lake's present snapshot. A file that occurs twice is returned twice."""
        rows = self.spark.sql(f"SELECT file_path FROM {self.name(table)}.files").collect()
        return sorted(Path(urlparse(row.file_path).path).name for row in rows)

    def files_on_disk(self, table: TableInfo) -> list[str]:
        return sorted(path.name for path in data_folder(table).rglob("*.parquet"))

    def log_ends(self, table: TableInfo) -> dict[TableBucket, int]:
        return {each.bucket: each.log_end_offset for each in self.client.list_buckets([table.path])[table.path]}

    def rounds(self, table: TableInfo) -> list[TieringRound]:
        """Return the rounds of a table, the newest first."""
        return self.client.list_tiering_rounds(table.path)


def replace_stage(monkeypatch: pytest.MonkeyPatch, run_stage: Callable[..., list[PieceResult]]) -> None:
    """Let the rounds of applications that begin from now on run their Spark stages by this function."""

    def services(**given: Any) -> RoundServices:
        return RoundServices(**{**given, "run_stage": run_stage})

    monkeypatch.setattr(application, "RoundServices", services)


@contextmanager
def served(bootstrap: str, folder: Path, spark: SparkSession, **environment: str) -> Iterator[Tiering]:
    """Start a tiering server in front of a Fluss cluster, which configures the lake."""
    server = ServerProcess(folder, FLUSS_TIERING_FLUSS=bootstrap, **environment).start()
    with TieringClient(server.target) as client:
        yield Tiering(client, spark, server.target)
    assert server.stop() == 0


def data_folder(table: TableInfo) -> Path:
    """Return the folder of the data files of a table's lake table."""
    return Path(urlparse(table.lake_catalog_properties["warehouse"]).path, *str(table.path).split("."), "data")


def named(keys: Iterable[int], name: str) -> dict[int, str]:
    """Return a row for each key."""
    return {key: f"{name} {key}" for key in keys}


def in_background(tiering: Tiering, *tables: TableInfo, **options: Any) -> Future[list[TableResult]]:
    """Run the application in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(tiering.tier_all, *tables, **options)
    finally:
        pool.shutdown(wait=False)


def command(tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that runs a command in the test's Spark session and returns its exit code."""
    monkeypatch.setattr("fluss_tiering.spark.startup.session.own_session", lambda _master: nullcontext(tiering.spark))

    def run(*arguments: str) -> int:
        with pytest.raises(SystemExit) as exited:
            app(list(arguments))
        return int(exited.value.code or 0)

    return run
