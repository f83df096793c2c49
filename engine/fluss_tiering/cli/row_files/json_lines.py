"""Arrow record batches as JSON lines with one object for each row. Whole columns are converted at a time.

Nested rows become objects, and maps become arrays of pairs because keys may be of any type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.nested_arrays import cast_parts
from fluss_tiering.model.data_type import DataType
from fluss_tiering.model.table import Column, DataTypeRoot

_ROWS_PER_CHUNK: Final = 65_536
_NAN: Final = "NaN"
_INFINITY: Final = "Infinity"
_NOT_FINITE: Final = {"nan": _NAN, "inf": _INFINITY, "-inf": f"-{_INFINITY}"}
"""The texts that pyarrow makes -> those of JSON."""
_CONTROL_CHARACTERS: Final = "".join(map(chr, range(0x20)))


def json_lines(batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[memoryview]:
    """Return the lines in UTF-8, in chunks of whole lines.

    Numbers are written with all their digits. JSON has no numbers for NaN and infinities, which become the texts that
    Spark reads: "NaN", "Infinity" and "-Infinity". Dates and times are ISO 8601 texts; TIMESTAMP_LTZ values end with
    Z. Bytes are in hexadecimal.
    """
    for start in range(0, batch.num_rows, _ROWS_PER_CHUNK):
        part = batch.slice(start, _ROWS_PER_CHUNK)
        pieces: list[pa.Array | str] = []
        for number, (column, values) in enumerate(zip(columns, part.columns, strict=True)):
            name = json.dumps(column.name, ensure_ascii=False)
            pieces += [f"{',' if number else '{'}{name}:", pc.fill_null(_texts(values, column), "null")]
        lines = pc.binary_join_element_wise(*map(_large, pieces), _large("}\n"), _large(""))
        yield _bytes_of(lines)


def hexadecimal_texts(values: pa.Array) -> pa.StringArray:
    """Return each value as text with two hexadecimal digits for each byte, and null for NULL."""
    return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())


def nested_texts(values: pa.Array, data_type: DataType) -> pa.StringArray:
    """Return each value as JSON text, and null for NULL."""
    # Python's dates and times cover neither all years nor nanoseconds.
    values = cast_parts(values, _with_texts(values.type), _moments)
    return pa.array(
        [
            None if value is None else json.dumps(_plain(value, data_type), ensure_ascii=False, separators=(",", ":"))
            for value in values.to_pylist()
        ],
        pa.string(),
    )


def _with_texts(kind: pa.DataType) -> pa.DataType:
    """Return the type with text for dates, times and timestamps."""
    if pa.types.is_map(kind):
        return pa.map_(_text_field(kind.key_field), _text_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_text_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_text_field(field) for field in kind])
    return pa.string() if pa.types.is_temporal(kind) else kind


def _text_field(field: pa.Field) -> pa.Field:
    return field.with_type(_with_texts(field.type))


def _moments(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return pc.replace_substring(values.cast(kind), " ", "T", max_replacements=1)


def _plain(value: Any, data_type: DataType) -> Any:  # noqa: ANN401 - a value of any type
    if value is None:
        return None
    match data_type.root:
        case DataTypeRoot.ARRAY:
            return [_plain(item, data_type.fields[0].data_type) for item in value]
        case DataTypeRoot.MAP:
            key, item = (field.data_type for field in data_type.fields)
            return [[_plain(each[0], key), _plain(each[1], item)] for each in value]
        case DataTypeRoot.ROW:
            return {field.name: _plain(value[field.name], field.data_type) for field in data_type.fields}
        case DataTypeRoot.FLOAT | DataTypeRoot.DOUBLE:
            return value if math.isfinite(value) else _name(value)
        case DataTypeRoot.TIMESTAMP_LTZ:
            return f"{value}Z"
        case _:
            return value.hex() if isinstance(value, bytes) else _number(value)


def _name(value: float) -> str:
    """Return the text for a number that JSON does not have."""
    if math.isnan(value):
        return _NAN
    return _INFINITY if value > 0 else f"-{_INFINITY}"


def _number(value: Any) -> Any:  # noqa: ANN401 - a value of any type
    return value if isinstance(value, str | int | bool) else str(value)


def _texts(values: pa.Array, column: Column) -> pa.Array:
    """Return each value as JSON text, and null for NULL."""
    match column.data_type.root:
        case DataTypeRoot.CHAR | DataTypeRoot.STRING:
            return _quoted(_escaped(values))
        case DataTypeRoot.BINARY | DataTypeRoot.BYTES:
            return _quoted(hexadecimal_texts(values))
        case DataTypeRoot.FLOAT | DataTypeRoot.DOUBLE:
            return _numbers(values)
        case DataTypeRoot.DATE | DataTypeRoot.TIME:
            return _quoted(values.cast(pa.string()))
        case DataTypeRoot.TIMESTAMP | DataTypeRoot.TIMESTAMP_LTZ as root:
            texts = pc.replace_substring(values.cast(pa.string()), " ", "T", max_replacements=1)
            return _quoted(texts, "Z" if root is DataTypeRoot.TIMESTAMP_LTZ else "")
        case DataTypeRoot.ARRAY | DataTypeRoot.MAP | DataTypeRoot.ROW:
            return nested_texts(values, column.data_type)
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
