"""Users touch lake tables: they rename, drop, replace, roll back and expire them, and make branches and tags."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from py4j.java_gateway import JavaObject
from spark_support import Tiering, named

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.table import TableInfo


def tiered(tiering: Tiering, *, primary_key: bool = True, rounds: int = 2) -> TableInfo:
    """Return a table with some rounds of rows."""
    table = tiering.table(primary_key=primary_key)
    for number in range(rounds):
        tiering.round(table, named(range(number, number + 5), f"round {number}"))
    return table


def refused(tiering: Tiering, table: TableInfo) -> str:
    tiering.write(table, named([100], "later"))
    return tiering.fail(table)


def goes_on(tiering: Tiering, table: TableInfo) -> None:
    tiering.round(table, named([101], "last"))
    assert tiering.equal(table)


def refs_of(tiering: Tiering, table: TableInfo) -> JavaObject:
    """Return what changes branches and tags. The session has no SQL for it."""
    return tiering.lake_table(table).java_table.manageSnapshots()


def is_there(tiering: Tiering, name: str) -> bool:
    return bool(tiering.spark.catalog.tableExists(name))


@pytest.mark.parametrize("kind", ["avro", "orc"])
@pytest.mark.sampled(1)
def test_rounds_go_on_beside_deletes_in_files_that_executors_do_not_read(tiering: Tiering, kind: str) -> None:
    table = tiered(tiering)
    name = tiering.name(table)
    tiering.spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES "
        f"('write.delete.mode' = 'merge-on-read', 'write.delete.format.default' = '{kind}')"
    )
    tiering.spark.sql(f"DELETE FROM {name} WHERE id IN (0, 3)")
    deletes = tiering.spark.sql(f"SELECT file_format FROM {name}.delete_files").collect()
    assert kind.upper() in {row.file_format for row in deletes}
    # One of the keys is in a data file with a row that the user has deleted, and the other one is deleted itself.
    tiering.round(table, named([0, 1, 2], "changed"))
    expected = {**named([4, 5], "round 1"), **named([0, 1, 2], "changed")}
    assert tiering.lake_rows(table) == sorted(expected.items())


# D45
def test_a_renamed_lake_table_is_not_replaced_and_can_be_renamed_back(tiering: Tiering):
    table = tiered(tiering)
    name = tiering.name(table)
    tiering.spark.sql(f"ALTER TABLE {name} RENAME TO {table.path}_aside")

    error = refused(tiering, table)

    assert "was renamed or dropped" in error
    assert "RENAME TO" in error
    assert not is_there(tiering, name)
    tiering.spark.sql(f"ALTER TABLE {name}_aside RENAME TO {table.path}")
    goes_on(tiering, table)


# D45
def test_a_dropped_lake_table_is_not_replaced_and_can_be_registered_again(tiering: Tiering):
    table = tiered(tiering)
    name = tiering.name(table)
    lake = tiering.lake_table(table)
    newest = lake.java_table.operations().current().metadataFileLocation()
    tiering.spark.sql(f"DROP TABLE {name}")

    assert "register_table" in refused(tiering, table)

    assert not is_there(tiering, name)
    catalog = table.lake_catalog_properties["name"]
    tiering.spark.sql(f"CALL {catalog}.system.register_table(table => '{table.path}', metadata_file => '{newest}')")
    goes_on(tiering, table)


# D45
def test_a_lake_table_of_which_nothing_was_registered_is_made_again(tiering: Tiering):
    table = tiering.table()
    tiering.tier(table)
    assert is_there(tiering, tiering.name(table))
    tiering.spark.sql(f"DROP TABLE {tiering.name(table)}")

    goes_on(tiering, table)


def drop_and_make(tiering: Tiering, table: TableInfo) -> None:
    tiering.spark.sql(f"DROP TABLE {tiering.name(table)}")
    IcebergCatalogs(tiering.spark).open_table(table)


def replace_with_a_copy(tiering: Tiering, table: TableInfo) -> None:
    """Give the name of a lake table to a copy, which lacks what only rounds need."""
    name = tiering.name(table)
    tiering.spark.sql(f"CREATE TABLE {name}_copy USING iceberg AS SELECT * FROM {name}")
    tiering.spark.sql(f"ALTER TABLE {name} RENAME TO {table.path}_aside")
    tiering.spark.sql(f"ALTER TABLE {name}_copy RENAME TO {table.path}")


# D45
@pytest.mark.parametrize(
    ("replace", "said"),
    [
        (
            replace_with_a_copy,
            "If it is another one, give the right one its name back. Otherwise rounds cannot write",
        ),
        (drop_and_make, "another lake table has this name now"),
    ],
)
def test_another_lake_table_of_the_same_name_is_left_alone(
    tiering: Tiering, replace: Callable[[Tiering, TableInfo], None], said: str
):
    table = tiered(tiering)
    replace(tiering, table)
    before = tiering.snapshots(table)

    assert said in refused(tiering, table)
    assert tiering.snapshots(table) == before


def before_the_next_commit(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Do something once, when a round has written its files and is about to commit them."""
    commit = IcebergTable.commit

    def after(self: IcebergTable, *given: Any, **named: Any) -> int:
        monkeypatch.setattr(IcebergTable, "commit", commit)
        do()
        return commit(self, *given, **named)

    monkeypatch.setattr(IcebergTable, "commit", after)


# D45
@pytest.mark.parametrize("primary_key", [True, False])
@pytest.mark.sampled(1)
def test_a_rollback_while_a_round_writes_is_told_with_what_to_do(
    tiering: Tiering, monkeypatch: pytest.MonkeyPatch, primary_key: bool
) -> None:
    table = tiered(tiering, primary_key=primary_key, rounds=3)
    first = tiering.snapshots(table)[0].snapshot_id
    catalog = table.lake_catalog_properties["name"]
    before_the_next_commit(
        monkeypatch,
        lambda: tiering.spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{table.path}', {first})"),
    )
    assert "changed by somebody else during the round" in refused(tiering, table)
    (statement,) = re.findall(r"CALL .*\)", refused(tiering, table))
    tiering.spark.sql(statement)
    goes_on(tiering, table)


# D45
@pytest.mark.sampled(1)
@pytest.mark.parametrize("primary_key", [True, False])
def test_a_round_goes_on_after_a_compaction_and_an_expiry_of_the_user(tiering: Tiering, primary_key):
    table = tiered(tiering, primary_key=primary_key, rounds=3)
    catalog = table.lake_catalog_properties["name"]
    known = tiering.client.lake_snapshot(table.path).snapshot_id
    for _ in range(2):
        tiering.spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{table.path}', options => map('rewrite-all', 'true'))"
        )
    tiering.spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{table.path}', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )
    assert [row.snapshot_id for row in tiering.snapshots(table)] != [known]
    assert len(tiering.snapshots(table)) == 1

    goes_on(tiering, table)


# D45
def test_branches_and_tags_are_left_alone(tiering: Tiering):
    table = tiered(tiering)
    name = tiering.name(table)
    refs_of(tiering, table).createBranch("audit").createTag(
        "month_end", tiering.snapshots(table)[-1].snapshot_id
    ).commit()
    tiering.spark.sql(f"DELETE FROM {name}.branch_audit WHERE id = 0")
    refs = f"SELECT name, snapshot_id FROM {name}.refs WHERE name <> 'main' ORDER BY name"
    before, tagged = tiering.spark.sql(refs).collect(), tiering.lake_rows(table)

    goes_on(tiering, table)

    assert tiering.spark.sql(refs).collect() == before
    at_tag = tiering.spark.sql(f"SELECT id, name FROM {name} VERSION AS OF 'month_end'").collect()
    assert sorted((row.id, row.name) for row in at_tag) == tagged
    # A branch that came from main may become main: our snapshot is then among its ancestors.
    refs_of(tiering, table).createBranch("later").commit()
    tiering.spark.sql(f"DELETE FROM {name}.branch_later WHERE id = 1")
    catalog = table.lake_catalog_properties["name"]
    tiering.spark.sql(f"CALL {catalog}.system.fast_forward('{table.path}', 'main', 'later')")
    tiering.round(table, named([102], "last"))
    assert {row.id for row in tiering.lake(table)} == {0, 2, 3, 4, 5, 101, 102}


def newest_manifest_list(tiering: Tiering, table: TableInfo) -> Path:
    snapshot = tiering.lake_table(table).java_table.currentSnapshot()
    return Path(urlparse(snapshot.manifestListLocation()).path)


# E1
def test_a_table_that_lost_a_rewrite_goes_on_from_the_snapshot_before_it(tiering: Tiering) -> None:
    table = tiered(tiering)
    catalog = table.lake_catalog_properties["name"]
    before = tiering.lake_table(table).base()
    tiering.spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => '{table.path}', options => map('rewrite-all', 'true'))"
    )
    rows = tiering.lake_rows(table)
    newest_manifest_list(tiering, table).unlink()

    assert refused(tiering, table).startswith("a file of the lake seems to be missing or damaged")  # E33
    tiering.spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{table.path}', {before})")
    tiering.spark.sql(f"REFRESH TABLE {tiering.name(table)}")
    assert tiering.lake_rows(table) == rows
    goes_on(tiering, table)


# E1
def test_a_table_that_lost_a_round_waits_for_the_file(tiering: Tiering) -> None:
    table = tiered(tiering, rounds=1)
    catalog = table.lake_catalog_properties["name"]
    before, first = tiering.lake_rows(table), tiering.lake_table(table).base()
    tiering.round(table, named([50], "last"))
    newest = tiering.lake_table(table).base()
    lost = newest_manifest_list(tiering, table)
    away = lost.rename(lost.with_name("away"))

    assert refused(tiering, table).startswith("a file of the lake seems to be missing or damaged")
    tiering.spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{table.path}', {first})")
    tiering.spark.sql(f"REFRESH TABLE {tiering.name(table)}")
    assert tiering.lake_rows(table) == before
    assert "it was rolled back" in refused(tiering, table)
    away.rename(lost)
    tiering.spark.sql(f"CALL {catalog}.system.set_current_snapshot('{table.path}', {newest})")
    goes_on(tiering, table)
