"""The metrics of a data file or delete file, by which Iceberg's readers skip it: counts, sizes and bounds.

The writer collects them while it writes. What Parquet's footer says of the row groups is used as it is, in raw numbers
and bytes. A column has a bound only if every row group with values has one: the footer has none for a row group in
which a value is longer than 4,096 bytes. `FileMetricsCollector` therefore finds the bounds of such text itself.
"""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fluss_tiering.formats.schema import is_list
from fluss_tiering.lake.files import FileMetrics
from fluss_tiering.lake.iceberg.metrics.bounds import RawValue, encoded, prefix_of
from fluss_tiering.lake.iceberg.metrics.modes import TRUNCATED, MetricsMode

FIELD_ID: Final = b"PARQUET:field_id"
_LONGEST_STATISTIC: Final = 4096
"""Parquet's writers leave out the bounds of a row group in which one of the two is longer (in bytes)."""
_LONGEST_BOUND: Final = 1024
"""The length to which the bounds of such values are cut if the table's properties allow longer ones."""
_FAILURES: Final = (ValueError, TypeError, ArithmeticError, struct.error, pa.ArrowException)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of a Parquet file: a plain column, or a part of a nested one.

    Attributes:
        field_id: Iceberg's id of the field.
        path: The position of the column, and of the field in each ROW around the part.
        name: The names on this path, with dots between them, as Parquet's writer knows the column.
        repeated: Whether it lies in an ARRAY or a MAP. Such a part has a size, but neither counts nor bounds.
    """

    field_id: int
    kind: pa.DataType
    path: tuple[int, ...]
    name: str
    repeated: bool


def leaves_of(schema: pa.Schema) -> list[Leaf]:
    """Return the columns of Parquet files with this schema, in the order of the files."""
    return [
        leaf
        for position, field in enumerate(schema)
        for leaf in _leaves(field, (position,), field.name, repeated=False)
    ]


def _leaves(field: pa.Field, path: tuple[int, ...], name: str, *, repeated: bool) -> Iterator[Leaf]:
    kind = field.type
    if pa.types.is_struct(kind):
        for position, part in enumerate(kind):
            yield from _leaves(part, (*path, position), f"{name}.{part.name}", repeated=repeated)
    elif is_list(kind):
        yield from _leaves(kind.value_field, path, name, repeated=True)
    elif pa.types.is_map(kind):
        for part in (kind.key_field, kind.item_field):
            yield from _leaves(part, path, name, repeated=True)
    elif pa.types.is_dictionary(kind):
        yield from _leaves(field.with_type(kind.value_type), path, name, repeated=repeated)
    else:
        yield Leaf(int((field.metadata or {}).get(FIELD_ID, -1)), kind, path, name, repeated)


def columns_with_nan(rows: pa.Table) -> set[str]:
    """Return the names of the Parquet columns that have a NaN, except of those in an ARRAY or a MAP."""
    floats = (leaf for leaf in leaves_of(rows.schema) if pa.types.is_floating(leaf.kind) and not leaf.repeated)
    return {leaf.name for leaf in floats if _has_nan(_values(rows, leaf))}


def _has_nan(values: pa.ChunkedArray) -> bool:
    # The sum takes half the time. It is NaN if a value is, and also if there are infinities of both signs.
    total = pc.sum(values).as_py()
    return total is not None and math.isnan(total) and bool(pc.any(pc.is_nan(values)).as_py())


def statistics_without(schema: pa.Schema, columns: Collection[str]) -> bool | list[str]:
    """Return what Parquet's writer is told so that it writes bounds of all columns but these."""
    return [leaf.name for leaf in leaves_of(schema) if leaf.name not in columns] if columns else True


class FileMetricsCollector:
    """Collects the metrics of one file while its row groups are written.

    Args:
        modes: What is wanted of each field; `truncate(16)` for a field that is not named.
        with_nan: The names of the columns that may have NaNs.
    """

    def __init__(
        self, schema: pa.Schema, modes: Mapping[int, MetricsMode], with_nan: Collection[str] = frozenset()
    ) -> None:
        self._with_nan = with_nan
        self._leaves = leaves_of(schema)
        self._modes = [modes.get(leaf.field_id, TRUNCATED) for leaf in self._leaves]
        self._nans = [0] * len(self._leaves)
        self._nulls = [0] * len(self._leaves)
        """Only counted of floating-point numbers, since the footer says it of the others."""
        self._long_bounds: dict[tuple[int, int], tuple[RawValue, RawValue]] = {}
        self._row_groups = 0

    def add_row_group(self, rows: pa.Table) -> None:
        """Look at the rows of the next row group."""
        for number, (leaf, mode) in enumerate(zip(self._leaves, self._modes, strict=True)):
            if leaf.repeated or not mode.counts:
                continue
            if pa.types.is_floating(leaf.kind):
                values = _values(rows, leaf)
                if leaf.name in self._with_nan:
                    self._nans[number] += pc.sum(pc.is_nan(values)).as_py() or 0
                self._nulls[number] += values.null_count
            elif mode.bounds and _has_any_length(leaf.kind):
                self._find_long(number, _values(rows, leaf))
        self._row_groups += 1

    def _find_long(self, number: int, values: pa.ChunkedArray) -> None:
        if pa.types.is_dictionary(values.type):
            # A value that no row has would only make the bounds wider.
            values = pa.chunked_array([chunk.dictionary for chunk in values.chunks], values.type.value_type)
        if (pc.max(pc.binary_length(values)).as_py() or 0) <= _LONGEST_STATISTIC:
            return
        # Bytes are in the order of code points.
        extremes = pc.min_max(values)
        raw = (extremes[name].cast(pa.large_binary()).as_py() for name in ("min", "max"))
        limit = 4 * (min(self._modes[number].length or _LONGEST_BOUND, _LONGEST_BOUND) + 1)
        lower, upper = (prefix_of(value, limit) for value in raw)
        self._long_bounds[self._row_groups, number] = lower, upper

    def metrics(self, footer: pq.FileMetaData) -> FileMetrics:
        """Return the metrics of the finished file, whose footer this is."""
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        found = FileMetrics(footer.num_rows, split_offsets=tuple(_start(group.column(0)) for group in groups))
        for number, leaf in enumerate(self._leaves):
            if leaf.field_id < 0 or not self._modes[number].counts:
                continue
            chunks = [group.column(number) for group in groups]
            found.column_sizes[leaf.field_id] = sum(chunk.total_compressed_size for chunk in chunks)
            if not leaf.repeated:
                self._add_counts(found, number, chunks)
        return found

    def _add_counts(self, found: FileMetrics, number: int, chunks: Sequence[pq.ColumnChunkMetaData]) -> None:
        leaf, mode = self._leaves[number], self._modes[number]
        found.value_counts[leaf.field_id] = sum(chunk.num_values for chunk in chunks)
        if pa.types.is_floating(leaf.kind):
            found.null_value_counts[leaf.field_id] = self._nulls[number]
            # Iceberg skips a file in which all values are NaN for `x > 2`, while Spark and DuckDB take NaN for larger.
            if self._nans[number] == 0 or self._nans[number] < found.value_counts[leaf.field_id]:
                found.nan_value_counts[leaf.field_id] = self._nans[number]
        nulls = [_null_count(chunk.statistics) for chunk in chunks]
        known = [count for count in nulls if count is not None]
        if len(known) < len(nulls):
            return
        found.null_value_counts[leaf.field_id] = sum(known)
        if mode.bounds and not self._nans[number]:
            groups = [group for group, chunk in enumerate(chunks) if chunk.num_values > known[group]]
            self._add_bounds(
                found, number, [self._extremes(number, group, chunks[group].statistics) for group in groups]
            )

    def _add_bounds(self, found: FileMetrics, number: int, extremes: Sequence[tuple[Any, Any] | None]) -> None:
        """Add the bounds of a column from the extreme values of each row group with values; None is not known."""
        known = [each for each in extremes if each is not None]
        if not known or len(known) < len(extremes):
            return
        leaf, length = self._leaves[number], self._modes[number].length
        if any(column == number for _, column in self._long_bounds):
            length = min(length or _LONGEST_BOUND, _LONGEST_BOUND)
        try:
            lower = encoded(leaf.kind, min(low for low, _ in known), upper=False, length=length)
            upper = encoded(leaf.kind, max(high for _, high in known), upper=True, length=length)
        except _FAILURES as error:
            # A file without a bound is read more often than necessary. A round that fails for it would fail for ever.
            logger.warning("leaving out the bounds of the field %d: %s", leaf.field_id, error)
            return
        if lower is not None:
            found.lower_bounds[leaf.field_id] = lower
        if upper is not None:
            found.upper_bounds[leaf.field_id] = upper

    def _extremes(self, number: int, group: int, statistics: pq.Statistics | None) -> tuple[Any, Any] | None:
        """Return the smallest and the largest value of a row group; None if they are not known."""
        if statistics is not None and statistics.has_min_max:
            return _signed(self._leaves[number].kind, statistics.min_raw, statistics.max_raw)
        return self._long_bounds.get((group, number))


def _signed(kind: pa.DataType, low: RawValue, high: RawValue) -> tuple[RawValue, RawValue]:
    """Return the values in a form that Python orders as Iceberg does: the bytes of a decimal as a number."""
    if pa.types.is_decimal(kind) and isinstance(low, bytes) and isinstance(high, bytes):
        return int.from_bytes(low, "big", signed=True), int.from_bytes(high, "big", signed=True)
    return low, high


def _values(rows: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """Return the values of a leaf that is not repeated. They are null where a ROW around them is null."""
    column, *fields = leaf.path
    values = rows.column(column)
    return pc.struct_field(values, fields) if fields else values


def _has_any_length(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _null_count(statistics: pq.Statistics | None) -> int | None:
    return statistics.null_count if statistics is not None and statistics.has_null_count else None


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the position of a row group in the file, which is that of its first column."""
    pages: int = chunk.data_page_offset
    dictionary: int | None = chunk.dictionary_page_offset
    return pages if dictionary is None else min(pages, dictionary)
