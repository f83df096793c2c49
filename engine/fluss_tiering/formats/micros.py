"""Columns as Iceberg and Spark hold them: as in log batches, but for timestamps, which they count in microseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.nested_arrays import cast_parts
from fluss_tiering.formats.schema import arrow_type, nested_type
from fluss_tiering.model.data_type import DataType, DataTypeRoot, Field

_NANOS_PER_MICRO: Final = 1000


def micros_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of a Fluss type in Spark: timestamps in us, TIMESTAMP_LTZ in UTC, times in ns, all bytes alike."""
    match data_type.root:
        case DataTypeRoot.BINARY:
            return pa.binary()
        case DataTypeRoot.TIME:
            return pa.time64("ns")
        case DataTypeRoot.ARRAY | DataTypeRoot.MAP | DataTypeRoot.ROW:
            return nested_type(data_type.root, [_field(part, micros_type) for part in data_type.fields])
        case DataTypeRoot.TIMESTAMP:
            return pa.timestamp("us")
        case DataTypeRoot.TIMESTAMP_LTZ:
            return pa.timestamp("us", "UTC")
        case _:
            return arrow_type(data_type)


def lake_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of a Fluss type in Iceberg's files: as in Spark, but for times in us and no narrow integers."""
    match data_type.root:
        case DataTypeRoot.TINYINT | DataTypeRoot.SMALLINT:
            return pa.int32()
        case DataTypeRoot.TIME:
            return pa.time64("us")
        case DataTypeRoot.ARRAY | DataTypeRoot.MAP | DataTypeRoot.ROW:
            return nested_type(data_type.root, [_field(part, lake_type) for part in data_type.fields])
        case _:
            return micros_type(data_type)


def _field(part: Field, type_of: Callable[[DataType], pa.DataType]) -> pa.Field:
    return pa.field(part.name, type_of(part.data_type), part.data_type.nullable)


def as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The column in that type: nanoseconds are floored to microseconds, before the epoch too, as in bucketing."""
    return cast_parts(column, wanted, _as_plain_type)


def _as_plain_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = _floored_to_micros(column)
    return pc.cast(column, wanted)


def column_of(kind: pa.DataType, values: npt.NDArray[np.int64] | npt.NDArray[np.int32]) -> pa.Array:
    """The values as a column without nulls; unlike `pa.array` this does not load pandas."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _floored_to_micros(column: pa.Array) -> pa.Array:
    """Arrow's own cast and integer division cut towards zero."""
    counts = pc.fill_null(column.view(pa.int64()), 0).to_numpy() // _NANOS_PER_MICRO
    micros = column_of(pa.timestamp("us", column.type.tz), counts)
    return pc.if_else(column.is_valid(), micros, None) if column.null_count else micros
