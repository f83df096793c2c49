"""Checks that rounds can write to a lake table that users may have changed, and that Spark can read it.

Columns are found by their names, so that their order does not matter. Further columns, wider types and columns that
became nullable are no obstacle. Each other difference is refused with the statement that removes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from fluss_tiering.lake.names import quoted
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.partition_by import PartitionTransform, transform_of_iceberg
from fluss_tiering.model.table import SYSTEM_COLUMNS, DataType, DataTypeRoot, TableInfo

_MIN_FORMAT_VERSION: Final = 2
_WIDER: Final = {"int": "long", "float": "double"}
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_SQL_TYPES: Final = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "binary": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
}

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LakeLayout:
    """The layout of a lake table, as far as tiering depends on it.

    Attributes:
        schema: The schema, in Iceberg's JSON.
        specs: All partition specs, in Iceberg's JSON. The default one is first.
        other_specs_in_use: Whether there may be data files of other specs than the default one.
        format_version: The format version.
    """

    schema: Json
    specs: Sequence[Json]
    other_specs_in_use: bool
    format_version: int


def check_layout(name: str, layout: LakeLayout, schema: Json, partition: Sequence[PartitionTransform]) -> Json:
    """Check a lake table, and return the partition spec with which files are written, in Iceberg's JSON.

    Args:
        name: The name of the lake table in SQL, for the statements in messages.
        schema: The expected schema, in Iceberg's JSON.
        partition: The expected partition fields.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the table cannot be written to; the message names the first
            obstacle, and what removes it.
    """
    check = _Check(name)
    check.columns(layout.schema["fields"], schema["fields"])
    check.key(layout.schema, schema)
    if layout.format_version < _MIN_FORMAT_VERSION:
        check.refuse(
            f"its format version is {layout.format_version}, expected {_MIN_FORMAT_VERSION} or later",
            f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '{_MIN_FORMAT_VERSION}')",
        )
    return check.spec(layout, partition, has_key=bool(schema.get("identifier-field-ids")))


def is_wider(wanted: str, found: str) -> bool:
    """Return whether each value of a primitive Iceberg type is one of another type, to which Iceberg may widen it."""
    if _WIDER.get(wanted) == found:
        return True
    before, after = _DECIMAL.fullmatch(wanted), _DECIMAL.fullmatch(found)
    return before is not None and after is not None and before[2] == after[2] and int(before[1]) <= int(after[1])


def refuse_times(table: TableInfo, remedy: str) -> None:
    """Refuse a table with a TIME column or a TIME in a nested column, which Iceberg's reader for Spark cannot read.

    Args:
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


def has_times(table: TableInfo) -> bool:
    """Return whether a table has a TIME column or a TIME in a nested column."""
    return any(_has_time(column.data_type) for column in table.descriptor.columns)


def _has_time(kind: DataType) -> bool:
    return kind.root is DataTypeRoot.TIME or any(_has_time(part.data_type) for part in kind.fields)


def row_transforms(schema: Json, spec: Json) -> tuple[PartitionTransform, ...] | None:
    """Return the fields of a partition spec if rounds can partition the rows of a clean lake table by them.

    Without system columns, each field follows from a column of the user's. None is returned for a legacy table, and if
    one of the fields is of another kind.
    """
    fields = {field["id"]: field for field in schema["fields"]}
    if any(field["name"] in SYSTEM_COLUMNS for field in fields.values()):
        return None
    found = [
        transform_of_iceberg(fields[field["source-id"]]["name"], field["transform"])
        for field in spec["fields"]
        if field["source-id"] in fields
    ]
    known = [each for each in found if each is not None]
    return tuple(known) if len(known) == len(spec["fields"]) else None


class _Check:
    def __init__(self, name: str) -> None:
        self._name = name

    def refuse(self, difference: str, *remedies: str) -> NoReturn:
        raise FlussTieringError(
            ErrorCode.LAKE_TABLE_MISMATCH,
            f"rounds cannot write to the lake table {self._name}: {difference}; {', then '.join(remedies)}",
        )

    def columns(self, actual: Sequence[Json], expected: Sequence[Json], parent: str = "") -> None:
        """Refuse columns, or fields of a struct, that cannot be written to. Their order does not matter."""
        by_name = {field["name"]: field for field in actual}
        known = {field["name"] for field in expected}
        place = "FIRST"
        for field in expected:
            column = parent + quoted(field["name"])
            if (found := by_name.get(field["name"])) is None:
                others = [each for each in actual if each["name"] not in known]
                self._missing(column, field, parent, others, place)
            place = f"AFTER {quoted(field['name'])}"
            if found["required"] and not field["required"]:
                self.refuse(
                    f"the column {column} is NOT NULL, expected it to be nullable as in the Fluss table",
                    f"ALTER TABLE {self._name} ALTER COLUMN {column} DROP NOT NULL",
                )
            self._type(column, found["type"], field["type"])
        for field in actual:
            if field["name"] not in known and field["required"] and "initial-default" not in field:
                column = parent + quoted(field["name"])
                self.refuse(
                    f"the further column {column} is NOT NULL, while tiering has no values for it",
                    f"ALTER TABLE {self._name} ALTER COLUMN {column} DROP NOT NULL",
                )

    def _missing(self, column: str, field: Json, parent: str, others: Sequence[Json], place: str) -> NoReturn:
        same = [each for each in others if _text(each["type"]) == _text(field["type"])]
        names = [parent + quoted(each["name"]) for each in same]
        renames = [f"ALTER TABLE {self._name} RENAME COLUMN {name} TO {quoted(field['name'])}" for name in names]
        for each, name, rename in zip(same, names, renames, strict=True):
            if each["id"] == field["id"]:
                self.refuse(f"the column {column} was renamed to {name}", rename)
        kind = _sql_type(field["type"])
        # Fluss's own services take the columns of a lake table by their position.
        add = f"ALTER TABLE {self._name} ADD COLUMN {column} {kind} {place}"
        remedy = (
            add if kind else "add it with Iceberg's own API, since Spark has no such type"
        ) + " (it is null in all rows that are there already)"
        # A column that was added to both tables has other ids than in a new lake table, so that they say nothing.
        if renames:
            remedy = f"if it was renamed, {renames[0]}, which keeps its values; otherwise {remedy}"
        self.refuse(
            f"the column {column} {_text(field['type'])} is missing: it was dropped, "
            f"{f'renamed to {names[0]}, ' if len(names) == 1 else 'renamed, ' if names else ''}"
            "or added to the Fluss table later",
            remedy,
        )

    def _type(self, column: str, found: str | Json, wanted: str | Json) -> None:
        if isinstance(found, str) or isinstance(wanted, str) or found["type"] != wanted["type"]:
            if found != wanted and not (isinstance(found, str) and isinstance(wanted, str) and is_wider(wanted, found)):
                self.refuse(
                    f"the column {column} is {_text(found)}, expected {_text(wanted)} or a wider type",
                    "drop or rename that column, which starts it anew, and give a column of its name the expected type",
                )
        elif wanted["type"] == "struct":
            self.columns(found["fields"], wanted["fields"], f"{column}.")
        elif wanted["type"] == "list":
            self._part(f"{column}.element", found, wanted, "element")
        else:
            self._type(f"{column}.key", found["key"], wanted["key"])
            self._part(f"{column}.value", found, wanted, "value")

    def _part(self, column: str, found: Json, wanted: Json, part: str) -> None:
        if found[f"{part}-required"] and not wanted[f"{part}-required"]:
            self.refuse(
                f"the column {column} is NOT NULL, expected it to be nullable as in the Fluss table",
                f"ALTER TABLE {self._name} ALTER COLUMN {column} DROP NOT NULL",
            )
        self._type(column, found[part], wanted[part])

    def key(self, actual: Json, expected: Json) -> None:
        """Refuse other identifier fields than the primary key."""
        found, wanted = _key_names(actual), _key_names(expected)
        if found == wanted:
            return
        columns = ", ".join(map(quoted, sorted(wanted or found)))
        statement = f"ALTER TABLE {self._name} {'SET' if wanted else 'DROP'} IDENTIFIER FIELDS {columns}"
        difference = f"its identifier fields are {sorted(found)}, expected the primary key {sorted(wanted)}"
        nullable = sorted(
            field["name"] for field in actual["fields"] if field["name"] in wanted and not field["required"]
        )
        if not nullable:
            self.refuse(difference, statement)
        updates = "; ".join(f"update.update_column({name!r}, required=True)" for name in nullable)
        self.refuse(
            f"{difference}, of which Iceberg refuses {nullable} since they can be null",
            "make them required with PyIceberg, because Spark cannot: with table.update_schema("
            f"allow_incompatible_changes=True) as update: {updates}",
            statement,
        )

    def spec(self, layout: LakeLayout, partition: Sequence[PartitionTransform], *, has_key: bool) -> Json:
        """Return the spec with the expected fields.

        The rows of a clean table are partitioned by whichever spec is the newest. The files of a log table may have
        several. In a legacy table with a primary key, a row is looked for in its bucket only, so that it may not have
        another one.
        """
        names = {field["id"]: field["name"] for field in layout.schema["fields"]}
        wanted = [(field.in_iceberg, field.column) for field in partition]
        matching = [spec for spec in layout.specs if spec_fields(spec, names) == wanted]
        default, *_ = layout.specs
        if row_transforms(layout.schema, default) is not None:
            return default
        if matching and not has_key:
            return matching[0]
        if not matching or matching[0] is not default:
            self.refuse(
                f"it is partitioned by {_fields_text(spec_fields(default, names))}, expected {_fields_text(wanted)}",
                *self._repartitioned(default, names, partition),
            )
        if layout.other_specs_in_use:
            self.refuse(
                "some of its files have another partitioning, and would keep rows that are updated or deleted",
                "rewrite them: CALL system.rewrite_data_files with the options rewrite-all => true and "
                f"output-spec-id => {default['spec-id']}",
            )
        return default

    def _repartitioned(
        self, default: Json, names: Mapping[int, str], partition: Sequence[PartitionTransform]
    ) -> list[str]:
        """Return the statements that give the table the expected fields in their order. Iceberg adds at the end."""
        kept, drops = 0, []
        for field, pair in zip(default["fields"], spec_fields(default, names), strict=True):
            if kept < len(partition) and pair == (partition[kept].in_iceberg, partition[kept].column):
                kept += 1
            else:
                drops.append(f"ALTER TABLE {self._name} DROP PARTITION FIELD {quoted(field['name'])}")
        adds = [
            f"ALTER TABLE {self._name} ADD PARTITION FIELD {field.in_sql(quoted(field.column))}"
            for field in partition[kept:]
        ]
        return drops + adds


def _text(kind: str | Json) -> str:
    """Return a type as text, without the ids of its fields."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = (
            f"{field['name']} {_text(field['type'])}{' required' if field['required'] else ''}"
            for field in kind["fields"]
        )
        return f"struct<{', '.join(fields)}>"
    if kind["type"] == "list":
        return f"list<{_text(kind['element'])}{' required' if kind['element-required'] else ''}>"
    value = f"{_text(kind['value'])}{' required' if kind['value-required'] else ''}"
    return f"map<{_text(kind['key'])}, {value}>"


def _sql_type(kind: str | Json) -> str | None:
    """Return a type in Spark SQL; None if Spark has no such type."""
    if isinstance(kind, str):
        return kind.upper() if _DECIMAL.fullmatch(kind) else _SQL_TYPES.get(kind)
    if kind["type"] == "struct":
        parts = [(f"{quoted(field['name'])}: ", _sql_type(field["type"])) for field in kind["fields"]]
        outer = "STRUCT"
    elif kind["type"] == "list":
        parts, outer = [("", _sql_type(kind["element"]))], "ARRAY"
    else:
        parts, outer = [("", _sql_type(kind["key"])), ("", _sql_type(kind["value"]))], "MAP"
    if any(part is None for _, part in parts):
        return None
    return f"{outer}<{', '.join(f'{name}{part}' for name, part in parts)}>"


def _key_names(schema: Json) -> set[str]:
    ids = set(schema.get("identifier-field-ids", ()))
    return {field["name"] for field in schema["fields"] if field["id"] in ids}


def spec_fields(spec: Json, names: Mapping[int, str]) -> list[tuple[str, str | None]]:
    """Return the transform and the column of each field of a partition spec; None for a column that is gone."""
    return [(field["transform"], names.get(field["source-id"])) for field in spec["fields"]]


def _fields_text(fields: Sequence[tuple[str, str | None]]) -> list[str]:
    return [f"{transform}({column})" for transform, column in fields]
