"""Conversions between Fluss's data types and Arrow's, between columns and Arrow schemas, and the choice of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from fluss_tiering.model.data_type import ELEMENT, KEY, VALUE, WITH_PRECISION, Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, DataTypeRoot, TableInfo

TimeUnit = Literal["s", "ms", "us", "ns"]

_FIXED_TYPES: Final[dict[DataTypeRoot, pa.DataType]] = {
    DataTypeRoot.BOOLEAN: pa.bool_(),
    DataTypeRoot.TINYINT: pa.int8(),
    DataTypeRoot.SMALLINT: pa.int16(),
    DataTypeRoot.INT: pa.int32(),
    DataTypeRoot.BIGINT: pa.int64(),
    DataTypeRoot.FLOAT: pa.float32(),
    DataTypeRoot.DOUBLE: pa.float64(),
    DataTypeRoot.CHAR: pa.string(),
    DataTypeRoot.STRING: pa.string(),
    DataTypeRoot.BYTES: pa.binary(),
    DataTypeRoot.DATE: pa.date32(),
}
UNIT_PRECISION: Final[dict[TimeUnit, int]] = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The number of sub-second digits that each Arrow unit of time holds."""
_INTEGERS: Final[dict[pa.DataType, DataTypeRoot]] = {
    pa.int8(): DataTypeRoot.TINYINT,
    pa.uint8(): DataTypeRoot.SMALLINT,
    pa.int16(): DataTypeRoot.SMALLINT,
    pa.uint16(): DataTypeRoot.INT,
    pa.int32(): DataTypeRoot.INT,
    pa.uint32(): DataTypeRoot.BIGINT,
    pa.int64(): DataTypeRoot.BIGINT,
}
_SUPPORTED: Final = (
    "a boolean, an integer of up to 64 bits (32 if unsigned), a float, a decimal of up to 38 digits, a string, "
    "bytes, a date, a time, a timestamp, or a list, a map or a struct of these"
)


def time_unit(precision: int) -> TimeUnit:
    """Return Arrow's unit for a time or timestamp with this number of sub-second digits (Fluss's `ArrowUtils`)."""
    for unit, digits in UNIT_PRECISION.items():
        if precision <= digits:
            return unit
    raise ValueError(f"no Arrow unit holds {precision} sub-second digits")


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type of a Fluss type in log batches (Fluss's `ArrowUtils`).

    The Arrow type of a TIMESTAMP_LTZ has no time zone there. Its values count from the epoch in UTC.
    """
    match data_type.root:
        case DataTypeRoot.DECIMAL:
            return pa.decimal128(data_type.precision, data_type.scale)
        case DataTypeRoot.TIMESTAMP | DataTypeRoot.TIMESTAMP_LTZ:
            return pa.timestamp(time_unit(data_type.precision))
        case DataTypeRoot.TIME:
            return _time_type(time_unit(data_type.precision))
        case DataTypeRoot.BINARY:
            return pa.binary(data_type.length)
        case DataTypeRoot.ARRAY | DataTypeRoot.MAP | DataTypeRoot.ROW:
            return nested_type(data_type.root, [_field(part) for part in data_type.fields])
        case _:
            return _FIXED_TYPES[data_type.root]


def nested_type(root: DataTypeRoot, fields: Sequence[pa.Field]) -> pa.DataType:
    """Return the Arrow type of an ARRAY, a MAP or a ROW with these parts."""
    match root:
        case DataTypeRoot.ARRAY:
            return pa.list_(fields[0])
        case DataTypeRoot.MAP:
            return pa.map_(fields[0], fields[1])
        case _:
            return pa.struct(fields)


def _field(part: Column | Field) -> pa.Field:
    return pa.field(part.name, arrow_type(part.data_type), part.data_type.nullable)


def _time_type(unit: TimeUnit) -> pa.DataType:
    return pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of a table with these columns, in their order and with their nullability."""
    return pa.schema([_field(column) for column in columns])


def column_from_arrow(field: pa.Field) -> Column:
    """Return a column that holds all values of an Arrow field. Its type is wider if Fluss has no equal type.

    Raises:
        FlussTieringError: INVALID_TABLE if no type of Fluss holds the values. The message names the column and its
            type.
    """
    data_type = _data_type_from_arrow(field)
    if data_type is None:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"column {field.name!r} has the type {field.type}, which no table column can hold: expected {_SUPPORTED}",
        )
    return Column(field.name, data_type)


def _data_type_from_arrow(field: pa.Field) -> DataType | None:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    root = _root_from_arrow(kind)
    if root is None:
        return None
    precision = scale = length = 0
    if root is DataTypeRoot.DECIMAL:
        precision, scale = kind.precision, kind.scale
    elif root is DataTypeRoot.BINARY:
        length = kind.byte_width
    elif root in WITH_PRECISION:
        precision = UNIT_PRECISION[kind.unit]
    fields = []
    for part in _parts(kind):
        inner = _data_type_from_arrow(part)
        if inner is None:
            return None
        fields.append(Field(part.name, inner))
    return DataType(root, field.nullable, precision, scale, length, tuple(fields))


def _parts(kind: pa.DataType) -> Sequence[pa.Field]:
    if is_list(kind):
        return [kind.value_field.with_name(ELEMENT)]
    if pa.types.is_map(kind):
        return [kind.key_field.with_name(KEY).with_nullable(False), kind.item_field.with_name(VALUE)]
    return list(kind) if pa.types.is_struct(kind) else ()


def columns_from_arrow(schema: pa.Schema, not_null: Collection[str] = ()) -> tuple[Column, ...]:
    """Return the columns of a table for rows of an Arrow schema. The columns in `not_null` are NOT NULL.

    Raises:
        FlussTieringError: INVALID_TABLE if no type of Fluss holds a column, if two columns have the same name, or if a
            name in `not_null` is not the name of a column.
    """
    names = schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"two columns are named {twice[0]!r}: expected every column to have a name of its own",
        )
    unknown = sorted(set(not_null) - set(names))
    if unknown:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE, f"there is no column {unknown[0]!r}: expected one of {', '.join(names)}"
        )
    return tuple(
        column_from_arrow(field.with_nullable(field.nullable and field.name not in not_null)) for field in schema
    )


def _root_from_arrow(kind: pa.DataType) -> DataTypeRoot | None:
    types = pa.types
    if types.is_integer(kind):
        return _INTEGERS.get(kind)
    if types.is_floating(kind):
        return DataTypeRoot.DOUBLE if types.is_float64(kind) else DataTypeRoot.FLOAT
    if types.is_decimal(kind):
        return DataTypeRoot.DECIMAL if kind.precision <= 38 and 0 <= kind.scale <= kind.precision else None
    if types.is_fixed_size_binary(kind):
        return DataTypeRoot.BINARY if kind.byte_width else DataTypeRoot.BYTES
    if types.is_timestamp(kind):
        return DataTypeRoot.TIMESTAMP if kind.tz is None else DataTypeRoot.TIMESTAMP_LTZ
    if types.is_struct(kind):
        return DataTypeRoot.ROW if kind.num_fields else None
    return next((root for is_of, root in _FAMILIES if is_of(kind)), None)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type holds UTF-8 text, in any of Arrow's layouts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type holds bytes, in any of Arrow's layouts."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type holds lists, in any of Arrow's layouts."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


_FAMILIES: Final[tuple[tuple[Callable[[pa.DataType], bool], DataTypeRoot], ...]] = (
    (pa.types.is_boolean, DataTypeRoot.BOOLEAN),
    (is_text, DataTypeRoot.STRING),
    (is_bytes, DataTypeRoot.BYTES),
    (pa.types.is_date, DataTypeRoot.DATE),
    (pa.types.is_time, DataTypeRoot.TIME),
    (is_list, DataTypeRoot.ARRAY),
    (pa.types.is_map, DataTypeRoot.MAP),
)
"""The Arrow types whose kind alone decides the root."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns that a reader wants, in its order. A reader that only counts rows wants no column.

    Attributes:
        schema: The Arrow schema of the wanted columns.
        included: The indexes of the wanted columns in the table, ascending, or None for all columns.
    """

    schema: pa.Schema
    included: tuple[int, ...] | None

    @classmethod
    def of(cls, table: TableInfo, names: Sequence[str] | None) -> Projection:
        """Return the projection to the columns of these names, or to all columns of the table if there are no names.

        Raises:
            FlussTieringError: INVALID_REQUEST if a column does not exist or is named twice.
        """
        present = table.descriptor.columns
        if names is None:
            return cls(arrow_schema(present), None)
        chosen = named_columns(str(table.path), present, names)
        included = tuple(index for index, column in enumerate(present) if column.name in names)
        return cls(arrow_schema(chosen), None if len(included) == len(present) else included)

    def arrange(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the wanted columns in the reader's order. They come in the order of the table."""
        names = self.schema.names
        return records if records.schema.names == names else records.select(names)


def shown_name(name: str) -> str:
    """Return a name as a list of names shows it: in quotes if it has blanks or commas, or no visible character."""
    return name if re.fullmatch(r"[^\s,]+", name) else repr(name)


def named_columns(table: str, columns: Iterable[Column], names: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of these names, in the order of the names.

    Raises:
        FlussTieringError: INVALID_REQUEST if a column does not exist or is named twice.
    """
    by_name = {column.name: column for column in columns}
    for index, name in enumerate(names):
        if name not in by_name:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"table {table} has no column {name!r}: expected some of {', '.join(map(shown_name, by_name))}",
            )
        if name in names[:index]:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, f"column {name!r} of table {table} is asked for twice: expected it once"
            )
    return tuple(by_name[name] for name in names)


def no_columns(count: int) -> pa.RecordBatch:
    """Return this many rows without a column."""
    return pa.record_batch([pa.nulls(count)], names=[""]).select([])
