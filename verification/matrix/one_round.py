"""The steps of one combination, in its own environment. It prints what came of each step as JSON.

The rows of the lake are compared with those of a plain dictionary, which had the same changes.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from fluss_tiering import TablePath, TieringClient, WriteKind
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo
from fluss_tiering.spark import application
from fluss_tiering.spark.audit.clean import clean_table
from fluss_tiering.spark.audit.verify import verify_table
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.spark.maintenance.expire import expire_snapshots
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.startup.catalog_conf import session_conf
from fluss_tiering.spark.startup.jvm import driver_jvm_conf
from fluss_tiering.spark.startup.session import own_session
from fluss_tiering.spark.submit import JARS_VARIABLE

_START_S = 120.0
_CALL_S = 300.0
"""A new environment compiles its kernels in the first calls."""
_COLUMNS = (Column("id", DataType.parse("BIGINT NOT NULL")), Column("name", DataType.parse("STRING")))
_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


@contextmanager
def server(folder: Path, *settings: str) -> Iterator[str]:
    """Run a tiering server with some settings for the block, and yield its address."""
    log = folder / "server.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("fluss-tiering"), "serve", "-d", folder / "data", "--port", "0", *settings],
            stdout=file,
            stderr=file,
        )
    try:
        deadline = time.monotonic() + _START_S
        while not (ready := re.search(r'"tiering server ready".* port=(\d+)', log.read_text())):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        yield f"127.0.0.1:{ready[1]}"
    finally:
        process.terminate()
        process.wait()


class Changes(ABC):
    """A table and what it holds. Who tiers it and who reads its lake table is left to others.

    Args:
        client: The client of the tiering server.
        target: The address of the tiering server.
        name: The name of the table.
        options: Options of the table, which has `table.datalake.enabled`.
    """

    def __init__(
        self,
        client: TieringClient,
        target: str,
        *,
        name: str = "orders",
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._client, self._target = client, target
        self._rows: dict[int, str | None] = {}
        descriptor = self._descriptor({"table.datalake.enabled": "true", **options})
        self._table: TableInfo = client.create_table(TablePath("shop", name), descriptor)

    def rounds(self) -> None:
        """Tier a first time, and again after upserts and deletes."""
        self._write({key: f"name {key}" for key in range(1000)})
        self._tier()
        self._write({key: None if key % 2 else "changed" for key in range(500, 1500)})
        deleted = range(100)
        self._send(WriteKind.DELETE, dict.fromkeys(deleted))
        self._rows = {key: value for key, value in self._rows.items() if key not in deleted}
        self._tier()
        self._compare()

    def _descriptor(self, options: dict[str, str]) -> TableDescriptor:
        return TableDescriptor(_COLUMNS, ("id",), ("id",), 2, options)

    def _write(self, rows: dict[int, str | None]) -> None:
        self._send(WriteKind.UPSERT, rows)
        self._rows.update(rows)

    def _send(self, kind: WriteKind, rows: dict[int, str | None]) -> None:
        batch = pa.RecordBatch.from_pydict({"id": list(rows), "name": list(rows.values())}, schema=_SCHEMA)
        for _ in self._client.write_rows(self._table.path, kind, [batch]):
            pass

    @abstractmethod
    def _tier(self) -> None: ...

    @abstractmethod
    def _compare(self) -> None: ...

    def _expect_equal(self, rows: Iterable[tuple[int, str | None]]) -> None:
        found = sorted(rows)
        expect(found == sorted(self._rows.items()), f"expected {len(self._rows)} rows, found {len(found)} or others")


class Round(Changes):
    """The steps that are tried with a table, and Spark in this process."""

    def __init__(
        self,
        client: TieringClient,
        spark: SparkSession,
        target: str,
        *,
        name: str = "orders",
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(client, target, name=name, options=options)
        self._spark = spark

    def steps(self) -> dict[str, Callable[[], None]]:
        """Return the steps in their order."""
        return {
            "rounds": self.rounds,
            "verify": self.verify,
            "compact": self.compact,
            "expire": self.expire,
            "clean": self.clean,
            'format("fluss")': self.source,
            "catalog": self.catalog,
        }

    def verify(self) -> None:
        """Compare the lake with the table, by Spark."""
        audit = verify_table(self._client, self._spark, self._table, target=self._target)
        expect(audit.equal and len(audit.buckets) == self._table.descriptor.num_buckets, f"they differ: {audit}")

    def compact(self) -> None:
        """Compact the table, so that no delete file is left."""
        done = compact_table(self._spark, self._table, min_input_files=2, delete_files=1)
        expect(done.error is None, str(done.error))
        expect(done.after is not None and done.after.delete_files == 0, f"delete files are left: {done.after}")
        self._compare()

    def expire(self) -> None:
        """Expire the old snapshots after another round, which makes them old."""
        self._write({1: "once more"})
        self._tier()
        done = expire_snapshots(self._client, self._spark, self._table, older_than=timedelta(0), retain_last=1)
        expect(done.error is None and done.expired > 0, f"nothing was expired: {done}")
        self._compare()

    def clean(self) -> None:
        """List orphan files: a file that nobody refers to is found, and no other."""
        location = self._table.lake_catalog_properties["warehouse"].removeprefix("file:")
        orphan = Path(location, "shop", "orders", "data", "orphan.parquet")
        orphan.write_bytes(b"")
        os.utime(orphan, (0, 0))
        done = clean_table(self._spark, self._table, grace=timedelta(days=1), delete=True)
        expect(done.error is None, str(done.error))
        found = [Path(each.location).name for each in done.orphans]
        expect(found == [orphan.name] and not orphan.exists(), f"expected {orphan.name}, found {found}")

    def source(self) -> None:
        """Read the live table by `format("fluss")`."""
        reader = self._spark.read.format("fluss").option("server", self._target).option("table", "shop.orders")
        self._expect_rows(reader.load().filter("id >= 0"))

    def catalog(self) -> None:
        """Read the live table and the statuses by the catalog."""
        for key, value in session_conf(self._target).items():
            if key.startswith("spark.sql.catalog"):
                self._spark.conf.set(key, value)
        self._expect_rows(self._spark.sql("SELECT * FROM fluss_catalog.shop.orders WHERE id >= 0"))
        (status,) = self._spark.sql("SELECT table_name FROM fluss_catalog.sys.lake_tiering_status").collect()
        expect(status.table_name == "orders", str(status))

    def _tier(self) -> None:
        (result,) = application.run(TierOptions(server=self._target, tables=(self._table.path,)), self._spark)
        expect(result.error is None, str(result.error))

    def _compare(self) -> None:
        name = self._table.lake_catalog_properties["name"]
        self._spark.sql(f"REFRESH TABLE {name}.{self._table.path}")
        self._expect_rows(self._spark.sql(f"SELECT id, name FROM {name}.{self._table.path}"))

    def _expect_rows(self, frame: DataFrame) -> None:
        self._expect_equal((row.id, row.name) for row in frame.collect())


def expect(condition: bool, otherwise: str) -> None:
    """Raise AssertionError with a reason unless the condition holds."""
    if not condition:
        raise AssertionError(otherwise)


def main() -> None:
    """Run the steps, and print their outcomes: None for a step that worked, else the reason."""
    outcomes: dict[str, str | None] = {}
    versions = {"pyspark": pyspark.__version__, "python": platform.python_version()}
    with (
        tempfile.TemporaryDirectory() as folder,
        server(Path(folder)) as target,
        TieringClient(target, timeout=_CALL_S) as client,
    ):
        conf = {**driver_jvm_conf(), "spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false"}
        os.environ[JARS_VARIABLE] = ",".join(sys.argv[1:])
        try:
            with own_session("local[2]", conf) as spark:
                versions["java"] = spark._jvm.System.getProperty("java.version")
                for name, step in Round(client, spark, target).steps().items():
                    try:
                        step()
                        outcomes[name] = None
                    except Exception as error:  # noqa: BLE001 - every reason belongs into the table
                        outcomes[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        except Exception as error:  # noqa: BLE001
            outcomes["rounds"] = f"{type(error).__name__}: {error}".splitlines()[0]
    sys.stdout.write("\n" + json.dumps({"versions": versions, "outcomes": outcomes}) + "\n")


if __name__ == "__main__":
    main()
