"""The bytes of the keys under which the rows of a primary-key table are stored.

Fluss has two layouts. In its own (`CompactedKeyEncoder`), the fields of the key columns follow each other as in a
compacted row, but without null bits. In that of Iceberg's bucket transform (`IcebergKeyEncoder`), which tables with a
key of one column have if they are tiered into Iceberg, a number, a date or a time takes 8 bytes in little-endian order,
a text or a binary is its own bytes, and a decimal is its unscaled value in big-endian order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.bucketing import check_bucket_key_type
from fluss_tiering.formats.buffers import decimal_bytes, numbers
from fluss_tiering.formats.compacted.writing import FieldArrays, as_binary_array, fields_of, write_rows
from fluss_tiering.formats.schema import UNIT_PRECISION
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column

_NUMBER_BYTES: Final = 8
_MICROSECOND_DIGITS: Final = 6
_BYTES: Final = (pa.types.is_string, pa.types.is_binary, pa.types.is_fixed_size_binary)


def encode_keys(records: pa.RecordBatch | pa.Table, key_columns: Sequence[Column]) -> pa.BinaryArray:
    """Return the key of each row.

    Args:
        records: The rows. They have at least the key columns, in the Arrow types of the table.
        key_columns: The key columns, in the order of the primary key.

    Raises:
        FlussTieringError: INVALID_ROWS if a key column has a null, or if the keys take more bytes than an Arrow array
            can hold.
    """
    fields: list[FieldArrays] = []
    for column in key_columns:
        array = _in_one_piece(records.column(column.name))
        if array.null_count:
            raise FlussTieringError(
                ErrorCode.INVALID_ROWS, f"the key column {column.name!r} is null in a row: expected a value"
            )
        fields.extend(fields_of(array, column.data_type))
    return as_binary_array(*write_rows(fields, records.num_rows, header_size=0))


def _in_one_piece(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks or [pa.nulls(0, values.type)])


def encode_iceberg_keys(records: pa.RecordBatch, key: Column) -> pa.BinaryArray:
    """Return the key of each row.

    Args:
        records: The rows. They have at least the column of the key, in the Arrow type of the table.
        key: The only column of the key.

    Raises:
        FlussTieringError: INVALID_ROWS if the column has a null; INVALID_TABLE if Iceberg cannot hash the type.
    """
    check_bucket_key_type(key.data_type)
    values = records.column(key.name)
    if values.null_count:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS, f"the key column {key.name!r} is null in a row: expected a value"
        )
    if any(is_bytes(values.type) for is_bytes in _BYTES):
        return values.cast(pa.binary())
    if pa.types.is_decimal(values.type):
        offsets, data = decimal_bytes(values)
        return as_binary_array(data, offsets)
    counts = numbers(values, key.data_type)
    if pa.types.is_timestamp(values.type) or pa.types.is_time(values.type):
        digits = UNIT_PRECISION[values.type.unit]
        finer = digits - _MICROSECOND_DIGITS
        counts = counts // 10**finer if finer > 0 else counts * 10**-finer
    ends = np.arange(len(counts) + 1, dtype=np.int32) * _NUMBER_BYTES
    return as_binary_array(counts.astype("<i8").view(np.uint8), ends)
