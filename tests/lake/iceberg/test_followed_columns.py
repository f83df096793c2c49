"""What a lake table is told to change, from the schemas of its table and its own description."""

from collections.abc import Sequence
from typing import Any

import pytest
from refusals import refused
from table_support import PATH

from fluss_tiering.lake.iceberg.layout import schema_json
from fluss_tiering.lake.iceberg.metadata import followed_columns
from fluss_tiering.lake.iceberg.metadata.followed_columns import changes, followed, following
from fluss_tiering.model.column_changes import AddColumn, ColumnChange, DropColumn, RenameColumn, WidenColumn
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo
from fluss_tiering.storage.embedded.column_changes import with_changed_columns


def column(name: str, kind: str) -> Column:
    return Column(name, DataType.parse(kind))


COLUMNS = (column("id", "INT NOT NULL"), column("n", "INT"), column("t", "STRING NOT NULL"), column("w", "BIGINT"))
TABLE = TableInfo(7, PATH, 1, TableDescriptor(COLUMNS), 0)
TO_ALL = (
    RenameColumn("n", "m"),
    WidenColumn("m", DataType.parse("BIGINT")),
    DropColumn("t"),
    AddColumn(column("x", "DATE")),
)


def described(
    table: TableInfo, *, clean: bool = True, spec: Sequence[str] = (), order: Sequence[str] = (), **changed: Any
) -> dict[str, Any]:
    """Return the description of a lake table that was made for a table."""
    schema = {**schema_json(table.descriptor, clean=clean), "schema-id": 3}
    ids = {field["name"]: field["id"] for field in schema["fields"]}

    def fields(names: Sequence[str]) -> dict[str, Any]:
        return {"fields": [{"source-id": ids[name]} for name in names]}

    found = {"schema": schema, "specs": [fields(()), fields(spec)], "sortOrder": fields(order), "properties": {}}
    return {**found, **changed}


def names(schema: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [(field["name"], field["type"], field["required"]) for field in schema["fields"]]


def test_all_changes_of_a_table_are_one_plan() -> None:
    table = with_changed_columns(TABLE, TO_ALL)
    for clean in (True, False):
        plan = changes(TABLE, table, described(TABLE, clean=clean))
        assert (plan["schema"], plan["dropped"], plan["optional"]) == (3, ["t"], [])
        # The library widens before it renames.
        assert names(plan["widened"]) == [("n", "long", False)]
        assert plan["renamed"] == [("n", "m")]
        assert names(plan["added"]) == [("x", "date", False)]
        assert plan["before"] == (None if clean else "__bucket")
        assert plan["properties"] == {"fluss-tiering.schema": "7:2"} == following(table)


def test_a_column_that_lays_out_files_stays_when_it_is_dropped() -> None:
    table = with_changed_columns(TABLE, [DropColumn("t"), DropColumn("w")])
    for layout in ({"spec": ["t"]}, {"order": ["t"]}):
        plan = changes(TABLE, table, described(TABLE, **layout))
        assert (plan["dropped"], plan["optional"]) == (["w"], ["t"])
    assert changes(TABLE, table, described(TABLE, spec=["w"]))["optional"] == []


def test_what_somebody_did_to_the_lake_table_before_is_not_done_again() -> None:
    table = with_changed_columns(TABLE, [WidenColumn("n", DataType.parse("BIGINT")), DropColumn("t")])
    ahead = described(with_changed_columns(TABLE, [DropColumn("t"), WidenColumn("n", DataType.parse("BIGINT"))]))
    plan = changes(TABLE, table, ahead)
    assert (plan["dropped"], plan["widened"]["fields"], plan["renamed"]) == ([], [], [])


def test_a_further_column_of_the_lake_does_not_give_way_to_a_new_one() -> None:
    further = TableInfo(7, PATH, 1, TableDescriptor((*COLUMNS, column("Note", "STRING"))), 0)
    cases: list[tuple[ColumnChange, dict[str, Any], str]] = [
        (AddColumn(column("note", "STRING")), {}, "RENAME COLUMN `Note` TO `Note_of_lake`"),
        (RenameColumn("n", "NOTE"), {}, "RENAME COLUMN `Note` TO `Note_of_lake`"),
        (AddColumn(column("note", "STRING")), {"spec": ["Note"]}, "--rename-column 'note=note_2'"),
    ]
    for change, layout, remedy in cases:
        with refused(ErrorCode.LAKE_TABLE_MISMATCH, "has a column `Note` already", remedy):
            changes(TABLE, with_changed_columns(TABLE, [change]), described(further, **layout))
    # A name that a column gives up in the same step is free.
    swapped = [RenameColumn("n", "old"), RenameColumn("w", "n"), DropColumn("t"), AddColumn(column("t", "INT"))]
    plan = changes(TABLE, with_changed_columns(TABLE, swapped), described(TABLE))
    assert (plan["renamed"], names(plan["added"])) == ([("n", "old"), ("w", "n")], [("t", "int", False)])


def test_the_schema_that_a_lake_table_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    second = with_changed_columns(TABLE, [AddColumn(column("x", "DATE"))])
    table = with_changed_columns(second, [AddColumn(column("y", "DATE"))])
    own: list[Any] = [None]
    monkeypatch.setattr(followed_columns, "newest_own_commit", lambda *_: own[0])

    def follows(text: str | None, made_for: TableInfo = table) -> int:
        properties = {} if text is None else {"fluss-tiering.schema": text}
        found = followed(table, None, described(made_for, properties=properties))  # type: ignore[arg-type]
        assert found == table.as_of(found.schema_id)
        return found.schema_id

    assert [follows(f"7:{number}") for number in (1, 2, 3)] == [1, 2, 3]
    with refused(ErrorCode.LAKE_TABLE_MISMATCH, "has the columns of schema 4"):
        follows("7:4")
    # A lake table that does not say so follows the newest schema whose columns it has, and else gets those of the last.
    for silent in (None, "", "7:", "7:x", "8:1", "7:0"):
        assert [follows(silent, made_for) for made_for in (table, second, TABLE)] == [3, 2, 1], silent
    assert follows(None, TableInfo(7, PATH, 1, TableDescriptor(COLUMNS[:1]), 0)) == 3
    # Rounds of earlier versions made it for the first schema.
    own[0] = (1, "commit")
    assert follows(None) == 1
    unaltered = followed(TABLE, None, described(TABLE))  # type: ignore[arg-type]
    assert unaltered is TABLE
