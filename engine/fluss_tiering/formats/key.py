"""The bytes of the keys under which the rows of a primary-key table are stored.

The layout is that of Fluss's `CompactedKeyEncoder`: the fields of the key columns as in a compacted row, but without
null bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from fluss_tiering.formats.compacted.fields import FieldArrays, as_binary_array, fields_of, write_rows
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column


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
