"""The columns of a lake table follow those of its table, if these are altered here and not by Fluss.

A property of the lake table says which schema of which table it follows. It changes in the same commit as the columns.
Columns are told apart by their ids in the table, and found in the lake table by their names.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from fluss_tiering.lake.iceberg.layout import schema_json
from fluss_tiering.lake.iceberg.library import JavaTable
from fluss_tiering.lake.iceberg.metadata.own_commits import newest_own_commit
from fluss_tiering.lake.iceberg.validation import is_wider
from fluss_tiering.lake.names import lake_table_name, quoted
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import OLDER_TABLE_REMEDY
from fluss_tiering.model.table import BUCKET_COLUMN, Column, TableDescriptor, TableInfo

_FOLLOWS: Final = "fluss-tiering.schema"


def following(table: TableInfo) -> dict[str, str]:
    """Return the properties of a lake table that follows the present schema of a table."""
    return {_FOLLOWS: f"{table.table_id}:{table.schema_id}"}


def followed(table: TableInfo, handle: JavaTable, described: Mapping[str, Any]) -> TableInfo:
    """Return a table under the schema that its lake table follows.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the schema is newer than the table, or if the lake table has rows of
            another table; STORAGE if the history cannot be read.
    """
    table_id, _, text = described["properties"].get(_FOLLOWS, "").partition(":")
    schema_id = int(text) if table_id == str(table.table_id) and text.isdecimal() else None
    if schema_id is not None and schema_id > table.schema_id:
        raise FlussTieringError(
            ErrorCode.LAKE_TABLE_MISMATCH,
            f"the lake table {table.lake_path} has the columns of schema {schema_id} of {table.path}, expected schema "
            f"{table.schema_id} or an older one: if the columns were altered just now, run this again; otherwise the "
            f"storage was restored from an older backup: {OLDER_TABLE_REMEDY}",
        )
    if not table.schemas:
        return table
    known = {each.schema_id for each in table.schemas}
    return table.as_of(schema_id if schema_id in known else _presumed(table, handle, described))


def _presumed(table: TableInfo, handle: JavaTable, described: Mapping[str, Any]) -> int:
    """Return the id of the schema that a lake table follows if it does not say so.

    Rounds of an earlier version made it for the first schema, or somebody else did for one that had these columns.
    """
    if newest_own_commit(table, handle) is not None:
        return table.schemas[0].schema_id
    names = {field["name"] for field in described["schema"]["fields"]}
    fitting = (each.schema_id for each in reversed(table.schemas) if names.issuperset(c.name for c in each.columns))
    return next(fitting, table.schema_id)


def changes(before: TableInfo, table: TableInfo, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes that make a lake table follow a table, for `ColumnChanges` of the Java library.

    A column that was dropped stays, as a further one, if the lake table was ever partitioned or sorted by it.

    Args:
        before: The table under the schema that the lake table follows.
        described: The description of the lake table.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the lake table has a further column with the name of a new one.
    """
    schema = described["schema"]
    fields = {field["name"]: field for field in schema["fields"]}
    orders = (*described["specs"], described["sortOrder"])
    used = {field["source-id"] for each in orders for field in each["fields"]}
    old, new = _by_id(before), _by_id(table)
    gone = [fields[column.name] for number, column in old.items() if number not in new and column.name in fields]
    stay = [(column.name, new[number]) for number, column in old.items() if number in new and column.name in fields]
    added = [column for number, column in new.items() if number not in old]
    dropped = [field["name"] for field in gone if field["id"] not in used]
    renamed = {name: column.name for name, column in stay if name != column.name}
    kinds = zip([name for name, _ in stay], _schema([column for _, column in stay])["fields"], strict=True)
    widened = [{**kind, "name": name} for name, kind in kinds if _widens(fields[name]["type"], kind["type"])]
    others = fields.keys() - dropped - renamed.keys()
    sources = {field["source-id"] for each in described["specs"] for field in each["fields"]}
    partitioned = {field["name"] for field in schema["fields"] if field["id"] in sources}
    for name in (*renamed.values(), *(column.name for column in added)):
        _check_name(table, name, others, partitioned)
    return {
        "schema": schema["schema-id"],
        "dropped": dropped,
        "optional": [field["name"] for field in gone if field["id"] in used and field["required"]],
        "widened": {**_schema(()), "fields": widened},
        "renamed": list(renamed.items()),
        "added": _schema(added),
        "before": BUCKET_COLUMN if BUCKET_COLUMN in fields else None,
        "properties": following(table),
    }


def _check_name(table: TableInfo, name: str, others: Iterable[str], partitioned: Container[str]) -> None:
    for other in others:
        # Spark ignores the case of column names.
        if other.lower() == name.lower():
            lake = lake_table_name(table)
            if other in partitioned:
                # Iceberg lets no other column have the name of a partition field.
                remedy = f"fluss-tiering tables alter {table.path} --rename-column '{name}={name}_2'"
            else:
                remedy = f"ALTER TABLE {lake} RENAME COLUMN {quoted(other)} TO {quoted(f'{other}_of_lake')}"
            raise FlussTieringError(
                ErrorCode.LAKE_TABLE_MISMATCH,
                f"the lake table {lake} has a column {quoted(other)} already, which is not the column {quoted(name)} "
                f"of {table.path}: expected none of this name; {remedy}",
            )


def _widens(found: object, wanted: object) -> bool:
    return isinstance(found, str) and isinstance(wanted, str) and found != wanted and is_wider(found, wanted)


def _schema(columns: Iterable[Column]) -> dict[str, Any]:
    return schema_json(TableDescriptor(tuple(columns)), clean=True)


def _by_id(table: TableInfo) -> dict[int, Column]:
    present = table.present_schema
    return dict(zip(present.column_ids, present.columns, strict=True))
