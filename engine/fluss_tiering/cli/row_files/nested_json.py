"""Nested values as JSON: rows become objects, and maps become arrays of pairs because keys may be of any type."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.nested_arrays import cast_parts
from fluss_tiering.model.data_type import DataType, DataTypeRoot

NAN: Final = "NaN"
INFINITY: Final = "Infinity"


def texts(values: pa.Array, data_type: DataType) -> pa.StringArray:
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
        return NAN
    return INFINITY if value > 0 else f"-{INFINITY}"


def _number(value: Any) -> Any:  # noqa: ANN401 - a value of any type
    return value if isinstance(value, str | int | bool) else str(value)
