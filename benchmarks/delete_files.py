"""Compares rounds that delete by position with rounds that delete by key: their time, and that of reading after them.

There are three tables: one has equality deletes, one position deletes, and one deletion vectors, which are the
position deletes of format version 3. All get the same changes, round by round, in one session.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias
from urllib.parse import urlparse

import numpy as np
from pyspark.sql import SparkSession

from benchmarks import rows
from benchmarks.control import Figure
from benchmarks.tiering import batches_of, server, session, tier, write
from examples.flights.environment import use_local_jars
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath, WriteKind

KEYS: Final = 1_000_000
UPSERTED: Final = 300_000
DELETED: Final = 20_000
ROUNDS: Final = 100
CHANGES: Final = 3_000
_BIG_ROUNDS: Final = 3
_READS: Final = 3
_LIMIT: Final = 20
_LEAST_LIMIT_S: Final = 60.0
_BUCKETS: Final = 4
_EQUALITY: Final = "equality"
_VECTORS: Final = "vectors"
_BY_POSITION: Final[Mapping[str, str]] = {"position": "position deletes", _VECTORS: "deletion vectors"}
"""What the ways to delete by position are called."""
_WAYS: Final = (_EQUALITY, *_BY_POSITION)

Reader: TypeAlias = Callable[..., tuple[Any, ...] | None]
"""Reads all rows of a lake table, by its metadata file and a limit in seconds or None, and returns some sums; None if
the limit is reached."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables and what tiers them."""

    target: str
    client: TieringClient
    spark: SparkSession

    def path(self, way: str) -> TablePath:
        return TablePath("bench", f"by_{way}")

    def create(self, way: str) -> None:
        options = {
            "table.datalake.delete-files": _EQUALITY if way == _EQUALITY else "position",
            "iceberg.format-version": "3" if way == _VECTORS else "2",
            # Its files tell buckets apart, and it takes equality deletes.
            "table.datalake.layout": "legacy",
        }
        descriptor = rows.descriptor(primary_key=True, num_buckets=_BUCKETS, options=options)
        self.client.create_table(self.path(way), descriptor)

    def tier(self, way: str) -> float:
        return tier(self.target, self.spark, self.path(way)).seconds

    def change(self, upserted: np.ndarray, deleted: np.ndarray) -> None:
        for way in _WAYS:
            write(self.client, self.path(way), WriteKind.UPSERT, batches_of(upserted))
            write(self.client, self.path(way), WriteKind.DELETE, batches_of(deleted))


def measure(scale: float) -> Iterator[Figure]:
    """Yield the ratio of large rounds, the ratio of small ones, and those of reading after many rounds."""
    keys, upserted, deleted = (max(10, int(size * scale)) for size in (KEYS, UPSERTED, DELETED))
    rounds, changes = max(2, int(ROUNDS * min(scale, 1))), max(10, int(CHANGES * scale))
    use_local_jars()
    with (
        tempfile.TemporaryDirectory(prefix="fluss-tiering-deletes-") as folder,
        server(Path(folder)) as (target, client),
        session() as spark,
    ):
        tables = _Tables(target, client, spark)
        random = np.random.default_rng(1)
        for way in _WAYS:
            tables.create(way)
            write(client, tables.path(way), WriteKind.UPSERT, rows.batches(0, keys))
            tables.tier(way)
        yield from _rounds(
            tables,
            f"{upserted:,} upserts and {deleted:,} deletes on {keys:,} keys",
            _BIG_ROUNDS,
            lambda: np.split(random.choice(keys, upserted + deleted, replace=False), [upserted]),
            1.3,
        )
        yield from _rounds(
            tables,
            f"{changes:,} changes",
            rounds,
            lambda: np.split(random.choice(keys, changes, replace=False), [changes * 9 // 10]),
            None,
        )
        yield from _reads(tables, rounds)


def _rounds(
    tables: _Tables, name: str, count: int, changes: Callable[[], Any], bound: float | None
) -> Iterator[Figure]:
    seconds: dict[str, list[float]] = {way: [] for way in _WAYS}
    for number in range(count):
        tables.change(*changes())
        # Each goes first in every third round.
        first = number % len(_WAYS)
        for way in (*_WAYS[first:], *_WAYS[:first]):
            seconds[way].append(tables.tier(way))
    by_key = median(seconds[_EQUALITY])
    limit = "" if bound is None else f"<= {bound:g}x"
    for way, name_of_way in _BY_POSITION.items():
        by_position = median(seconds[way])
        ratio = by_position / by_key
        text = f"{by_position:.2f} s / {by_key:.2f} s = {ratio:.2f}"
        what = f"a round of {name} with {name_of_way}, median of {count}"
        yield Figure(what, text, limit, bound is None or ratio <= bound)


def _reads(tables: _Tables, rounds: int) -> Iterator[Figure]:
    readers: dict[str, Reader] = {"Spark": _by_spark(tables.spark), "DuckDB": duckdb_reader()}
    places = {way: newest_metadata(tables.client, tables.path(way)) for way in _WAYS}
    for name, read in readers.items():
        fast = {way: _best_read(read, places[way], None) for way in _BY_POSITION}
        # A reader may take hours to compare keys. It is not waited for much longer than it takes to keep the bound.
        limit = max(_LEAST_LIMIT_S, _LIMIT * max(seconds for _, seconds in fast.values()))
        found, slow = _best_read(read, places[_EQUALITY], limit)
        least = "" if found else "more than "
        for way, (expected, seconds) in fast.items():
            if found not in (expected, None):
                raise SystemExit(
                    f"error: {name} read different rows: {found} and, with {_BY_POSITION[way]}, {expected}"
                )
            ratio = slow / seconds
            text = f"{least}{slow:.2f} s / {seconds:.2f} s = {least}{ratio:.1f}"
            what = f"{name} reads everything after {rounds} rounds, with {_BY_POSITION[way]}"
            yield Figure(what, text, ">= 5x as fast", ratio >= 5)


def _best_read(read: Reader, location: str, limit_s: float | None) -> tuple[tuple[Any, ...] | None, float]:
    """Return what is read and the shortest time in seconds; None and the time if a read reaches the limit."""
    best = float("inf")
    for _ in range(_READS):
        began = time.perf_counter()
        found = read(location, limit_s)
        seconds = time.perf_counter() - began
        if found is None:
            return None, seconds
        best = min(best, seconds)
    return found, best


def newest_metadata(client: TieringClient, path: TablePath) -> str:
    """Return the newest metadata file of a lake table in a local folder."""
    (info,) = client.get_tables([path])
    warehouse = urlparse(info.lake_catalog_properties["warehouse"]).path
    metadata = Path(warehouse, *str(path).split("."), "metadata")
    files = metadata.glob("*.metadata.json")
    return str(max(files, key=lambda each: int(re.split(r"[.-]", each.name.lstrip("v"))[0])))


_SUMS: Final = "count(*), sum(quantity), sum(id), sum(length(customer))"
"""Sums of columns, which cost little beside reading them: a count of distinct values would take most of the time."""


def _by_spark(spark: SparkSession) -> Reader:
    def read(location: str, _: float | None = None) -> tuple[Any, ...]:
        (row,) = spark.read.format("iceberg").load(location).selectExpr(*_SUMS.split(", ")).collect()
        return tuple(row)

    return read


def duckdb_reader() -> Reader:
    """Return a function that reads all rows of a lake table, by its metadata file, and returns some sums."""
    import duckdb  # noqa: PLC0415

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "threads": "2"})
    for name in ("avro", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert spec is not None and spec.submodule_search_locations  # noqa: PT018
        (file,) = Path(spec.submodule_search_locations[0]).glob("extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")

    def read(location: str, limit_s: float | None = None) -> tuple[Any, ...] | None:
        timer = threading.Timer(limit_s or threading.TIMEOUT_MAX, connection.interrupt)
        timer.start()
        try:
            row = connection.execute(f"SELECT {_SUMS} FROM iceberg_scan('{location}')").fetchone()
        except duckdb.InterruptException:
            return None
        finally:
            timer.cancel()
        return tuple(int(value) for value in row or ())

    return read
