"""Bytes as text with two hexadecimal digits for each byte. `scan` prints them so, and `put` reads them so from CSV."""

from __future__ import annotations

import pyarrow as pa

from fluss_tiering.cli.row_files.csv_errors import WrongValueError


def texts(values: pa.Array) -> pa.StringArray:
    """Return each value as hexadecimal text, and null for NULL."""
    return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())


def bytes_of(name: str, digits: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Return the bytes of each text, and null for null.

    Args:
        name: The name of the column, for an error.
        digits: The texts.
        kind: The Arrow type of the bytes.

    Raises:
        WrongValueError: A text is not pairs of hexadecimal digits, or does not have as many bytes as the column holds.
    """
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
