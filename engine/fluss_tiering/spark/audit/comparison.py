"""The rows of two sides, compared by bucket and then by key: both are Spark data frames, hashed by one expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from fluss_tiering.lake.names import quoted
from fluss_tiering.model.data_type import DataType, DataTypeRoot
from fluss_tiering.model.table import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN, TableBucket, TableInfo
from fluss_tiering.spark.audit.layouts import ROW_COLUMN
from fluss_tiering.spark.audit.report import BucketAudit, Content, Difference, KeyDifference
from fluss_tiering.spark.audit.source_rows import DELETED_COLUMN

_SEEDS: Final = (1, 2)
"""The seeds of two 64-bit hashes for each row, so that a difference is not missed by chance."""
_HALF: Final = 0xFFFFFFFF
_HASHES: Final = tuple(f"__hash_{seed}" for seed in _SEEDS)
_SUMS: Final = tuple(f"{name}_{half}" for name in _HASHES for half in ("low", "high"))
_ROWS: Final = "__rows"
_LAST: Final = "__last"
_SOURCE: Final = "__source"
_LAKE: Final = "__lake"


def hashed(table: TableInfo, rows: DataFrame) -> DataFrame:
    """Return bucket, key and hashes of each row; of a source's changes only the last one of each key that exists."""
    parts = [part for each in table.descriptor.columns for part in _parts(sf.col(quoted(each.name)), each.data_type)]
    if not table.has_primary_key and TIMESTAMP_COLUMN in rows.columns:
        parts.append(sf.col(TIMESTAMP_COLUMN))
    hashes = [sf.xxhash64(sf.lit(seed), *parts).alias(name) for seed, name in zip(_SEEDS, _HASHES, strict=True)]
    keys = _keys(table, rows)
    if not table.has_primary_key or DELETED_COLUMN not in rows.columns:
        return rows.select(BUCKET_COLUMN, *keys, *hashes)
    changes = rows.select(BUCKET_COLUMN, *keys, OFFSET_COLUMN, DELETED_COLUMN, *hashes)
    last = sf.max_by(sf.struct(DELETED_COLUMN, *_HASHES), OFFSET_COLUMN).alias(_LAST)
    return (
        changes.groupBy(BUCKET_COLUMN, *keys)
        .agg(last)
        .where(~sf.col(f"{_LAST}.{DELETED_COLUMN}"))
        .select(BUCKET_COLUMN, *keys, *(sf.col(f"{_LAST}.{name}") for name in _HASHES))
    )


def _parts(value: Column, kind: DataType) -> list[Column]:
    """Return columns that tell a value apart from all others of its type, and that Spark can hash.

    Spark's hash passes over nulls and over the ends of arrays, at any depth: a value and a null next to it could change
    places unnoticed. It takes -0.0 for 0.0, and it takes no maps.
    """
    parts = [sf.isnull(value)]
    match kind.root:
        case DataTypeRoot.ROW:
            return parts + [part for each in kind.fields for part in _parts(value.getField(each.name), each.data_type)]
        case DataTypeRoot.ARRAY:
            (element,) = kind.fields
            return [*parts, *_elements(value, lambda each: _parts(each, element.data_type))]
        case DataTypeRoot.MAP:
            key, item = kind.fields
            return [
                *parts,
                *_elements(
                    sf.map_entries(value),
                    lambda each: [
                        *_parts(each.getField("key"), key.data_type),
                        *_parts(each.getField("value"), item.data_type),
                    ],
                ),
            ]
        case DataTypeRoot.FLOAT | DataTypeRoot.DOUBLE:
            return [*parts, value, sf.when(value == 0, value.cast("string"))]
    return [*parts, value]


def _elements(values: Column, parts: Callable[[Column], list[Column]]) -> list[Column]:
    return [sf.size(values), sf.transform(values, lambda each: sf.struct(*parts(each)))]


def _key_names(table: TableInfo, rows: DataFrame) -> Sequence[str]:
    if ROW_COLUMN in rows.columns:
        return (ROW_COLUMN,)
    return table.descriptor.primary_key or (*table.descriptor.partition_keys, OFFSET_COLUMN)


def _keys(table: TableInfo, rows: DataFrame) -> list[str]:
    return [quoted(name) for name in _key_names(table, rows)]


def content(rows: DataFrame) -> dict[int, Content]:
    """Return a summary of the rows by bucket."""
    found = rows.groupBy(BUCKET_COLUMN).agg(*_aggregates()).collect()
    return {row[BUCKET_COLUMN]: Content(row[_ROWS], tuple(row[name] for name in _SUMS)) for row in found}


def _aggregates() -> list[Column]:
    """Return the number of rows and the sums of the halves of their hashes; a sum of whole hashes would overflow."""
    sums = [
        sf.sum(half)
        for name in _HASHES
        for half in (sf.col(name).bitwiseAND(sf.lit(_HALF)), sf.shiftrightunsigned(sf.col(name), 32))
    ]
    return [sf.count(sf.lit(1)).alias(_ROWS), *(each.alias(name) for each, name in zip(sums, _SUMS, strict=True))]


def compared(
    offsets: Mapping[TableBucket, int], source: Mapping[int, Content], lake: Mapping[int, Content]
) -> list[BucketAudit]:
    """Return what both sides have in each bucket.

    Args:
        offsets: Bucket -> offset up to which the lake holds its log. Buckets of all partitions with one number are one.
        source: Bucket number -> the source's rows.
        lake: Bucket number -> the lake's rows.
    """
    ends: dict[int, int] = {}
    for bucket, offset in offsets.items():
        ends[bucket.bucket] = ends.get(bucket.bucket, 0) + offset
    return [
        BucketAudit(bucket, ends.get(bucket), source.get(bucket, Content()), lake.get(bucket, Content()))
        for bucket in sorted({*ends, *source, *lake})
    ]


def differences(
    table: TableInfo, source: DataFrame, lake: DataFrame, buckets: Sequence[int], limit: int
) -> list[KeyDifference]:
    """Return keys whose rows differ, in the order of bucket and key."""
    names = _key_names(table, source)
    on = [BUCKET_COLUMN, *_keys(table, source)]
    sides = [
        rows.where(sf.col(BUCKET_COLUMN).isin(list(buckets)))
        .groupBy(*on)
        .agg(*_aggregates())
        .select(*on, sf.struct(_ROWS, *_SUMS).alias(side))
        for side, rows in ((_SOURCE, source), (_LAKE, lake))
    ]
    joined = sides[0].join(sides[1], [BUCKET_COLUMN, *names], "full_outer")
    rows = joined.where(~sf.col(_SOURCE).eqNullSafe(sf.col(_LAKE))).orderBy(*on).limit(limit).collect()
    found = []
    for row in rows:
        in_source, in_lake = (0 if row[side] is None else row[side][_ROWS] for side in (_SOURCE, _LAKE))
        kind = _kind(in_source, in_lake)
        key = {name: row[name] for name in names}
        found.append(KeyDifference(row[BUCKET_COLUMN], kind, key, in_source, in_lake))
    return found


def _kind(in_source: int, in_lake: int) -> Difference:
    if in_lake == 0:
        return Difference.MISSING
    if in_source == 0:
        return Difference.EXTRA
    return Difference.REPEATED if in_lake > in_source else Difference.CHANGED
