"""Reads with Spark what the peers wrote: whether the rows are the same, and how many files and bytes there are."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks import rows
from examples.flights.environment import use_local_jars
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark.submit import spark_conf

_CATALOG: Final = "bench_lake"
_SEEDS: Final = (1, 2)
_CODECS: Final = {"gz": "GZIP"}


@dataclass(frozen=True, slots=True)
class Content:
    """A lake table at a snapshot: the number of its rows, and the sums of their hashes in any order."""

    row_count: int
    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """The files and bytes that commits have added between two snapshots."""

    data_files: int
    delete_files: int
    file_bytes: int


class Lakes(Closing):
    """Reads lake tables in a Spark session of its own."""

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

    def close(self) -> None:
        """Stop the session."""
        self._spark.stop()

    def content(self, path: TablePath, snapshot_id: int) -> Content:
        """Return a summary of the table's own columns and buckets, with deletes applied."""
        names = [column.name for column in rows.descriptor(primary_key=False).columns]
        listed = ", ".join(["__bucket", *names])
        # Decimals keep the sums of many 64-bit hashes exact.
        sums = ", ".join(f"sum(CAST(xxhash64({seed}, {listed}) AS DECIMAL(38, 0)))" for seed in _SEEDS)
        query = f"SELECT count(*), {sums} FROM {_CATALOG}.{path} VERSION AS OF {snapshot_id}"
        count, *hashes = self._spark.sql(query).collect()[0]
        return Content(count, tuple(int(each or 0) for each in hashes))

    def written(self, path: TablePath, after: int | None, to: int) -> Written:
        """Return what was committed between two snapshots of one line. None is the time before the first snapshot."""
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
