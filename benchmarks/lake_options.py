"""Measures what options of lake tables cost: partitions by hours, and a branch from which rounds are published."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import rows
from benchmarks.control import Figure
from benchmarks.tiering import server, session, tier, write
from examples.flights.environment import use_local_jars
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.spark.maintenance.publish import publish_table

ROWS: Final = 2_000_000
_PARTITIONS: Final = 24
_HOUR_US: Final = 3_600_000_000
_TURNS: Final = 5
_MOST_RATIO: Final = 1.15
_SMALL_ROWS: Final = 1_000
_UNPUBLISHED: Final = 50
_MOST_PUBLISH_S: Final = 0.3


def measure(scale: float) -> Iterator[Figure]:
    """Yield how much longer a round with many partitions takes, and how long it takes to publish rounds."""
    count = max(_PARTITIONS, int(ROWS * scale))
    use_local_jars()
    with (
        tempfile.TemporaryDirectory(prefix="fluss-tiering-options-") as folder,
        server(Path(folder)) as (target, client),
        session() as spark,
    ):
        for ordered in (True, False):
            yield _partitions(target, client, spark, count, ordered=ordered)
        yield _publish(target, client, spark, "a small table", _SMALL_ROWS, 1)
        yield _publish(target, client, spark, "a large table", count, max(2, int(_UNPUBLISHED * min(scale, 1))))


def _partitions(target: str, client: TieringClient, spark: SparkSession, count: int, *, ordered: bool) -> Figure:
    name = "ordered" if ordered else "mixed"
    paths = [TablePath("bench", f"{name}_{kind}") for kind in ("plain", "hourly")]
    for path, options in zip(paths, ({}, {"table.datalake.partition-by": "hours(ordered_at)"}), strict=True):
        client.create_table(path, rows.descriptor(primary_key=False, options=options))
    seconds: dict[TablePath, list[float]] = {path: [] for path in paths}
    # The first turn is not counted: the JVM and the workers are new.
    for turn in range(_TURNS + 1):
        for path in paths:
            write(client, path, WriteKind.APPEND, _in_a_day(count, ordered=ordered))
        # Each goes first in every second turn.
        for path in paths[turn % 2 :] + paths[: turn % 2]:
            seconds[path].append(tier(target, spark, path).seconds)
    plain, hourly = (median(seconds[path][1:]) for path in paths)
    order = "in the order of time" if ordered else "in no order"
    what = f"a round of {count:,} rows {order}, in {_PARTITIONS} hourly partitions and in none, median of {_TURNS}"
    text = f"{hourly:.2f} s / {plain:.2f} s = {hourly / plain:.2f}"
    # Rows in no order are sorted first.
    limit = f"<= {_MOST_RATIO:g}x" if ordered else ""
    return Figure(what, text, limit, not ordered or hourly / plain <= _MOST_RATIO)


def _in_a_day(count: int, *, ordered: bool) -> Iterator[pa.RecordBatch]:
    """Yield rows whose times are in as many hours as there are partitions."""
    random = np.random.default_rng(1)
    for batch in rows.batches(0, count):
        ids = batch["id"].to_numpy() if ordered else random.integers(0, count, batch.num_rows)
        times = ids * (_PARTITIONS * _HOUR_US // count)
        place = batch.schema.get_field_index("ordered_at")
        yield batch.set_column(place, "ordered_at", pa.array(times, pa.timestamp("us")))


def _publish(
    target: str, client: TieringClient, spark: SparkSession, what: str, first_rows: int, rounds: int
) -> Figure:
    path = TablePath("bench", f"published_{what.replace(' ', '_')}")
    options = {"table.datalake.commit-branch": "audit"}
    table = client.create_table(path, rows.descriptor(primary_key=False, num_buckets=1, options=options))
    seconds = []
    for turn in range(_TURNS):
        for number in range(rounds):
            size = _SMALL_ROWS if turn or number else first_rows
            write(client, path, WriteKind.APPEND, rows.batches(0, size))
            tier(target, spark, path)
        done = publish_table(client, spark, table)
        if done.error is not None:
            raise SystemExit(f"error: {path} was not published: {done.error}")
        seconds.append(done.seconds)
    taken = median(seconds)
    name = f"to publish {what}, {rounds} new rounds, median of {_TURNS}"
    return Figure(name, f"{taken:.2f} s", f"< {_MOST_PUBLISH_S:g} s", taken < _MOST_PUBLISH_S)
