"""The Arrow types that the columns of written rows may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.schema import is_bytes, is_list, is_text
from fluss_tiering.model.data_type import NESTED, DataType, DataTypeRoot


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_exact_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _is_timestamp_without_zone(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


_ACCEPTED: Final[dict[DataTypeRoot, Callable[[pa.DataType], bool]]] = {
    DataTypeRoot.BOOLEAN: pa.types.is_boolean,
    DataTypeRoot.TINYINT: _is_number,
    DataTypeRoot.SMALLINT: _is_number,
    DataTypeRoot.INT: _is_number,
    DataTypeRoot.BIGINT: _is_number,
    DataTypeRoot.FLOAT: _is_number,
    DataTypeRoot.DOUBLE: _is_number,
    DataTypeRoot.DECIMAL: _is_exact_number,
    DataTypeRoot.CHAR: is_text,
    DataTypeRoot.STRING: is_text,
    DataTypeRoot.BINARY: is_bytes,
    DataTypeRoot.BYTES: is_bytes,
    DataTypeRoot.DATE: pa.types.is_date,
    DataTypeRoot.TIME: pa.types.is_time,
    DataTypeRoot.ARRAY: is_list,
    DataTypeRoot.MAP: pa.types.is_map,
    DataTypeRoot.ROW: pa.types.is_struct,
    DataTypeRoot.TIMESTAMP: _is_timestamp_without_zone,
    DataTypeRoot.TIMESTAMP_LTZ: pa.types.is_timestamp,
}
"""The Arrow types whose values a column takes. A TIMESTAMP_LTZ column takes a timestamp without a zone as UTC."""


def accepts(root: DataTypeRoot, offered: pa.DataType) -> bool:
    """Tell whether a column of this type takes values of an Arrow type, provided that each value fits."""
    return _ACCEPTED[root](offered)


def fits(offered: pa.DataType, data_type: DataType) -> bool:
    """Tell whether a cast from an Arrow type to a type changes no value and no part of a value."""
    if pa.types.is_dictionary(offered):
        offered = offered.value_type
    if pa.types.is_null(offered):
        return True
    if not accepts(data_type.root, offered) or (
        pa.types.is_decimal(offered) and not 0 <= offered.scale <= offered.precision
    ):
        return False
    if pa.types.is_map(offered):
        inner = [offered.key_type, offered.item_type]
    elif pa.types.is_struct(offered):
        parts = {part.name: part.data_type for part in data_type.fields}
        return all(field.name in parts and fits(field.type, parts[field.name]) for field in offered)
    elif data_type.root in NESTED:
        inner = [offered.value_type]
    else:
        return data_type.root is not DataTypeRoot.FLOAT or not pa.types.is_float64(offered)
    return all(fits(kind, part.data_type) for kind, part in zip(inner, data_type.fields, strict=True))
