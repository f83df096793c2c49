"""Lake tables that stand where the one of the rounds was: the error names what brings that one back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lake_support import Lake

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Lake:
    made = Lake(spark, tmp_path, COLUMNS, ["id"])
    made.commit(made.batch([{"id": 1, "v": "a"}]))
    return made


@pytest.mark.slow
def test_the_metadata_file_from_before_a_replacement_is_found(lake: Lake) -> None:
    name = f"{lake.name}.db.t"
    ((snapshot,),) = lake.spark.sql(f"SELECT snapshot_id FROM {name}.snapshots").collect()
    # Many users compact a table like this. The columns of the new one are all nullable.
    lake.spark.sql(f"CREATE OR REPLACE TABLE {name} USING iceberg AS SELECT * FROM {name}")
    with pytest.raises(FlussTieringError) as refused:
        lake.open()
    assert refused.value.code is ErrorCode.LAKE_TABLE_MISMATCH
    assert f"by CREATE OR REPLACE TABLE, after the snapshot {snapshot} of the last round" in refused.value.message
    query = refused.value.message.partition("from before: ")[2].partition(". Then")[0]
    files = [row.file for row in lake.spark.sql(query).collect()]
    assert files
    assert Path(files[-1].removeprefix("file:")).exists()


@pytest.mark.slow
def test_a_view_that_has_the_name_of_a_lake_table_is_told(spark: Any, tmp_path: Path) -> None:
    properties = {
        "name": "with_views",
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    table = replace(Lake(spark, tmp_path, COLUMNS, ["id"]).table, lake_catalog_properties=properties)
    catalogs = IcebergCatalogs(spark)
    catalog = catalogs._catalog(properties)
    identifier = spark._jvm.org.apache.iceberg.catalog.TableIdentifier.parse(str(table.lake_path))
    catalog.createNamespace(identifier.namespace())
    schema = spark._jvm.org.apache.iceberg.SchemaParser.fromJson('{"type": "struct", "fields": []}')
    view = catalog.buildView(identifier).withSchema(schema).withDefaultNamespace(identifier.namespace())
    view.withQuery("spark", "SELECT 1").create()
    with pytest.raises(FlussTieringError) as refused:
        catalogs.open_table(table)
    assert refused.value.code is ErrorCode.LAKE_TABLE_MISMATCH
    assert "the lake catalog has a view with the name db.t of the lake table" in refused.value.message
    assert "drop or rename the view" in refused.value.message
    catalog.dropView(identifier)
    assert catalogs.open_table(table).base() is None
