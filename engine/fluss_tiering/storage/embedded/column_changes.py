"""What a table is after a change of its columns, and which changes are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NoReturn

from fluss_tiering.formats.schema import shown_name
from fluss_tiering.model.column_changes import AddColumn, ColumnChange, DropColumn, RenameColumn
from fluss_tiering.model.data_type import DataType, DataTypeRoot
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.partition_by import parse_partition_by
from fluss_tiering.model.table import Column, TableDescriptor, TableInfo, TableSchema
from fluss_tiering.model.table_options import (
    LAKE_PARTITION_BY,
    LAKE_RECORD_TIME_FIELD,
    LAKE_SORT_BY,
    record_expiry,
    sort_columns_of,
)
from fluss_tiering.storage.embedded.validation import check_altered

_MAX_COLUMNS_OF_ALL_SCHEMAS: Final = 20_000
"""Every answer about a table has all of its schemas, and must fit into one message."""
_INTEGERS: Final = (DataTypeRoot.TINYINT, DataTypeRoot.SMALLINT, DataTypeRoot.INT, DataTypeRoot.BIGINT)
_WIDER: Final = {
    **{root: _INTEGERS[number + 1 :] for number, root in enumerate(_INTEGERS)},
    DataTypeRoot.FLOAT: (DataTypeRoot.DOUBLE,),
}


def with_changed_columns(table: TableInfo, changes: Sequence[ColumnChange]) -> TableInfo:
    """Return a table after changes of its columns, which are made in their order.

    Raises:
        FlussTieringError: INVALID_TABLE if a change is refused.
    """
    return _Changed(table).by(changes)


class _Changed:
    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._schemas = table.schemas or (table.present_schema,)
        present = table.present_schema
        self._columns = dict(zip(present.column_ids, present.columns, strict=True))
        # No column gets the id of another one that was dropped.
        self._next_id = 1 + max(number for schema in self._schemas for number in schema.column_ids)

    def by(self, changes: Sequence[ColumnChange]) -> TableInfo:
        for change in changes:
            self._make(change)
        schema = TableSchema(self._table.schema_id + 1, tuple(self._columns.values()), tuple(self._columns))
        descriptor = replace(self._table.descriptor, columns=schema.columns)
        check_altered(descriptor)
        schemas = (*self._schemas, schema)
        if sum(len(each.columns) for each in schemas) > _MAX_COLUMNS_OF_ALL_SCHEMAS:
            _refuse(
                f"the columns of {self._table.path} were altered too often: expected at most "
                f"{_MAX_COLUMNS_OF_ALL_SCHEMAS:,} columns in all {len(schemas)} schemas together, which are all kept, "
                "since rows are stored by them; make another table, and alter several columns at once"
            )
        return replace(self._table, schema_id=schema.schema_id, descriptor=descriptor, schemas=schemas)

    def _make(self, change: ColumnChange) -> None:
        if isinstance(change, AddColumn):
            self._check_new(change.column.name)
            if not change.column.data_type.nullable:
                _refuse(
                    f"the new column {change.column.name!r} is {change.column.data_type}: expected it to be nullable, "
                    "since the rows that are there have no value of it"
                )
            self._columns[self._next_id] = change.column
            self._next_id += 1
            return
        number, column = self._free(change.name)
        if isinstance(change, DropColumn):
            del self._columns[number]
        elif isinstance(change, RenameColumn):
            self._check_new(change.new_name)
            self._columns[number] = replace(column, name=change.new_name)
        else:
            self._columns[number] = replace(column, data_type=_widened(column, change.data_type))

    def _check_new(self, name: str) -> None:
        if any(column.name == name for column in self._columns.values()):
            _refuse(f"table {self._table.path} has a column {name!r} already: expected another name")

    def _free(self, name: str) -> tuple[int, Column]:
        """Return the id of a column that nothing else of the table refers to, and the column."""
        found = [number for number, column in self._columns.items() if column.name == name]
        if not found:
            names = ", ".join(shown_name(column.name) for column in self._columns.values())
            _refuse(f"table {self._table.path} has no column {name!r}: expected one of {names}")
        for user in _users(self._table.descriptor, name):
            _refuse(
                f"the column {name!r} of table {self._table.path} is used by {user}: expected a column that nothing "
                "refers to, since the rows in the lake are laid out by this one"
            )
        return found[0], self._columns[found[0]]


def _users(descriptor: TableDescriptor, name: str) -> Iterator[str]:
    properties = descriptor.properties
    text = properties.get(LAKE_PARTITION_BY.key)
    by = () if text is None else parse_partition_by(text)
    expiry = record_expiry(properties)
    users: dict[str, Iterable[str]] = {
        "the primary key": descriptor.primary_key,
        "the bucket key": descriptor.bucket_keys,
        "the partition key": descriptor.partition_keys,
        f"the option {LAKE_PARTITION_BY.key}": [each.column for each in by],
        f"the option {LAKE_SORT_BY.key}": sort_columns_of(properties),
        f"the option {LAKE_RECORD_TIME_FIELD.key}": expiry[:1] if expiry else (),
    }
    return (user for user, names in users.items() if name in names)


def _widened(column: Column, wanted: DataType) -> DataType:
    """Return a wider type of a column that may be null as it was before."""
    before = column.data_type
    if before.root is wanted.root is DataTypeRoot.DECIMAL:
        wider = before.scale == wanted.scale and before.precision < wanted.precision
    else:
        wider = wanted.root in _WIDER.get(before.root, ())
    if not wider or (before.nullable and not wanted.nullable):
        known = ", ".join(_WIDER.get(before.root, ()))
        if before.root is DataTypeRoot.DECIMAL:
            known = f"a DECIMAL with more than {before.precision} digits, {before.scale} of them after the point"
        _refuse(
            f"the column {column.name!r} is {before} and cannot become {wanted}: expected "
            + (f"a wider type: {known}" if known else "it to stay, since this type has no wider one in the lake")
        )
    return replace(wanted, nullable=before.nullable)


def _refuse(message: str) -> NoReturn:
    raise FlussTieringError(ErrorCode.INVALID_TABLE, message)
