"""The bloom filters of data files, as Iceberg's own table properties ask for them.

A reader that looks for one value skips a row group whose bloom filter says that the value is not there. Iceberg writes
none unless a property names the column.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fluss_tiering.lake.iceberg.metadata.properties import refuse
from fluss_tiering.lake.iceberg.metrics.collector import Leaf, leaves_of
from fluss_tiering.model.lake_table_properties import (
    BLOOM_FILTER_ENABLED,
    BLOOM_FILTER_FPP,
    BLOOM_FILTER_MAX_BYTES,
    BLOOM_FILTER_NDV,
    expected_of_bloom_filters,
)

_DEFAULT_FPP: Final = 0.01
_DEFAULT_MAX_BYTES: Final = 1 << 20
_OPTION: Final = "bloom_filter_options"
_BITS_SET: Final = 8
"""How many bits of a block each value sets."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """The bloom filters of one column.

    Attributes:
        fpp: How often a filter that is as large as it has to be says that a value may be there that is not.
        ndv: How many different values a row group is expected to have; None for as many as it has rows.
    """

    fpp: float = _DEFAULT_FPP
    ndv: int | None = None


@dataclass(frozen=True, slots=True)
class BloomFilters:
    """The bloom filters of the data files of a table.

    Attributes:
        columns: The filters by the name of the Parquet column.
        max_bytes: The greatest size of a filter, in bytes.
    """

    columns: Mapping[str, BloomFilter] = field(default_factory=dict)
    max_bytes: int = _DEFAULT_MAX_BYTES

    def options(self, rows: int) -> dict[str, Any]:
        """Return what Parquet's writer is told for row groups of so many rows."""
        if not self.columns or not _can_write():
            return {}
        return {
            _OPTION: {
                name: {"fpp": each.fpp, "ndv": max(1, min(each.ndv or rows, self._most_values(each.fpp)))}
                for name, each in self.columns.items()
            }
        }

    def _most_values(self, fpp: float) -> int:
        """Return for how many values a filter is not larger than the greatest size, which the writer rounds up."""
        bits = 8 << (self.max_bytes.bit_length() - 1)
        return int(bits * -math.log(1 - fpp ** (1 / _BITS_SET)) / _BITS_SET)


def bloom_filters(table: str, schema: pa.Schema, properties: Mapping[str, str]) -> BloomFilters:
    """Return the bloom filters that the properties of a lake table ask for.

    A column that can have none is left out with a warning.

    Args:
        table: The name of the table in Spark, for messages.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if a property has a value by which no file can be written.
    """
    leaves = {leaf.name: leaf for leaf in leaves_of(schema)}
    wanted = [
        key.removeprefix(BLOOM_FILTER_ENABLED)
        for key, value in properties.items()
        if key.startswith(BLOOM_FILTER_ENABLED) and value.lower() == "true"
    ]
    columns: dict[str, BloomFilter] = {}
    for name in wanted:
        objection = _objection(leaves.get(name))
        if objection is None:
            columns[name] = BloomFilter(_fpp(table, properties, name), _ndv(table, properties, name))
        else:
            logger.warning(
                "the lake table %s gets no bloom filter of %s, which %s; remove the property %s%s",
                *(table, name, objection, BLOOM_FILTER_ENABLED, name),
            )
    if columns and not _can_write():
        logger.warning(
            "the lake table %s gets no bloom filters, since pyarrow %s cannot write them: install a newer one",
            *(table, pa.__version__),
        )
    return BloomFilters(columns, _max_bytes(table, properties))


def _objection(leaf: Leaf | None) -> str | None:
    """Return why a column can have no bloom filter; None if it can."""
    if leaf is None:
        return "is no column of it that holds values"
    if leaf.repeated:
        return "lies in an ARRAY or a MAP"
    if pa.types.is_boolean(leaf.kind):
        return "has two values only"
    if pa.types.is_floating(leaf.kind):
        # The two zeros are equal and have different hashes, so that readers would miss rows.
        return "is a FLOAT or a DOUBLE, whose equal values 0.0 and -0.0 a bloom filter tells apart"
    if pa.types.is_binary(leaf.kind):
        # DuckDB looks for the text that it displays for a value with bytes beyond ASCII.
        return "is a BINARY or a BYTES, of which DuckDB up to 1.5 misses rows that are there"
    return None


def _fpp(table: str, properties: Mapping[str, str], name: str) -> float:
    text = _checked(table, properties, BLOOM_FILTER_FPP + name)
    return _DEFAULT_FPP if text is None else float(text)


def _ndv(table: str, properties: Mapping[str, str], name: str) -> int | None:
    text = _checked(table, properties, BLOOM_FILTER_NDV + name)
    return None if text is None else int(text)


def _max_bytes(table: str, properties: Mapping[str, str]) -> int:
    text = _checked(table, properties, BLOOM_FILTER_MAX_BYTES)
    return _DEFAULT_MAX_BYTES if text is None else int(text)


def _checked(table: str, properties: Mapping[str, str], key: str) -> str | None:
    value = properties.get(key)
    if value is not None and (expected := expected_of_bloom_filters(key, value)):
        refuse(table, key, value, expected)
    return value


def _can_write() -> bool:
    return _OPTION in inspect.signature(pq.ParquetWriter.__init__).parameters
