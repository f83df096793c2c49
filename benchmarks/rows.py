"""The rows that the benchmarks write: 8 columns, with about 68 bytes per row in Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.model.table import Column, DataType, TableDescriptor

BATCH_ROWS: Final = 65_536
_SEED: Final = 7

_COLUMNS: Final = (
    ("id", "BIGINT NOT NULL"),
    ("quantity", "INT"),
    ("price", "DOUBLE"),
    ("discount", "DOUBLE"),
    ("code", "STRING"),
    ("customer", "STRING"),
    ("ordered_at", "TIMESTAMP(6)"),
    ("total", "DECIMAL(12, 2)"),
)


def descriptor(
    *, primary_key: bool, num_buckets: int = 4, options: Mapping[str, str] = MappingProxyType({})
) -> TableDescriptor:
    """Describe a table of these rows with further options.

    Its freshness is so long that only the benchmark's own claims start rounds.
    """
    return TableDescriptor(
        columns=tuple(Column(name, DataType.parse(text)) for name, text in _COLUMNS),
        primary_key=("id",) if primary_key else (),
        bucket_keys=("id",) if primary_key else (),
        num_buckets=num_buckets,
        properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1d", **options},
    )


def batches(first_id: int, row_count: int) -> Iterator[pa.RecordBatch]:
    """Yield rows with ids from `first_id` on, in batches of `BATCH_ROWS`. The same ids give the same rows."""
    for start in range(first_id, first_id + row_count, BATCH_ROWS):
        yield batch_of(np.arange(start, min(start + BATCH_ROWS, first_id + row_count), dtype=np.int64))


def batch_of(ids: np.ndarray, seed: int = _SEED) -> pa.RecordBatch:
    """Return one row for each id, with random other values that depend on the seed."""
    random = np.random.default_rng([seed, int(ids[0])])
    count = len(ids)
    cents = np.zeros((count, 2), dtype=np.int64)
    cents[:, 0] = random.integers(0, 10_000_000, count)
    return pa.record_batch(
        {
            "id": pa.array(ids),
            "quantity": pa.array(random.integers(1, 1000, count, dtype=np.int32)),
            "price": pa.array(random.random(count) * 100),
            "discount": pa.array(random.random(count)),
            "code": _text(random, count, 12),
            "customer": _text(random, count, 20),
            "ordered_at": pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us")),
            "total": pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(cents)]),
        }
    )


def _text(random: np.random.Generator, count: int, length: int) -> pa.Array:
    letters = random.integers(ord("a"), ord("z") + 1, count * length, dtype=np.uint8)
    offsets = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
