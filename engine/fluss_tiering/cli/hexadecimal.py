"""Bytes as text with two hexadecimal digits for each byte. `scan` prints them so, and `put` reads them so from CSV."""

from __future__ import annotations

import pyarrow as pa

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
        pa.ArrowInvalid: A text is not pairs of hexadecimal digits, or does not have as many bytes as the column holds.
            The message names the column and the text.
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
                f"column {name!r} holds {text!r}: expected bytes as pairs of hexadecimal digits, for example 00ff"
            ) from None
    try:
        return pa.array(values, pa.binary()).cast(kind)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {name!r} does not hold {kind} throughout: {error}") from error
