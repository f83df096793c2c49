"""The partitions of a scan of a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import datasource as ds

from fluss_tiering.formats.micros import micros_type
from fluss_tiering.formats.schema import arrow_type
from fluss_tiering.model.table import BucketInfo, Column, TableBucket, TableInfo


class LogPartition(ds.InputPartition):
    """A range [start_offset, end_offset) of a bucket's log when the scan was planned. It may be empty."""

    def __init__(self, bucket: TableBucket, start_offset: int, end_offset: int) -> None:
        super().__init__((bucket, start_offset, end_offset))
        self.bucket = bucket
        self.start_offset = start_offset
        self.end_offset = end_offset


class KvPartition(ds.InputPartition):
    """A bucket of a primary-key table, with the rows that it has when the task opens its scan."""

    def __init__(self, bucket: TableBucket) -> None:
        super().__init__(bucket)
        self.bucket = bucket


def log_partitions(buckets: Sequence[BucketInfo], max_bytes: int) -> list[ds.InputPartition]:
    """Return one or more partitions for each bucket, each with about `max_bytes` of the log at most."""
    return [part for info in buckets for part in _log_parts(info, max_bytes)]


def _log_parts(info: BucketInfo, max_bytes: int) -> Iterator[LogPartition]:
    start, length = info.log_start_offset, info.log_end_offset - info.log_start_offset
    count = max(1, min(length, math.ceil(info.log_size_bytes / max_bytes)))
    for number in range(count):
        yield LogPartition(info.bucket, start + length * number // count, start + length * (number + 1) // count)


def holding(table: TableInfo, infos: Sequence[BucketInfo], conditions: Sequence[ds.Filter]) -> list[BucketInfo]:
    """Return those of all buckets of a table that may have matching rows."""
    # A partition may have another number of buckets than the table.
    counts = Counter(info.bucket.partition_id for info in infos)
    possible = {count: buckets_holding(table, conditions, count) for count in set(counts.values())}
    held = ((info, possible[counts[info.bucket.partition_id]]) for info in infos)
    return [info for info, buckets in held if buckets is None or info.bucket.bucket in buckets]


def buckets_holding(table: TableInfo, conditions: Sequence[ds.Filter], num_buckets: int) -> set[int] | None:
    """Return which of so many buckets may have matching rows; None if no filter says what the bucket key is."""
    descriptor = table.descriptor
    if not descriptor.bucket_keys or num_buckets == 1:
        return None
    key = descriptor.column(descriptor.bucket_keys[0])
    buckets: set[int] | None = None
    for condition in conditions:
        values = _key_values(condition, key.name)
        if values is None:
            continue
        found = _buckets_of(key, values, num_buckets)
        buckets = found if buckets is None else buckets & found
    return buckets


def _key_values(condition: ds.Filter, key: str) -> list[object] | None:
    match condition:
        case ds.EqualTo(attribute=(name,), value=value) | ds.EqualNullSafe(attribute=(name,), value=value):
            values = [value]
        case ds.In(attribute=(name,), value=several):
            values = list(several)
        case _:
            return None
    return [value for value in values if value is not None] if name == key else None


def _buckets_of(key: Column, values: list[object], num_buckets: int) -> set[int]:
    # Loading compiled code takes longer than making most plans.
    from fluss_tiering.formats.bucketing import assign_buckets  # noqa: PLC0415

    try:
        column = pa.array(values, micros_type(key.data_type)).cast(arrow_type(key.data_type))
    except pa.ArrowInvalid:
        # A timestamp with more digits than the column has matches no row, but only the filter decides that.
        return set(range(num_buckets))
    return {int(bucket) for bucket in assign_buckets(column, key.data_type, num_buckets)}
