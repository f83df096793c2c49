"""Which columns of a Parquet file get a dictionary: those whose values repeat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.micros import column_of
from fluss_tiering.model.table import OFFSET_COLUMN

_SAMPLED_ROWS: Final = 1 << 12
_SAMPLED_BYTES: Final = 4 << 20
_DICTIONARY_VALUES: Final = 1 << 16
"""About how many values fit into a dictionary. Parquet's writers give up a dictionary of more than a megabyte."""
_AS_MANY_ROWS: Final = 2
"""Up to how many times as many rows are taken to repeat as others did."""


def repeating_columns(rows: pa.Table, size: int) -> list[str]:
    """Return the columns whose values repeat in a sample, since a dictionary makes these columns smaller.

    A useless dictionary costs as much time as the rest of its column, and makes the file larger.

    Args:
        size: The number of bytes that they take in memory.
    """
    step = max(1, rows.num_rows // _SAMPLED_ROWS, size // _SAMPLED_BYTES)
    sample = pa.Table.from_batches(_every(step, rows.to_batches()), rows.schema)
    # If n rows are drawn from d equally frequent values, about n * n / 2d of them repeat an earlier one.
    wanted_values = min(_DICTIONARY_VALUES, rows.num_rows / 2)
    least = sample.num_rows * min(0.5, sample.num_rows / 2 / wanted_values)
    return [name for name in rows.schema.names if name != OFFSET_COLUMN and _repeated(sample.column(name)) >= least]


class Dictionaries:
    """The columns that get a dictionary. To look at the values of each of many small files would take much time."""

    def __init__(self) -> None:
        self._rows = 0
        self._columns: list[str] = []

    def of(self, rows: pa.Table, size: int) -> list[str]:
        """Return the columns that repeat in these rows, or did in some of which there were about as many."""
        if rows.num_rows > _AS_MANY_ROWS * self._rows:
            self._rows, self._columns = rows.num_rows, repeating_columns(rows, size)
        return self._columns


def _every(step: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield every so many rows. Taking them from each batch makes no copy of all batches."""
    first = 0
    for batch in batches:
        yield batch.take(column_of(pa.int64(), np.arange(first, batch.num_rows, step)))
        first = (first - batch.num_rows) % step


def _repeated(values: pa.ChunkedArray) -> int:
    """Return how many values repeat an earlier one; -1 for nested values, which cannot be counted."""
    if pa.types.is_nested(values.type):
        return -1
    return len(values) - int(pc.count_distinct(values, mode="all").as_py())
