"""The options of a table, under Fluss's keys (its `ConfigOptions`), as docs/reference/configuration.md lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.duration import parse_duration_ms
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


@dataclass(frozen=True, slots=True)
class TableOption:
    """An option in a table's properties.

    Attributes:
        type: of its value, in Fluss's words.
        default: what stands where it is not set.
        only: it may be given, but with its default alone: nothing else is implemented.
    """

    key: str
    type: str
    default: str
    meaning: str
    only: bool = False


LAKE_ENABLED: Final = TableOption(
    "table.datalake.enabled", "Boolean", "false", "Whether the table is tiered into the lake."
)
LAKE_FRESHNESS: Final = TableOption(
    "table.datalake.freshness",
    "Duration",
    "3min",
    "How old what the lake has may become before the table is Pending again (S2).",
)
LAKE_MAX_ROUND_DURATION: Final = TableOption(
    "table.datalake.max-round-duration",
    "Duration",
    "–",
    "How long a round may read; what is left is Pending again at once (S26). Without it a round takes what it needs.",
)
LOG_COMPRESSION: Final = TableOption(
    "table.log.arrow.compression.type", "Enum", "ZSTD", "Compression of log batches: NONE, LZ4_FRAME or ZSTD."
)
ICEBERG_TARGET_FILE_SIZE: Final = TableOption(
    "iceberg.write.target-file-size-bytes", "Long", "536870912", "At this size a piece begins another data file."
)
ICEBERG_CODEC: Final = TableOption(
    "iceberg.write.parquet.compression-codec",
    "String",
    "zstd",
    "Of data and delete files: zstd, gzip, snappy, lz4, brotli or uncompressed.",
)
ICEBERG_LEVEL: Final = TableOption(
    "iceberg.write.parquet.compression-level",
    "Integer",
    "the codec's own",
    "Compression level, where the codec has any.",
)
FIXED: Final = (
    TableOption("table.log.format", "Enum", "ARROW", "Format of log batches.", only=True),
    TableOption("table.log.arrow.compression.zstd.level", "Integer", "3", "Level of ZSTD in log batches.", only=True),
    TableOption("table.kv.format", "Enum", "COMPACTED", "Format of rows by key.", only=True),
    TableOption("table.changelog.image", "Enum", "FULL", "What the changelog has of a row.", only=True),
    TableOption("table.delete.behavior", "Enum", "ALLOW", "What a delete does.", only=True),
)
"""Options that change what is stored."""
ICEBERG_FIXED: Final = (
    TableOption("iceberg.format-version", "Integer", "2", "Of the lake table: equality deletes need it.", only=True),
    TableOption("iceberg.write.format.default", "String", "parquet", "Of data files.", only=True),
)
"""Options of the lake table that change what a round would have to write."""

TABLE_OPTIONS: Final = (
    LAKE_ENABLED,
    LAKE_FRESHNESS,
    LAKE_MAX_ROUND_DURATION,
    LOG_COMPRESSION,
    ICEBERG_TARGET_FILE_SIZE,
    ICEBERG_CODEC,
    ICEBERG_LEVEL,
    *FIXED,
    *ICEBERG_FIXED,
)


def freshness_ms(properties: Mapping[str, str]) -> int:
    """The table's freshness in ms (S2). Raises INVALID_TABLE for what is no duration."""
    return _duration_ms(LAKE_FRESHNESS, properties.get(LAKE_FRESHNESS.key, LAKE_FRESHNESS.default))


def max_round_duration_ms(properties: Mapping[str, str]) -> int | None:
    """How long a round of the table may read, in ms; None where it does not say (S26).

    Raises:
        FlussTieringError: INVALID_TABLE for what is no duration.
    """
    value = properties.get(LAKE_MAX_ROUND_DURATION.key)
    return None if value is None else _duration_ms(LAKE_MAX_ROUND_DURATION, value)


def _duration_ms(option: TableOption, value: str) -> int:
    try:
        return parse_duration_ms(value)
    except FlussTieringError as error:
        raise FlussTieringError(ErrorCode.INVALID_TABLE, f"{option.key}: {error.message}") from error
