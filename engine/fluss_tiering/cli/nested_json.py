"""Nested values as JSON texts: arrays, objects for rows, arrays of pairs for maps, whose keys may be of any type."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

import pyarrow as pa

from fluss_tiering.model.data_type import DataType, DataTypeRoot


def texts(values: pa.Array, data_type: DataType) -> pa.StringArray:
    """Each value as JSON; null where it is NULL."""
    return pa.array(
        [
            None if value is None else json.dumps(_plain(value, data_type), ensure_ascii=False, separators=(",", ":"))
            for value in values.to_pylist()
        ],
        pa.string(),
    )


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
            return value if math.isfinite(value) else None
        case DataTypeRoot.TIMESTAMP_LTZ:
            return f"{value.isoformat()}Z"
        case _:
            if isinstance(value, bytes):
                return value.hex()
            return value.isoformat() if isinstance(value, dt.date | dt.time) else _number(value)


def _number(value: Any) -> Any:  # noqa: ANN401 - a value of any type
    return value if isinstance(value, str | int | bool) else str(value)
