"""Bytes as text: two hexadecimal digits each, as `scan` shows them and `put` reads them from CSV."""

from __future__ import annotations

import pyarrow as pa

from fluss_tiering.formats.schema import is_bytes


def texts(values: pa.Array) -> pa.StringArray:
    """The digits of each value; null where it is NULL."""
    return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())


def schema_of_texts(schema: pa.Schema) -> pa.Schema:
    """The schema with texts instead of bytes."""
    return pa.schema([field.with_type(pa.string()) if is_bytes(field.type) else field for field in schema])


def from_texts(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with bytes in the columns that hold bytes in `schema`.

    Raises:
        pa.ArrowInvalid: naming the column and the first text that is not pairs of hexadecimal digits, or not as many
            bytes as the column holds.
    """
    for position, name in enumerate(batch.schema.names):
        index = schema.get_field_index(name)
        if index >= 0 and is_bytes(schema.field(index).type):
            values = _bytes(name, batch.column(position), schema.field(index).type)
            batch = batch.set_column(position, schema.field(index), values)
    return batch


def _bytes(name: str, digits: pa.Array, kind: pa.DataType) -> pa.Array:
    values: list[bytes | None] = []
    for text in digits.to_pylist():
        try:
            values.append(None if text is None else bytes.fromhex(text))
        except ValueError:
            raise pa.ArrowInvalid(
                f"column {name!r} holds {text!r}: expected bytes as pairs of hexadecimal digits, as 00ff"
            ) from None
    try:
        return pa.array(values, pa.binary()).cast(kind)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {name!r} does not hold {kind} throughout: {error}") from error
