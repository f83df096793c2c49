"""The properties of a lake table that decide how files are written and committed. Users may set them as they like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake_table_properties import RETRIES_OF_COMMITS, expected_of_commits
from fluss_tiering.model.table_options import ICEBERG_CODEC, ICEBERG_TARGET_FILE_SIZE

_CODEC: Final = "write.parquet.compression-codec"
_LEVEL: Final = "write.parquet.compression-level"
TARGET_FILE_SIZE: Final = "write.target-file-size-bytes"
_ENCRYPTION: Final = "encryption.key-id"
_BY_OPERATIONS: Final = (
    "Iceberg reads it before each commit, also before one that would change it, so that neither Spark nor PyIceberg "
    "can; replace the table's metadata by `TableOperations.commit` of Iceberg's Java library"
)
_UNCOMPRESSED: Final = "uncompressed"
_CODECS: Final = ("zstd", "gzip", "snappy", "lz4", "brotli")


@dataclass(frozen=True, slots=True)
class WriteProperties:
    """How data files are written.

    Attributes:
        codec: The name of the compression for Parquet's writer; "none" for no compression.
        level: The level of the compression; None for the codec's own.
        target_file_bytes: The size at which a file is finished.
    """

    codec: str
    level: int | None
    target_file_bytes: int


def write_properties(table: str, properties: Mapping[str, str]) -> WriteProperties:
    """Return how the data files of a table with these properties are written.

    Args:
        table: The name of the table in Spark, for messages.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if a property has a value by which no file can be written or committed.
    """
    if _ENCRYPTION in properties:
        refuse(table, _ENCRYPTION, properties[_ENCRYPTION], "no encryption, since executors write plain files")
    for key, value in properties.items():
        if expected := expected_of_commits(key, value):
            refuse(table, key, value, expected, _BY_OPERATIONS if key.startswith(RETRIES_OF_COMMITS) else None)
    codec = properties.get(_CODEC, ICEBERG_CODEC.default).lower()
    known = [name for name in _CODECS if pa.Codec.is_available(name)]
    if codec not in (*known, _UNCOMPRESSED):
        refuse(table, _CODEC, codec, f"one of {', '.join((*known, _UNCOMPRESSED))}")
    return WriteProperties(
        codec="none" if codec == _UNCOMPRESSED else codec,
        level=_level(table, codec, properties.get(_LEVEL)),
        target_file_bytes=target_file_size(table, properties.get(TARGET_FILE_SIZE, ICEBERG_TARGET_FILE_SIZE.default)),
    )


def _level(table: str, codec: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        lowest, highest = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    except (pa.ArrowInvalid, ValueError):
        # The level of another codec, which was there before the codec was changed.
        return None
    if not (re.fullmatch("-?[0-9]{1,10}", text) and lowest <= int(text) <= highest):
        refuse(table, _LEVEL, text, f"a whole number from {lowest} to {highest} for {codec}")
    return int(text)


def target_file_size(table: str, text: str) -> int:
    """Return the size of data files, in bytes, that the property of a table says.

    Args:
        table: The name of the table in Spark, for messages.
        text: The value of the property.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if it is no size.
    """
    if not re.fullmatch("[0-9]{1,18}", text) or int(text) == 0:
        refuse(table, TARGET_FILE_SIZE, text, "a whole number of bytes above 0, of at most 18 digits")
    return int(text)


def refuse(table: str, key: str, value: str, expected: str, remedy: str | None = None) -> NoReturn:
    """Refuse the value of a property.

    Args:
        table: The name of the table in Spark.
        key: The property.
        expected: What was expected instead.
        remedy: How the property is removed; None for a statement of Spark.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH, always.
    """
    remedy = remedy or f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{key}')"
    raise FlussTieringError(
        ErrorCode.LAKE_TABLE_MISMATCH,
        f"the property {key} of the lake table {table} is {value!r}: expected {expected}; set it to that, or remove "
        f"it: {remedy}",
    )
