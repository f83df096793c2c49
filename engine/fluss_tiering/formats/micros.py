"""Columns as Iceberg and Spark hold them. They differ from log batches in timestamps, which count microseconds."""

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
    """Return the Arrow type of a Fluss type in Spark.

    Timestamps count microseconds and times count nanoseconds. TIMESTAMP_LTZ has the zone UTC. BINARY and BYTES have the
    same type.
    """
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
    """Return the Arrow type of a Fluss type in Iceberg's files.

    It is the type in Spark, except that times count microseconds and that integers have 32 or 64 bits.
    """
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
    """Return the column in another type.

    Nanoseconds are rounded down to microseconds, also before the epoch, as in bucketing. Fluss keeps milliseconds of a
    TIME, but some of its clients write Arrow's nanoseconds into logs as they are.
    """
    return cast_parts(column, wanted, _as_plain_type)


def _as_plain_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = _floored_to_micros(column, pa.timestamp("us", column.type.tz))
    elif column.type == pa.time64("ns") and wanted == pa.time64("us"):
        column = _floored_to_micros(column, wanted)
    return pc.cast(column, wanted)


def column_of(kind: pa.DataType, values: npt.NDArray[np.integer]) -> pa.Array:
    """Return the values as a column without nulls. Unlike `pa.array`, this does not load pandas."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _floored_to_micros(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Round timestamps or times down to a type of microseconds. Arrow's own casts round towards zero, or refuse."""
    counts = pc.fill_null(column.view(pa.int64()), 0).to_numpy() // _NANOS_PER_MICRO
    micros = column_of(kind, counts)
    return pc.if_else(column.is_valid(), micros, None) if column.null_count else micros
