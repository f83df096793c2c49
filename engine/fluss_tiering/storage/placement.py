"""The choice of the bucket for each row of a write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.bucketing import assign_buckets
from fluss_tiering.model.table import Column

_LEAST_ROWS_PER_BUCKET: Final = 4096
"""A smaller write without a bucket key goes to one bucket, since each bucket that it touches costs a sync."""


def place_by_key(records: pa.RecordBatch, bucket_key: Column, num_buckets: int) -> Mapping[int, pa.RecordBatch]:
    """Return the rows of each bucket by the hash of the bucket key, in the order of the write.

    Raises:
        FlussTieringError: INVALID_ROWS if a bucket key is null.
    """
    buckets = assign_buckets(records.column(bucket_key.name), bucket_key.data_type, num_buckets)
    if num_buckets == 1:
        return {0: records}
    order = np.argsort(buckets, kind="stable")
    touched, starts = np.unique(buckets[order], return_index=True)
    ordered = records.take(pa.array(order))
    ends = [*starts[1:], len(order)]
    return {
        int(bucket): ordered.slice(start, end - start) for bucket, start, end in zip(touched, starts, ends, strict=True)
    }


def place_evenly(records: pa.RecordBatch, rows_in_buckets: Sequence[int]) -> Mapping[int, pa.RecordBatch]:
    """Return the rows of each bucket so that the buckets with the fewest rows become level.

    Each bucket gets one run of consecutive rows.

    Args:
        records: The rows for a log table without a bucket key.
        rows_in_buckets: The number of rows that each bucket has; equal numbers give an equal placement.
    """
    wanted = min(len(rows_in_buckets), max(1, records.num_rows // _LEAST_ROWS_PER_BUCKET))
    filled = np.array(rows_in_buckets, np.int64)
    emptiest = np.argsort(filled, kind="stable")[:wanted]
    counts = _fill_up(filled[emptiest], records.num_rows)
    starts = np.cumsum(counts) - counts
    return {
        int(bucket): records.slice(start, count)
        for bucket, start, count in zip(emptiest, starts, counts, strict=True)
        if count
    }


def _fill_up(
    levels: np.ndarray[tuple[int], np.dtype[np.int64]], rows: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many of the rows to add to each of the ascending levels, so that the lowest ones become level."""
    reached = np.arange(1, len(levels) + 1)
    water = (rows + np.cumsum(levels)) // reached
    filled = int(np.flatnonzero(water >= levels)[-1]) + 1
    counts = np.zeros_like(levels)
    counts[:filled] = water[filled - 1] - levels[:filled]
    counts[: rows - int(counts.sum())] += 1
    return counts
