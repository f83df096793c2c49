"""Cutting rows into parts of bounded size, by their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import pyarrow as pa

_TOLERANCE: Final = 2
"""Parts are first cut by the average size of a row. A part is cut again if it is this many times too large."""


RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)


def parts_of(records: RowsT, max_bytes: int, max_rows: int | None = None) -> Iterator[RowsT]:
    """Yield consecutive parts of the rows, without a copy.

    The bytes of each part are counted. A part has at most twice `max_bytes`, or is a single row.

    Args:
        records: The rows.
        max_bytes: The wanted size of a part, as Arrow counts it (`RecordBatch.nbytes`).
        max_rows: The greatest number of rows in a part; None for no limit.
    """
    count = records.num_rows
    step = max(1, min(max_rows or count, count * max_bytes // max(records.nbytes, 1)))
    start = 0
    while start < count:
        part = records.slice(start, step)
        while part.num_rows > 1 and part.nbytes > _TOLERANCE * max_bytes:
            part = part.slice(0, part.num_rows // 2)
        yield part
        start += part.num_rows
