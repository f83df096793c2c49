"""Checks that an existing lake table has the layout that tiering writes, and that Spark can read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fluss_tiering.lake.iceberg.layout import PartitionField
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import DataType, DataTypeRoot, TableInfo

_MIN_FORMAT_VERSION: Final = 2


def check_layout(
    name: str,
    *,
    schema: tuple[Mapping[str, Any], Mapping[str, Any]],
    partition: tuple[Mapping[str, Any], Sequence[PartitionField]],
    format_version: int,
) -> None:
    """Compare a lake table with what is expected. Field ids, comments, sort order and properties may differ.

    Args:
        name: The name of the lake table, for the message.
        schema: The actual and the expected schema, in Iceberg's JSON.
        partition: The actual partition spec in Iceberg's JSON, and the expected partition fields.
        format_version: The format version of the lake table.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if something differs; the message names the first difference.
    """
    actual_schema, expected_schema = schema
    actual_spec, expected_partition = partition
    difference = (
        _columns_difference(actual_schema["fields"], expected_schema["fields"])
        or _key_difference(actual_schema, expected_schema)
        or _partition_difference(actual_schema, actual_spec, expected_partition)
    )
    if difference is None and format_version < _MIN_FORMAT_VERSION:
        difference = f"its format version is {format_version}, expected {_MIN_FORMAT_VERSION} or later"
    if difference is not None:
        raise FlussTieringError(
            ErrorCode.LAKE_TABLE_MISMATCH,
            f"the lake table {name} does not have the layout that tiering writes: {difference}; "
            "undo the change, or drop or rename the lake table and re-create the table",
        )


def refuse_times(table: TableInfo, remedy: str) -> None:
    """Refuse a table with a TIME column or a TIME in a nested column, which Iceberg's reader for Spark cannot read.

    Args:
        table: The table.
        remedy: What to do instead, for the message.

    Raises:
        FlussTieringError: INVALID_REQUEST if the table has such a column.
    """
    for column in table.descriptor.columns:
        if _has_time(column.data_type):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"table {table.path} has the column {column.name!r} of type {column.data_type}, which Spark cannot "
                f"read from Iceberg: expected a table without TIME; {remedy}",
            )


def _has_time(kind: DataType) -> bool:
    return kind.root is DataTypeRoot.TIME or any(_has_time(part.data_type) for part in kind.fields)


def _columns_difference(actual: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> str | None:
    for position, column in enumerate(expected, start=1):
        wanted = _column_text(column)
        if position > len(actual):
            return f"column {position} is missing, expected {wanted}"
        found = _column_text(actual[position - 1])
        if found != wanted:
            return f"column {position} is {found}, expected {wanted}"
    if len(actual) > len(expected):
        return f"it has the further column {_column_text(actual[len(expected)])}, expected {len(expected)} columns"
    return None


def _column_text(column: Mapping[str, Any]) -> str:
    return f"{column['name']} {_type_text(column['type'])}{' required' if column['required'] else ''}"


def _type_text(kind: str | Mapping[str, Any]) -> str:
    """Return a type as text, without the ids of its fields."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return f"struct<{', '.join(_column_text(field) for field in kind['fields'])}>"
    if kind["type"] == "list":
        return f"list<{_type_text(kind['element'])}{' required' if kind['element-required'] else ''}>"
    value = f"{_type_text(kind['value'])}{' required' if kind['value-required'] else ''}"
    return f"map<{_type_text(kind['key'])}, {value}>"


def _key_difference(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    found, wanted = _key_names(actual), _key_names(expected)
    if found == wanted:
        return None
    return f"its identifier fields are {sorted(found)}, expected the primary key {sorted(wanted)}"


def _key_names(schema: Mapping[str, Any]) -> set[str]:
    ids = set(schema.get("identifier-field-ids", ()))
    return {field["name"] for field in schema["fields"] if field["id"] in ids}


def _partition_difference(
    schema: Mapping[str, Any], spec: Mapping[str, Any], expected: Sequence[PartitionField]
) -> str | None:
    names = {field["id"]: field["name"] for field in schema["fields"]}
    found = [f"{field['transform']}({names.get(field['source-id'])})" for field in spec["fields"]]
    wanted = [f"{field.transform}({field.column})" for field in expected]
    return None if found == wanted else f"it is partitioned by {found}, expected {wanted}"
