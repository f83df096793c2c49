"""What the peers wrote, read by Spark through Iceberg: whether it is the same, and how many files and bytes it took."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from pyspark.sql import SparkSession

from benchmarks import rows
from examples.flights.environment import use_local_jars
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark.submit import spark_conf

_CATALOG: Final = "bench_lake"
_SEEDS: Final = (1, 2)
_CODECS: Final = {"gz": "GZIP"}


@dataclass(frozen=True, slots=True)
class Content:
    """A lake table at a snapshot: its rows, and sums of their hashes, which the rows' order does not change."""

    row_count: int
    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """What the commits after one snapshot up to another added."""

    data_files: int
    delete_files: int
    file_bytes: int


class Lakes:
    """A Spark session with the catalog; a context manager."""

    def __init__(self, lake_catalog: Mapping[str, str]) -> None:
        use_local_jars()
        settings = {
            **spark_conf(),
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.pyspark.python": sys.executable,
            "spark.sql.shuffle.partitions": "2",
            f"spark.sql.catalog.{_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            **{f"spark.sql.catalog.{_CATALOG}.{key}": value for key, value in lake_catalog.items()},
        }
        builder: Any = SparkSession.builder.master("local[2]").appName("comparison")
        self._spark = builder.config(map=settings).getOrCreate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._spark.stop()

    def content(self, path: TablePath, snapshot_id: int) -> Content:
        """The table's own columns and its rows' buckets, with deletes applied."""
        names = [column.name for column in rows.descriptor(primary_key=False).columns]
        listed = ", ".join(["__bucket", *names])
        # Decimals, so that sums of many 64-bit hashes are exact.
        sums = ", ".join(f"sum(CAST(xxhash64({seed}, {listed}) AS DECIMAL(38, 0)))" for seed in _SEEDS)
        query = f"SELECT count(*), {sums} FROM {_CATALOG}.{path} VERSION AS OF {snapshot_id}"
        count, *hashes = self._spark.sql(query).collect()[0]
        return Content(count, tuple(int(each or 0) for each in hashes))

    def written(self, path: TablePath, after: int | None, to: int) -> Written:
        """What was committed after a snapshot (None: after the table was made) up to another, both of one line."""
        found = self._spark.sql(f"SELECT snapshot_id, parent_id, summary FROM {_CATALOG}.{path}.snapshots").collect()
        by_id = {each.snapshot_id: each for each in found}
        summaries = []
        current: int | None = to
        while current is not None and current != after:
            summaries.append(by_id[current].summary)
            current = by_id[current].parent_id
        return Written(
            *(
                sum(int(each.get(name, 0)) for each in summaries)
                for name in ("added-data-files", "added-delete-files", "added-files-size")
            )
        )
