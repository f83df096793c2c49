"""Measures how long the plan of a round takes for a table with many buckets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from benchmarks.control import Figure
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket
from fluss_tiering.spark.round.plan import PlanLimits, plan_round
from fluss_tiering.spark.round.waves import waves

BUCKETS: Final = 131_072
"""A little more than the 128,000 that Fluss allows by default (`max.bucket.num`)."""
_BOUND_S: Final = 5.0
_LIMITS: Final = PlanLimits(parallelism=64)


def measure(scale: float) -> Iterator[Figure]:
    """Yield the seconds of a log table's plan and of a primary-key table's first and later plan."""
    count = max(16, int(BUCKETS * min(scale, 1)))
    buckets = [BucketInfo(TableBucket(1, number), 0, 1_000_000, 64 << 20) for number in range(count)]
    snapshots = {each.bucket: KvSnapshot(each.bucket, 1, 500_000, 1000, 1 << 20, "kv") for each in buckets}
    tiered = {each.bucket: 900_000 for each in buckets}
    yield _figure("log table", count, buckets, {}, {}, has_primary_key=False)
    yield _figure("primary-key table, first round", count, buckets, {}, snapshots, has_primary_key=True)
    yield _figure("primary-key table, later round", count, buckets, tiered, {}, has_primary_key=True)


def _figure(
    work: str,
    count: int,
    buckets: list[BucketInfo],
    tiered: dict[TableBucket, int],
    snapshots: dict[TableBucket, KvSnapshot],
    *,
    has_primary_key: bool,
) -> Figure:
    started = time.perf_counter()
    plan = plan_round(
        has_primary_key=has_primary_key, tiered=tiered, buckets=buckets, snapshots=snapshots, limits=_LIMITS
    )
    pieces = sum(len(wave) for wave in waves(plan, _LIMITS))
    seconds = time.perf_counter() - started
    text = f"{seconds:.2f} s for {pieces:,} pieces"
    return Figure(f"{count:,} buckets: {work}", text, f"<= {_BOUND_S:g} s", seconds <= _BOUND_S)
