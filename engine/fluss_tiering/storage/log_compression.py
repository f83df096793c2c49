"""How the log batches of a table are compressed, for both storages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fluss_tiering.formats.log.batch import LogCompression
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor
from fluss_tiering.model.table_options import LOG_COMPRESSION

_COMPRESSIONS: Final[Mapping[str, LogCompression]] = {"NONE": "NONE", "LZ4_FRAME": "LZ4_FRAME", "ZSTD": "ZSTD"}


def compression_of(descriptor: TableDescriptor) -> LogCompression:
    """Return how the log batches of a table are compressed.

    Raises:
        FlussTieringError: INVALID_TABLE if the table's option names an unknown compression.
    """
    value = descriptor.properties.get(LOG_COMPRESSION.key, LOG_COMPRESSION.default)
    compression = _COMPRESSIONS.get(value.upper())
    if compression is None:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"{LOG_COMPRESSION.key} is {value!r}: expected one of {', '.join(_COMPRESSIONS)}",
        )
    return compression
