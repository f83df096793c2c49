"""Lake tables of users, which have rows before anything is tiered into them."""

from __future__ import annotations

import pytest
from source_support import columns
from spark_support import Tiering, named

from engine_support import new_path
from fluss_tiering.model.column_changes import AddColumn, DropColumn, RenameColumn
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo

COLUMNS = columns(id="INT NOT NULL", label="STRING")
CHANGES = (RenameColumn("label", "name"), AddColumn(Column("more", DataType.parse("BOOLEAN"))), DropColumn("more"))


def made(tiering: Tiering, partition_by: str = "", *, keyed: bool) -> TableInfo:
    """Return a table whose lake table has two rows and a further column, one that the table had for a while."""
    options = {"table.datalake.enabled": "true", "table.datalake.table-name": f"of_users_{new_path().table}"}
    key = ("id",) if keyed else ()
    table = tiering.client.create_table(new_path(), TableDescriptor(COLUMNS, primary_key=key, properties=options))
    for change in CHANGES:
        table = tiering.client.alter_table(table.path, column_changes=[change])
    name = f"{tiering.name(table).partition('.')[0]}.{table.lake_path}"
    tiering.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
    tiering.spark.sql(f"CREATE TABLE {name} (more BOOLEAN, name STRING, id INT NOT NULL) USING iceberg {partition_by}")
    tiering.spark.sql(f"INSERT INTO {name} VALUES (true, 'old', 1), (true, 'old', 2)")
    if keyed:
        spark = tiering.spark
        lake = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
        lake.updateSchema().setIdentifierFields(["id"]).commit()
    return table


def rows(tiering: Tiering, table: TableInfo) -> list[tuple[int, str, bool | None]]:
    name = f"{tiering.name(table).partition('.')[0]}.{table.lake_path}"
    return sorted((row.id, row.name, row.more) for row in tiering.spark.table(name).collect())


@pytest.mark.parametrize("partition_by", ["", "PARTITIONED BY (truncate(1, name))"])
@pytest.mark.parametrize("keyed", [True, False])
def test_rounds_add_to_the_rows_of_a_lake_table_if_they_are_told_to(
    tiering: Tiering, partition_by: str, *, keyed: bool
) -> None:
    table = made(tiering, partition_by, keyed=keyed)
    tiering.write(table, named([2, 3], "new"))
    assert "table.datalake.existing-rows=keep, and rounds add to its rows" in tiering.fail(table)
    assert rows(tiering, table) == [(1, "old", True), (2, "old", True)]

    tiering.client.alter_table(table.path, {"table.datalake.existing-rows": "keep"})
    tiering.tier(table)
    tiering.round(table, named([3, 4], "newer"))
    wanted = [(1, "old", True), (2, "new 2", None), (3, "newer 3", None), (4, "newer 4", None)]
    assert rows(tiering, table) == (wanted if keyed else sorted([*wanted, (2, "old", True), (3, "new 3", None)]))
