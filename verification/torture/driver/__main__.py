"""The driver's process: one command in JSON a line on its standard input, one answer a line on its standard output."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.spark import application
from fluss_tiering.spark.audit.clean import clean_table
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.spark.maintenance.expire import expire_snapshots
from fluss_tiering.spark.maintenance.maintain import maintain_table
from fluss_tiering.spark.maintenance.plan import Step
from fluss_tiering.spark.maintenance.publish import publish_table
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.round.plan import PlanLimits
from fluss_tiering.spark.round.progress import Progress
from fluss_tiering.spark.startup import session
from spark_session import JVM_OPTIONS
from torture.driver import row_groups
from torture.driver.fate import fate_of, kills_for_memory
from torture.driver.faults import Faults

_JVM = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "2g",
    "spark.driver.extraJavaOptions": JVM_OPTIONS,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}


class Driver:
    """Answers the commands."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._faults = Faults()
        self._out_of_memory = kills_for_memory()
        self._clients: dict[str, TieringClient] = {}
        row_groups.switch_on()

    def tier(
        self,
        *,
        server: str,
        tables: list[str],
        fault: dict[str, str] | None,
        options: dict[str, Any],
        beside: dict[str, str] | None = None,
    ) -> Any:
        """Run a round of each table, and another command beside it."""
        self._faults.plan(fault)
        paths = tuple(TablePath.parse(each) for each in tables)
        pool = ThreadPoolExecutor(1)
        other = pool.submit(getattr(self, beside.pop("do")), server=server, **beside) if beside else None
        limits = {key: options.pop(key) for key in ("change_piece_bytes",) if key in options}
        application.PlanLimits = partial(PlanLimits, **limits)  # type: ignore[misc,assignment]
        try:
            results = application.run(TierOptions(server=server, tables=paths, **options), self._spark, Progress())
        finally:
            self._faults.plan(None)
            pool.shutdown()
        rounds = [
            {
                "table": str(result.path),
                "error": result.error + self.fate_of_jvm() if result.failed and result.error else None,
                "complete": result.complete,
                "peak_bytes": result.cost.peak_worker_bytes,
            }
            for result in results
        ]
        return {"rounds": rounds, "beside": other.result() if other is not None else None}

    def read(self, *, server: str, table: str, columns: list[str], out: str) -> Any:
        """Write rows of a lake table, as Spark reads them, into an Arrow file."""
        info = self._table(server, table)
        names = ", ".join(map(_quoted, columns))
        rows = self._spark.sql(f"SELECT {names} FROM {self._name(info)}").toArrow()
        with pa.OSFile(out, "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        return {"rows": rows.num_rows}

    def count(self, *, server: str, table: str, predicates: list[str]) -> Any:
        """Return how many rows fulfil each of the predicates, by one scan for each."""
        name = self._name(self._table(server, table))
        counts: dict[int, int] = {}
        parts = [
            f"SELECT {number} AS n, count(*) AS c FROM {name} WHERE {predicate}"
            for number, predicate in enumerate(predicates)
        ]
        for start in range(0, len(parts), 16):
            for row in self._spark.sql(" UNION ALL ".join(parts[start : start + 16])).collect():
                counts[row.n] = row.c
        return [counts[number] for number in range(len(predicates))]

    def sql(self, *, server: str, table: str, text: str) -> Any:
        """Run a statement; `{table}` in it stands for the lake table."""
        rows = self._spark.sql(text.replace("{table}", self._name(self._table(server, table)))).collect()
        return [[str(each) for each in row] for row in rows]

    def change(self, *, server: str, table: str, text: str) -> Any:
        """Run a statement that changes rows, and return its error; `{table}` stands for the lake table."""
        try:
            self.sql(server=server, table=table, text=text)
        except (PySparkException, Py4JError) as error:
            return {"error": f"{type(error).__name__}: {error}"[:2000]}
        return {"error": None}

    def maintain(self, *, server: str, table: str, what: str) -> Any:
        """Compact a lake table, expire its snapshots, let old records leave it, or look for orphans."""
        info = self._table(server, table)
        if what == "records":
            done = maintain_table(self._client(server), self._spark, info, steps={Step.EXPIRE_RECORDS})
            return {"error": done.error}
        if what == "compact":
            with row_groups.of_maintenance():
                return {"error": compact_table(self._spark, info, min_input_files=2).error}
        if what == "expire":
            expiry = expire_snapshots(
                self._client(server), self._spark, info, older_than=timedelta(seconds=0), retain_last=1
            )
            return {"error": expiry.error}
        return {"error": clean_table(self._spark, info, grace=timedelta(days=3), delete=True).error}

    def publish(self, *, server: str, table: str) -> Any:
        """Move main of a lake table forward to what rounds have committed to its branch."""
        return {"error": publish_table(self._client(server), self._spark, self._table(server, table)).error}

    def fate_of_jvm(self) -> str:
        """Return how the JVM has ended; nothing if it runs."""
        gateway = SparkContext._gateway
        process = getattr(gateway, "proc", None)
        if process is None or process.poll() is None:
            return ""
        return f" (the JVM {fate_of(process.poll(), Path.cwd(), self._out_of_memory)})"

    def _client(self, server: str) -> TieringClient:
        if server not in self._clients:
            self._clients[server] = TieringClient(server)
        return self._clients[server]

    def _table(self, server: str, table: str) -> TableInfo:
        (info,) = self._client(server).get_tables([TablePath.parse(table)])
        return info

    def _name(self, table: TableInfo) -> str:
        properties = dict(table.lake_catalog_properties)
        catalog = properties.pop("name", "fluss_catalog")
        prefix = f"spark.sql.catalog.{catalog}"
        if self._spark.conf.get(prefix, None) is None:
            self._spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
            for key, value in {**properties, "cache-enabled": "false"}.items():
                self._spark.conf.set(f"{prefix}.{key}", value)
        return f"{catalog}.{table.path.database}.{table.path.table}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def main() -> None:
    """Answer commands until the standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    conf = {**_JVM, "spark.sql.warehouse.dir": str(Path.cwd() / "spark-warehouse")}
    session.local_workers_conf = lambda *_: {"spark.python.daemon.module": "torture.driver.daemon"}
    if os.environ.get("TORTURE_DEFECT"):
        from torture.defects import DEFECTS  # noqa: PLC0415 - only a run with a planted defect has it

        DEFECTS[os.environ["TORTURE_DEFECT"]].switch_on()
    with session.own_session("local[2,2]", conf) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        driver = Driver(spark)
        print(json.dumps({"ready": os.getpid()}), file=answers, flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            try:
                answer = {"result": getattr(driver, command.pop("do"))(**command)}
            except Exception as error:
                logging.getLogger("torture").exception("a command failed")
                failed = f"{type(error).__name__}: {error}"[:4000] + driver.fate_of_jvm()
                answer = {"failed": failed, "trace": traceback.format_exc()[-4000:]}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
