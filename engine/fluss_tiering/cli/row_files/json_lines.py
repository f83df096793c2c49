"""Arrow record batches as JSON lines with one object for each row. Whole columns are converted at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.cli.row_files import hexadecimal, nested_json
from fluss_tiering.model.table import Column, DataTypeRoot

_ROWS_AT_ONCE: Final = 65_536
_NOT_FINITE: Final = {"nan": nested_json.NAN, "inf": nested_json.INFINITY, "-inf": f"-{nested_json.INFINITY}"}
"""The texts that pyarrow makes -> those of JSON."""
_CONTROL_CHARACTERS: Final = "".join(map(chr, range(0x20)))


def json_lines(batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[memoryview]:
    """Return the lines in UTF-8, in chunks of whole lines.

    Numbers are written with all their digits. JSON has no numbers for NaN and infinities, which become the texts that
    Spark reads: "NaN", "Infinity" and "-Infinity". Dates and times are ISO 8601 texts; TIMESTAMP_LTZ values end with
    Z. Bytes are in hexadecimal.

    Args:
        batch: The rows in the Arrow schema of the table.
        columns: The columns of the table.
    """
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        part = batch.slice(start, _ROWS_AT_ONCE)
        pieces: list[pa.Array | str] = []
        for number, (column, values) in enumerate(zip(columns, part.columns, strict=True)):
            name = json.dumps(column.name, ensure_ascii=False)
            pieces += [f"{',' if number else '{'}{name}:", pc.fill_null(_texts(values, column), "null")]
        lines = pc.binary_join_element_wise(*map(_large, pieces), _large("}\n"), _large(""))
        yield _bytes_of(lines)


def _texts(values: pa.Array, column: Column) -> pa.Array:
    """Return each value as JSON text, and null for NULL."""
    match column.data_type.root:
        case DataTypeRoot.CHAR | DataTypeRoot.STRING:
            return _quoted(_escaped(values))
        case DataTypeRoot.BINARY | DataTypeRoot.BYTES:
            return _quoted(hexadecimal.texts(values))
        case DataTypeRoot.FLOAT | DataTypeRoot.DOUBLE:
            return _numbers(values)
        case DataTypeRoot.DATE | DataTypeRoot.TIME:
            return _quoted(values.cast(pa.string()))
        case DataTypeRoot.TIMESTAMP | DataTypeRoot.TIMESTAMP_LTZ as root:
            texts = pc.replace_substring(values.cast(pa.string()), " ", "T", max_replacements=1)
            return _quoted(texts, "Z" if root is DataTypeRoot.TIMESTAMP_LTZ else "")
        case DataTypeRoot.ARRAY | DataTypeRoot.MAP | DataTypeRoot.ROW:
            return nested_json.texts(values, column.data_type)
        case _:
            return values.cast(pa.string())


def _numbers(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    # Readers of JSON may take -0 for a whole number, which has no sign.
    texts = pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)
    for text, name in _NOT_FINITE.items():
        texts = pc.if_else(pc.equal(texts, text), f'"{name}"', texts)
    return texts


def _escaped(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        for character in _CONTROL_CHARACTERS:
            texts = pc.replace_substring(texts, character, json.dumps(character)[1:-1])
    return texts


def _quoted(texts: pa.Array, suffix: str = "") -> pa.Array:
    return pc.binary_join_element_wise('"', texts, f'{suffix}"', "")


def _large(piece: pa.Array | str) -> pa.Array | pa.Scalar:
    """Return the piece with 64-bit offsets, because the lines of many wide rows can exceed 2 GiB."""
    return pa.scalar(piece, pa.large_string()) if isinstance(piece, str) else piece.cast(pa.large_string())


def _bytes_of(lines: pa.Array) -> memoryview:
    """Return the bytes of all lines, which are contiguous in the buffer."""
    _, _, data = lines.buffers()
    return memoryview(data)[: pc.sum(pc.binary_length(lines)).as_py()]
