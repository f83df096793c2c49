"""Lake tables in a real Iceberg catalog are made, opened, refused, and replaced by others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from lake_support import Lake, in_library
from table_support import (
    commit_of,
    name,
    piece,
)

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.metadata.file_io import file_io_properties
from fluss_tiering.lake.protocol import LakeTableSize
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


def test_a_lake_table_is_made_as_fluss_makes_it(spark, catalogs, keyed):
    catalogs.open_table(keyed)

    iceberg = spark._jvm.org.apache.iceberg
    made = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name(keyed))
    schema = json.loads(iceberg.SchemaParser.toJson(made.schema()))
    assert [(f["id"], f["name"], f["type"], f["required"]) for f in schema["fields"]] == [
        (1, "k", "int", True),
        (2, "v", "string", False),
        (3, "__bucket", "int", True),
        (4, "__offset", "long", True),
        (5, "__timestamp", "timestamptz", True),
    ]
    assert schema["identifier-field-ids"] == [1]
    spec = json.loads(iceberg.PartitionSpecParser.toJson(made.spec()))
    assert [(f["name"], f["transform"], f["source-id"]) for f in spec["fields"]] == [("k_bucket", "bucket[1]", 1)]
    order = json.loads(iceberg.SortOrderParser.toJson(made.sortOrder()))
    assert [(f["source-id"], f["transform"], f["direction"]) for f in order["fields"]] == [(4, "identity", "asc")]
    assert made.operations().current().formatVersion() == 2
    properties = dict(made.properties())
    assert properties.pop("write.parquet.compression-codec") == "zstd"  # Iceberg's own default
    assert properties == {
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
        "write.metadata.delete-after-commit.enabled": "true",
        "fluss.table.datalake.freshness": "3min",
    }


def test_opening_a_table_again_finds_it_unchanged(catalogs, keyed):
    assert catalogs.open_table(keyed).base() is None
    first = catalogs.open_table(keyed).commit([], commit_of(1))

    assert catalogs.open_table(keyed).base() == first


def test_the_size_of_the_lake_table_is_told(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    files = piece(lake, {1: "a", 2: "b"})
    first = lake.commit([files], commit_of(1))
    assert lake.size(first) == LakeTableSize(sum(file.size_bytes for file in files), 2)

    again = catalogs.open_table(keyed)
    later = piece(again, {1: "c"}, delete=True)
    second = again.commit([later], commit_of(2))
    assert again.size(second) == LakeTableSize(sum(file.size_bytes for file in (*files, *later)), 3)


def test_a_lake_table_of_another_layout_is_refused(spark, catalogs, keyed):
    catalogs.open_table(keyed)
    spark.sql(f"ALTER TABLE {name(keyed)} DROP COLUMN v")

    with pytest.raises(FlussTieringError, match="`v` string is missing") as raised:
        catalogs.open_table(keyed)
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_a_catalog_that_cannot_be_opened_is_named_without_a_stack_trace(catalogs, keyed):
    keyed.lake_catalog_properties["uri"] = "jdbc:sqlite:/no/such/folder/catalog.db"

    with pytest.raises(FlussTieringError) as raised:
        catalogs.open_table(keyed)
    assert raised.value.code is ErrorCode.STORAGE
    assert "/no/such/folder" in raised.value.message
    assert "\n" not in raised.value.message


# D47
def test_settings_of_the_session_and_of_hadoop_reach_executors(spark, keyed):
    session = spark.newSession()
    name = keyed.lake_catalog_properties["name"]
    session.conf.set(f"spark.sql.catalog.{name}.s3.access-key-id", "of the session")
    keyed.lake_catalog_properties["s3.access-key-id"] = "of the server"
    keyed.lake_catalog_properties["s3.region"] = "of the server"
    keyed.lake_catalog_properties["credential"] = "of the catalog"
    lake = IcebergCatalogs(session).open_table(keyed)
    properties = lake.file_writer().io_properties
    assert properties == {"s3.access-key-id": "of the session", "s3.region": "of the server"}, "nothing of the catalog"

    conf = lake.java_table.io().getConf()
    for key, value in {
        "fs.s3a.access.key": "a",
        "fs.s3a.bucket.lake.access.key": "b",
        "fs.s3a.endpoint": "h:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.encryption.algorithm": "SSE-KMS",
    }.items():
        conf.set(key, value)
    found = file_io_properties(lake.java_table, "s3a://lake/db/t", {})
    assert found["s3.access-key-id"] == "b"
    assert found["s3.endpoint"] == "http://h:9000"
    assert found["s3.sse.type"] == "kms"
    # An address with a scheme says itself whether it is encrypted.
    conf.set("fs.s3a.endpoint", "https://h:9000")
    assert file_io_properties(lake.java_table, "s3a://lake/db/t", {})["s3.endpoint"] == "https://h:9000"
    conf.unset("fs.s3a.endpoint")
    assert "s3.endpoint" not in file_io_properties(lake.java_table, "s3a://lake/db/t", {})


def test_executors_must_see_the_folder_that_the_driver_sees(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    writer = lake.file_writer()
    folder = Path(urlparse(lake.metadata_location()).path)
    folder.rename(folder.with_name("away"))
    with pytest.raises(FlussTieringError, match="this executor does not see the lake table's folder") as refused:
        writer.open_piece(0, f"{lake.data_location()}/piece", 0)
    assert refused.value.code is ErrorCode.STORAGE
    # What the driver does not see either is not asked of executors.
    assert lake.file_writer().shared_folder is None


def test_files_that_cannot_be_deleted_are_returned(catalogs, keyed, tmp_path):
    lake = catalogs.open_table(keyed)
    for path in ("folder", "folder/in it", "file"):
        (tmp_path / path).mkdir() if path == "folder" else (tmp_path / path).touch()
    folder, file = f"file:{tmp_path}/folder", f"file:{tmp_path}/file"
    assert lake.delete_locations([file]) == []
    assert not (tmp_path / "file").exists()
    (tmp_path / "file").touch()
    assert lake.delete_locations([folder, file]) == [folder]
    assert not (tmp_path / "file").exists()


def test_users_may_place_data_and_metadata_elsewhere(spark, catalogs, keyed):
    lake = catalogs.open_table(keyed)
    assert lake.data_location() == f"{lake.location()}/data"
    assert lake.metadata_location() == f"{lake.location()}/metadata"
    elsewhere = f"{keyed.lake_catalog_properties['warehouse']}/elsewhere"
    spark.sql(
        f"ALTER TABLE {name(keyed)} SET TBLPROPERTIES "
        f"('write.data.path'='{elsewhere}/data', 'write.metadata.path'='{elsewhere}/metadata')"
    )
    lake = catalogs.open_table(keyed)
    assert (lake.data_location(), lake.metadata_location()) == (f"{elsewhere}/data", f"{elsewhere}/metadata")


def test_the_columns_of_the_key_and_of_the_order_have_bounds_in_any_case(spark, catalogs, keyed):
    catalogs.open_table(keyed)
    spark.sql(f"ALTER TABLE {name(keyed)} SET TBLPROPERTIES ('write.metadata.metrics.default'='counts')")
    lake = catalogs.open_table(keyed)
    (file,) = piece(lake, {1: "a"})
    fields = {field.name(): field.fieldId() for field in lake.java_table.schema().columns()}
    assert set(file.metrics.value_counts) == set(fields.values())
    assert set(file.metrics.lower_bounds) == {fields["k"], fields["__offset"]}


def test_a_property_by_which_no_file_can_be_written_is_refused_with_the_name_of_the_table(spark, catalogs, keyed):
    catalogs.open_table(keyed)
    spark.sql(f"ALTER TABLE {name(keyed)} SET TBLPROPERTIES ('write.target-file-size-bytes'='large')")
    with pytest.raises(FlussTieringError, match=f"of the lake table {name(keyed)} is 'large'") as raised:
        catalogs.open_table(keyed).file_writer()
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH


# D47
def test_the_vended_credentials_of_the_longest_prefix_are_taken(spark, catalogs, keyed):
    iceberg = spark._jvm.org.apache.iceberg.io
    vended = spark._jvm.java.util.ArrayList()
    for prefix, secret in {"s3://lake": "a", "s3://lake/db/t": "b", "s3://lake/db": "c", "s3://other": "d"}.items():
        vended.append(iceberg.StorageCredential.create(prefix, {"s3.access-key-id": secret}))
    io = iceberg.ResolvingFileIO()
    io.initialize({"s3.region": "here"})
    io.setCredentials(vended)

    opened = catalogs.open_table(keyed)
    iceberg = spark._jvm.org.apache.iceberg
    table = iceberg.BaseTable(iceberg.StaticTableOperations(opened.metadata_file, io), "t")
    known = in_library(spark, table)

    def found(location: str) -> dict[str, str]:
        return file_io_properties(known, location, {"s3.access-key-id": "e"})

    assert found("s3://lake/db/t/data") == {"s3.access-key-id": "b", "s3.region": "here"}
    assert found("s3://lake/db/u/data")["s3.access-key-id"] == "c"
    assert found("s3://elsewhere/db/t/data")["s3.access-key-id"] == "e"


# D47
def test_files_that_executors_cannot_encrypt_as_the_catalog_demands_are_not_begun(spark, catalogs, keyed):
    keyed.lake_catalog_properties["s3.sse.type"] = "custom"
    catalogs.open_table(keyed)
    spark.sql(f"ALTER TABLE {name(keyed)} SET TBLPROPERTIES ('write.data.path'='s3://lake/db/t')")
    with pytest.raises(FlussTieringError, match=r"the lake catalog has s3\.sse\.type=custom") as raised:
        catalogs.open_table(keyed).file_writer()
    assert raised.value.code is ErrorCode.STORAGE


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
    assert "rename it away, and register the metadata file from before" in refused.value.message
    log = lake.spark.sql(f"SELECT file FROM {name}.metadata_log_entries WHERE latest_snapshot_id = {snapshot}")
    files = [row.file for row in log.collect()]
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
