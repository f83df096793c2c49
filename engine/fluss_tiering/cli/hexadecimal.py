"""Bytes as text with two hexadecimal digits for each byte. `scan` prints them so, and `put` reads them so from CSV."""

from __future__ import annotations

import pyarrow as pa

from fluss_tiering.cli.csv_errors import WrongValueError
from fluss_tiering.formats.schema import is_bytes


def texts(values: pa.Array) -> pa.StringArray:
    """Return each value as hexadecimal text, and null for NULL."""
    return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())


def schema_of_texts(schema: pa.Schema) -> pa.Schema:
    """Return the schema with text columns instead of bytes columns."""
    return pa.schema([field.with_type(pa.string()) if is_bytes(field.type) else field for field in schema])


def from_texts(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with bytes in those columns that hold bytes in `schema`.

    Raises:
        WrongValueError: A text is not pairs of hexadecimal digits, or does not have as many bytes as the column holds.
    """
    for position, name in enumerate(batch.schema.names):
        index = schema.get_field_index(name)
        if index >= 0 and is_bytes(schema.field(index).type):
            values = _bytes(name, batch.column(position), schema.field(index).type)
            batch = batch.set_column(position, schema.field(index), values)
    return batch


def _bytes(name: str, digits: pa.Array, kind: pa.DataType) -> pa.Array:
    values: list[bytes | None] = []
    width = kind.byte_width if pa.types.is_fixed_size_binary(kind) else None
    for row, text in enumerate(digits.to_pylist()):
        try:
            value = None if text is None else bytes.fromhex(text)
        except ValueError:
            raise WrongValueError(row, name, text) from None
        if value is not None and width not in (None, len(value)):
            raise WrongValueError(row, name, text)
        values.append(value)
    return pa.array(values, kind)
