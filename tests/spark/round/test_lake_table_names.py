"""Lake tables whose namespace and name the options of their tables say, as Fluss has it since 1.0.0."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from spark_support import Tiering, named

from engine_support import descriptor, new_path
from fluss_tiering.model.table import Column, DataType, TableInfo, TablePath, WriteKind
from fluss_tiering.spark.audit.clean import clean_table
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.spark.maintenance.expire import expire_snapshots
from fluss_tiering.storage.fluss.rpc.calls.tables import drop_table
from fluss_tiering.storage.fluss.rpc.calls.tables import table as table_call
from fluss_tiering.storage.fluss.rpc.client import FlussClient


def make(tiering: Tiering, **names: str) -> TableInfo:
    options = {f"table.datalake.{key}-name": name for key, name in names.items()}
    return tiering.client.create_table(new_path(), descriptor(properties=options))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("names", [{"table": "elsewhere"}, {"database": "lake_db"}, {"database": "l", "table": "both"}])
def test_every_command_uses_the_lake_table_that_the_options_name(tiering: Tiering, names: dict[str, str]) -> None:
    table = make(tiering, **names)
    at = TablePath(names.get("database", table.path.database), names.get("table", table.path.table))
    assert table.lake_path == at
    rows = named(range(10), "first")
    tiering.round(table, rows)
    tiering.round(table, more := named(range(5, 15), "second"))

    catalog = table.lake_catalog_properties["name"]
    lake = tiering.spark.table(f"{catalog}.{at}")
    assert dict(lake.select("id", "name").collect()) == {**rows, **more}
    assert not tiering.spark.catalog.tableExists(f"{catalog}.{table.path}")
    assert tiering.equal(table)
    compacted = compact_table(tiering.spark, table, min_input_files=2)
    assert compacted.error is None
    assert compacted.rewritten_files > 0
    assert expire_snapshots(tiering.client, tiering.spark, table, older_than=timedelta()).error is None
    assert clean_table(tiering.spark, table, grace=timedelta(days=1), delete=True).error is None
    assert tiering.equal(table)
    assert [status.path for status in tiering.client.list_tables() if status.path == table.path] == [table.path]
    tiering.spark.sql(f"ALTER TABLE {catalog}.{at} RENAME TO {at}_aside")
    tiering.write(table, named([1], "third"))
    (result,) = tiering.tier_all(table)
    assert f"lake table missing: {at}" in result.error


def test_a_lake_table_of_another_table_is_not_taken(tiering: Tiering) -> None:
    first = make(tiering, table="shared_by_two")
    second = make(tiering, table="shared_by_two")
    tiering.round(first, named(range(3), "first"))
    tiering.write(second, named(range(3), "second"))

    (result,) = tiering.tier_all(second)

    assert f"it holds the rows of the table with the id {first.table_id}" in result.error
    assert tiering.equal(first)


@pytest.mark.parametrize("column", ["name", "other"])
def test_a_table_that_was_dropped_and_created_again_is_told_so_whatever_its_columns(
    tiering: Tiering, column: str
) -> None:
    first = make(tiering)
    tiering.round(first, named(range(3), "first"))
    tiering.client.drop_table(first.path)
    columns = (Column("id", DataType.parse("BIGINT NOT NULL")), Column(column, DataType.parse("STRING")))
    second = tiering.client.create_table(first.path, replace(descriptor(), columns=columns))
    rows = pa.table({"id": pa.array([1], pa.int64()), column: ["x"]})
    list(tiering.client.write_rows(second.path, WriteKind.UPSERT, rows.to_batches()))

    (result,) = tiering.tier_all(second)

    assert f"it holds the rows of the table with the id {first.table_id}" in result.error
    assert "ALTER TABLE" not in result.error


@pytest.mark.fluss_versions("1.0")
@pytest.mark.parametrize("primary_key", [True, False])
@pytest.mark.sampled(1)
def test_a_lake_table_that_fluss_takes_over_is_tiered_into(
    cluster: Tiering, fluss: FlussClient, primary_key: bool
) -> None:
    """Fluss 1.0 takes an existing lake table with the right columns, whatever their ids, if it has no snapshot."""
    made_from = descriptor(primary_key=primary_key, freshness="1s")
    path = new_path()
    first = cluster.client.create_table(path, made_from)
    lake = cluster.name(first)
    cluster.spark.sql(f"ALTER TABLE {lake} DROP COLUMN name")
    cluster.spark.sql(f"ALTER TABLE {lake} ADD COLUMN name STRING AFTER id")
    fluss.call(drop_table(path))
    table = cluster.client.create_table(path, made_from)
    assert table.table_id != first.table_id
    ids = [field.fieldId() for field in cluster.lake_table(table).java_table.schema().columns()]
    assert ids != sorted(ids)
    cluster.write(table, named(range(5), "row"))

    cluster.tier(table, claim_timeout_s=60)

    assert cluster.lake_rows(table) == sorted(named(range(5), "row").items())
    # The lake table is found again, with what was tiered before, when tiering is switched on again.
    cluster.client.alter_table(path, set_properties={"table.datalake.enabled": "false"})
    cluster.write(table, named(range(5, 8), "row"))
    # Fluss notes in the lake table that tiering is off, and then refuses the lake table for that.
    cluster.spark.sql(f"ALTER TABLE {lake} SET TBLPROPERTIES ('fluss.table.datalake.enabled' = 'true')")
    cluster.client.alter_table(path, set_properties={"table.datalake.enabled": "true"})
    assert fluss.call(table_call(path)).table_id == table.table_id
    cluster.tier(table, claim_timeout_s=60)
    assert cluster.lake_rows(table) == sorted(named(range(8), "row").items())
    assert cluster.equal(table)
