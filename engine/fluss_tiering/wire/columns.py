"""Conversions between columns, with their data types, and their messages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.model.data_type import MAX_NESTING, DataType, DataTypeRoot, Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column
from fluss_tiering.wire.checks import MAX_COLUMNS, bounded_total, required

_ROOT_PREFIX: Final = "PB_DATA_TYPE_ROOT_"
_ROOTS: Final[Mapping[DataTypeRoot, tables_pb2.PbDataTypeRoot.ValueType]] = {
    root: tables_pb2.PbDataTypeRoot.Value(_ROOT_PREFIX + root.name) for root in DataTypeRoot
}
_ROOTS_BY_NUMBER: Final = {number: root for root, number in _ROOTS.items()}


def column_to_pb(column: Column | Field) -> tables_pb2.PbColumn:
    """Return the message of a column, or of a field of a nested type."""
    return tables_pb2.PbColumn(
        name=column.name,
        data_type=tables_pb2.PbDataType(
            root=_ROOTS[column.data_type.root],
            nullable=column.data_type.nullable,
            precision=column.data_type.precision,
            scale=column.data_type.scale,
            length=column.data_type.length,
            fields=[column_to_pb(field) for field in column.data_type.fields],
        ),
        comment=column.comment,
    )


def bounded_columns(
    message: tables_pb2.PbTableDescriptor, columns: Collection[tables_pb2.PbColumn]
) -> Collection[tables_pb2.PbColumn]:
    """Return the columns of a table's definition.

    Raises:
        FlussTieringError: INVALID_REQUEST if the columns and the fields of their types are more than `MAX_COLUMNS`.
    """
    total, level = len(columns), [columns]
    for _ in range(MAX_NESTING + 1):
        # No deeper level is looked at before the number of fields of this one is known to be small.
        bounded_total(message, "columns", total, MAX_COLUMNS)
        level = [column.data_type.fields for columns in level for column in columns if column.data_type.fields]
        total += sum(len(fields) for fields in level)
    bounded_total(message, "columns", total, MAX_COLUMNS)
    return columns


def column_from_pb(message: tables_pb2.PbColumn) -> Column:
    """Return the column of a message.

    Raises:
        FlussTieringError: INVALID_REQUEST if the column has no type; INVALID_TABLE if its type is not valid.
    """
    return Column(message.name, _data_type(message, 0), message.comment if message.HasField("comment") else None)


def _data_type(message: tables_pb2.PbColumn, depth: int) -> DataType:
    data_type = required(message, "data_type", message.data_type)
    if data_type.root not in _ROOTS_BY_NUMBER:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"column {message.name!r}: type {data_type.root} is unknown: expected one of {', '.join(DataTypeRoot)}",
        )
    if depth > MAX_NESTING:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE, f"column {message.name!r}: types are nested more than {MAX_NESTING} deep"
        )
    return DataType(
        _ROOTS_BY_NUMBER[data_type.root],
        data_type.nullable,
        data_type.precision,
        data_type.scale,
        data_type.length,
        tuple(
            Field(part.name, _data_type(part, depth + 1), part.comment if part.HasField("comment") else None)
            for part in data_type.fields
        ),
    )
