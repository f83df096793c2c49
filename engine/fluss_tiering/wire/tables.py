"""Conversions between tables, their columns, options and storage, and their messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fluss_tiering.api.v1 import common_pb2, tables_pb2
from fluss_tiering.model.column_changes import AddColumn, ColumnChange, DropColumn, RenameColumn, WidenColumn
from fluss_tiering.model.data_type import MAX_NESTING, DataType, DataTypeRoot, Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import (
    Column,
    StorageDescription,
    TableDescriptor,
    TableInfo,
    TablePath,
    TableSchema,
    WriteKind,
)
from fluss_tiering.model.table_options import check_option_key
from fluss_tiering.wire.checks import MAX_COLUMNS, bounded, bounded_total, required
from fluss_tiering.wire.fields import SharedFields

_ROOT_PREFIX: Final = "PB_DATA_TYPE_ROOT_"
_ROOTS: Final[Mapping[DataTypeRoot, tables_pb2.PbDataTypeRoot.ValueType]] = {
    root: tables_pb2.PbDataTypeRoot.Value(_ROOT_PREFIX + root.name) for root in DataTypeRoot
}
_ROOTS_BY_NUMBER: Final = {number: root for root, number in _ROOTS.items()}
_KIND_PREFIX: Final = "PB_WRITE_KIND_"
_KINDS: Final[Mapping[WriteKind, tables_pb2.PbWriteKind.ValueType]] = {
    kind: tables_pb2.PbWriteKind.Value(_KIND_PREFIX + kind.name) for kind in WriteKind
}
_KINDS_BY_NUMBER: Final = {number: kind for kind, number in _KINDS.items()}
_DESCRIPTION: Final = SharedFields(StorageDescription, tables_pb2.DescribeStorageResponse)


def path_to_pb(path: TablePath | str) -> common_pb2.PbTablePath:
    """Return the message of a table's path. The text "database.table" is a path, too.

    Raises:
        FlussTieringError: INVALID_TABLE if the text is no path.
    """
    if isinstance(path, str):
        path = TablePath.parse(path)
    return common_pb2.PbTablePath(database_name=path.database, table_name=path.table)


def path_from_pb(message: common_pb2.PbTablePath) -> TablePath:
    """Return the table's path of a message.

    Raises:
        FlussTieringError: INVALID_TABLE if a name is not valid.
    """
    return _path(message.database_name, message.table_name)


@lru_cache(maxsize=1 << 15)
def _path(database: str, table: str) -> TablePath:
    # One answer may name ten thousand tables, and the next one the same tables: each name is checked once only.
    return TablePath(database, table)


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
    message: tables_pb2.PbTableDescriptor | tables_pb2.AlterTableRequest, columns: Collection[tables_pb2.PbColumn]
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


def descriptor_to_pb(descriptor: TableDescriptor) -> tables_pb2.PbTableDescriptor:
    """Return the message of a table's definition."""
    return tables_pb2.PbTableDescriptor(
        columns=[column_to_pb(column) for column in descriptor.columns],
        primary_key=descriptor.primary_key,
        bucket_keys=descriptor.bucket_keys,
        num_buckets=descriptor.num_buckets,
        properties=descriptor.properties,
        comment=descriptor.comment,
        partition_keys=descriptor.partition_keys,
        auto_increment_columns=descriptor.auto_increment_columns,
    )


def descriptor_from_pb(message: tables_pb2.PbTableDescriptor) -> TableDescriptor:
    """Return the table's definition of a message.

    Raises:
        FlussTieringError: INVALID_REQUEST if a column has no type or there are too many columns; INVALID_TABLE if a
            column's type is not valid.
    """
    return TableDescriptor(
        columns=tuple(column_from_pb(column) for column in bounded_columns(message, message.columns)),
        primary_key=tuple(bounded(message, "primary_key", message.primary_key)),
        bucket_keys=tuple(bounded(message, "bucket_keys", message.bucket_keys)),
        num_buckets=message.num_buckets,
        properties=dict(bounded(message, "properties", message.properties)),
        comment=message.comment if message.HasField("comment") else None,
        partition_keys=tuple(bounded(message, "partition_keys", message.partition_keys)),
        auto_increment_columns=tuple(bounded(message, "auto_increment_columns", message.auto_increment_columns)),
    )


def table_to_pb(table: TableInfo) -> tables_pb2.PbTableInfo:
    """Return the message of a table."""
    return tables_pb2.PbTableInfo(
        table_id=table.table_id,
        table_path=path_to_pb(table.path),
        schema_id=table.schema_id,
        descriptor=descriptor_to_pb(table.descriptor),
        created_time=table.created_time,
        lake_catalog_properties=table.lake_catalog_properties,
        bucket_count_epoch=table.bucket_count_epoch,
        schemas=[
            tables_pb2.PbTableSchema(
                schema_id=schema.schema_id, columns=map(column_to_pb, schema.columns), column_ids=schema.column_ids
            )
            for schema in table.schemas
        ],
    )


def table_from_pb(message: tables_pb2.PbTableInfo) -> TableInfo:
    """Return the table of a message."""
    return TableInfo(
        table_id=message.table_id,
        path=path_from_pb(message.table_path),
        schema_id=message.schema_id,
        descriptor=descriptor_from_pb(message.descriptor),
        created_time=message.created_time,
        lake_catalog_properties=dict(message.lake_catalog_properties),
        bucket_count_epoch=message.bucket_count_epoch,
        schemas=tuple(
            TableSchema(schema.schema_id, tuple(map(column_from_pb, schema.columns)), tuple(schema.column_ids))
            for schema in message.schemas
        ),
    )


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of a table's options or columns.

    Attributes:
        set_properties: The options to set, by key.
        reset_properties: The keys of the options to reset to their defaults.
        column_changes: The changes of columns, in their order. There are none beside changes of options.
    """

    set_properties: Mapping[str, str]
    reset_properties: frozenset[str]
    column_changes: tuple[ColumnChange, ...] = ()

    def apply(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the options after the change.

        Raises:
            FlussTieringError: INVALID_TABLE if an option to reset is not set and is no option of tables at all.
        """
        for key in sorted(self.reset_properties - properties.keys()):
            check_option_key(key)
        kept = {key: value for key, value in properties.items() if key not in self.reset_properties}
        return {**kept, **self.set_properties}


def alteration_to_pb(
    path: TablePath,
    set_properties: Mapping[str, str],
    reset_properties: Iterable[str],
    column_changes: Iterable[ColumnChange],
) -> tables_pb2.AlterTableRequest:
    """Return the message of a change of a table's options or columns."""
    return tables_pb2.AlterTableRequest(
        table_path=path_to_pb(path),
        set_properties=set_properties,
        reset_properties=reset_properties,
        column_changes=map(_change_to_pb, column_changes),
    )


def _change_to_pb(change: ColumnChange) -> tables_pb2.PbColumnChange:
    match change:
        case AddColumn(column):
            return tables_pb2.PbColumnChange(add=column_to_pb(column))
        case RenameColumn(name, new_name):
            return tables_pb2.PbColumnChange(rename=tables_pb2.PbColumnRename(name=name, new_name=new_name))
        case DropColumn(name):
            return tables_pb2.PbColumnChange(drop=name)
        case WidenColumn(name, data_type):
            return tables_pb2.PbColumnChange(widen=column_to_pb(Column(name, data_type)))


def _change_from_pb(message: tables_pb2.PbColumnChange) -> ColumnChange:
    match message.WhichOneof("change"):
        case "add":
            return AddColumn(column_from_pb(message.add))
        case "rename":
            return RenameColumn(message.rename.name, message.rename.new_name)
        case "drop":
            return DropColumn(message.drop)
        case "widen":
            widened = column_from_pb(message.widen)
            return WidenColumn(widened.name, widened.data_type)
        case _:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                "a PbColumnChange changes nothing that this server knows: expected add, rename, drop or widen",
            )


def alteration_from_pb(message: tables_pb2.AlterTableRequest) -> Alteration:
    """Return the change of a table's options or columns of a message.

    Raises:
        FlussTieringError: INVALID_REQUEST if it changes nothing, or options and columns, or if it names an option
            without a key, or an option both to set and to reset, or an unknown change; INVALID_TABLE if the type of a
            column is not valid.
    """
    changes = bounded(message, "column_changes", message.column_changes)
    bounded_columns(message, [column for change in changes for column in (change.add, change.widen)])
    alteration = Alteration(
        dict(bounded(message, "set_properties", message.set_properties)),
        frozenset(bounded(message, "reset_properties", message.reset_properties)),
        tuple(map(_change_from_pb, changes)),
    )
    if bool(alteration.set_properties or alteration.reset_properties) == bool(alteration.column_changes):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"AlterTableRequest changes {'options and columns' if alteration.column_changes else 'nothing'}: expected "
            "options to set or to reset, or changes of columns, each in a request of its own",
        )
    both = sorted(alteration.reset_properties.intersection(alteration.set_properties))
    if both or "" in alteration.set_properties or "" in alteration.reset_properties:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"AlterTableRequest sets and resets {both[0]!r}: expected one of them"
            if both
            else "AlterTableRequest names an option without a key: expected a key, for example "
            "table.datalake.freshness",
        )
    return alteration


def kind_to_pb(kind: WriteKind) -> tables_pb2.PbWriteKind.ValueType:
    """Return the message value of a write kind.

    Raises:
        ValueError: If it is no write kind.
    """
    return _KINDS[WriteKind(kind)]


def kind_from_pb(number: tables_pb2.PbWriteKind.ValueType) -> WriteKind:
    """Return the write kind of a message value.

    Raises:
        FlussTieringError: INVALID_REQUEST if the kind is not set or not known.
    """
    if number not in _KINDS_BY_NUMBER:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"write kind {number} is unknown: expected one of {', '.join(WriteKind)}"
        )
    return _KINDS_BY_NUMBER[number]


def description_to_pb(description: StorageDescription) -> tables_pb2.DescribeStorageResponse:
    """Return the message of a server's storage."""
    return tables_pb2.DescribeStorageResponse(**_DESCRIPTION.of_value(description))


def description_from_pb(message: tables_pb2.DescribeStorageResponse) -> StorageDescription:
    """Return the server's storage of a message."""
    return StorageDescription(**_DESCRIPTION.of_message(message))
