"""Lake catalogs beside what a Spark session has already, and Iceberg's own actions on lake tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlparse

import pytest
from lake_support import Lake, in_library
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.actions import expire
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath
from fluss_tiering.spark.startup.workers import rehearse_commit

COLUMNS = (Column("k", DataType.parse("INT NOT NULL")), Column("v", DataType.parse("STRING")))
ICEBERG = "org.apache.iceberg.spark.SparkCatalog"


@pytest.fixture
def table(lake_properties) -> TableInfo:
    return TableInfo(1, TablePath("db", "t"), 1, TableDescriptor(COLUMNS, ("k",), ("k",), 1), 0, lake_properties)


@pytest.fixture
def session(spark) -> SparkSession:
    """A session of its own, so that no other test sees what is set."""
    return spark.newSession()


def refused(session, table: TableInfo) -> str:
    with pytest.raises(FlussTieringError) as error:
        IcebergCatalogs(session).open_table(table)
    assert error.value.code is ErrorCode.STORAGE
    return error.value.message


# Catalogs


def test_spark_sql_sees_the_tables_that_rounds_write(session, table: TableInfo):
    IcebergCatalogs(session).open_table(table)
    name = table.lake_catalog_properties["name"]
    assert session.conf.get(f"spark.sql.catalog.{name}") == ICEBERG
    # A cached table would hide what others commit.
    assert session.conf.get(f"spark.sql.catalog.{name}.cache-enabled") == "false"
    assert session.conf.get(f"spark.sql.catalog.{name}.uri") == table.lake_catalog_properties["uri"]
    assert session.conf.get(f"spark.sql.catalog.{name}.name", None) is None
    assert [row.tableName for row in session.sql(f"SHOW TABLES IN {name}.db").collect()] == ["t"]


def test_a_session_that_would_cache_tables_is_told_not_to(session, table: TableInfo):
    key = f"spark.sql.catalog.{table.lake_catalog_properties['name']}.cache-enabled"
    session.conf.set(key, "true")
    IcebergCatalogs(session).open_table(table)
    assert session.conf.get(key) == "false"


def test_a_catalog_that_caches_tables_already_is_refused(session, table: TableInfo):
    name = table.lake_catalog_properties["name"]
    session.conf.set(f"spark.sql.catalog.{name}", ICEBERG)
    for key, value in table.lake_catalog_properties.items():
        session.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    session.sql(f"SHOW NAMESPACES IN {name}").collect()
    assert f"set spark.sql.catalog.{name}.cache-enabled to false" in refused(session, table)


def test_what_the_session_has_set_wins_unless_it_makes_another_catalog_of_it(session, table: TableInfo, tmp_path):
    prefix = f"spark.sql.catalog.{table.lake_catalog_properties['name']}"
    session.conf.set(prefix, ICEBERG)
    session.conf.set(f"{prefix}.jdbc.schema-version", "V0")
    IcebergCatalogs(session).open_table(table)
    assert session.conf.get(f"{prefix}.jdbc.schema-version") == "V0"


@pytest.mark.parametrize("key", ["uri", "warehouse", "type"])
def test_a_session_that_means_another_catalog_by_the_name_is_refused(session, table: TableInfo, key: str):
    prefix = f"spark.sql.catalog.{table.lake_catalog_properties['name']}"
    session.conf.set(f"{prefix}.{key}", "another")
    said = refused(session, table)
    assert f"{prefix}.{key} is another, but the server's lake catalog has {table.lake_catalog_properties[key]}" in said


def test_a_name_that_belongs_to_a_catalog_that_is_not_iceberg_s_is_refused(session, table: TableInfo):
    name = table.lake_catalog_properties["name"]
    session.conf.set(f"spark.sql.catalog.{name}", "org.example.OtherCatalog")
    assert f"catalog {name!r} is a org.example.OtherCatalog, not an Iceberg catalog" in refused(session, table)


def test_two_catalogs_with_one_name_are_refused(session, table: TableInfo, tmp_path: Path):
    catalogs = IcebergCatalogs(session)
    catalogs.open_table(table)
    elsewhere = {**table.lake_catalog_properties, "warehouse": f"file://{tmp_path}/elsewhere"}
    with pytest.raises(FlussTieringError, match="two lake catalogs have the name") as error:
        catalogs.open_table(replace(table, path=TablePath("db", "u"), lake_catalog_properties=elsewhere))
    assert error.value.code is ErrorCode.STORAGE
    assert catalogs.find_table(table) is not None


SECRETS = {
    "s3.secret-access-key": "planted-1",
    "credential": "id:planted-2",
    "header.Authorization": "planted-3",
    "jdbc.password": "planted-4",
}


def readable(session: SparkSession, table: TableInfo) -> list[str]:
    """Return the secrets that the settings of the session tell."""
    prefix = f"spark.sql.catalog.{table.lake_catalog_properties['name']}"
    return [key for key, value in SECRETS.items() if session.conf.get(f"{prefix}.{key}") == value]


def test_secrets_of_a_catalog_are_no_settings_of_the_session_once_it_is_loaded(session, table: TableInfo):
    guarded = replace(table, lake_catalog_properties={**table.lake_catalog_properties, **SECRETS})
    IcebergCatalogs(session).open_table(guarded)
    assert not readable(session, guarded)
    name = table.lake_catalog_properties["name"]
    assert session.conf.get(f"spark.sql.catalog.{name}.credential") == "***"
    assert [row.tableName for row in session.sql(f"SHOW TABLES IN {name}.db").collect()] == ["t"]
    # Another object for the same session finds the catalog as it was loaded.
    written = IcebergCatalogs(session).open_table(guarded).file_writer().io_properties
    assert written == {"s3.secret-access-key": "planted-1"}
    assert not readable(session, guarded)


def test_a_catalog_that_could_not_be_loaded_gets_its_secrets_when_it_is_loaded_later(
    session, table: TableInfo, tmp_path: Path
):
    later = tmp_path / "later"
    properties = {**table.lake_catalog_properties, **SECRETS, "uri": f"jdbc:sqlite:{later}/catalog.db"}
    guarded = replace(table, lake_catalog_properties=properties)
    refused(session, guarded)
    assert not readable(session, guarded)
    later.mkdir()
    written = IcebergCatalogs(session).open_table(guarded).file_writer().io_properties
    assert written == {"s3.secret-access-key": "planted-1"}


def test_a_server_without_a_lake_catalog_is_named(session, table: TableInfo):
    said = refused(session, replace(table, lake_catalog_properties={"name": "nothing", "uri": "x"}))
    assert "the lake catalog 'nothing' of the server has neither 'type' nor 'catalog-impl'" in said


@pytest.mark.parametrize(
    ("properties", "limits"),
    [
        ({"type": "rest", "uri": "http://127.0.0.1:9"}, {"rest.client.connection-timeout-ms": "10000"}),
        (
            {"type": "rest", "uri": "http://127.0.0.1:9", "rest.client.connection-timeout-ms": "7"},
            {"rest.client.connection-timeout-ms": "7", "rest.client.socket-timeout-ms": "60000"},
        ),
        ({"type": "jdbc", "uri": "jdbc:postgresql://127.0.0.1:9/x"}, {"jdbc.socketTimeout": "60"}),
        ({"type": "jdbc", "uri": "jdbc:sqlite:/no/such/folder/x.db"}, {"jdbc.socketTimeout": None}),
    ],
)
def test_a_catalog_that_does_not_answer_is_not_waited_for_for_ever(session, table: TableInfo, properties, limits):
    name = f"bounded_{uuid.uuid4().hex[:8]}"
    refused(session, replace(table, lake_catalog_properties={**properties, "name": name, "warehouse": "file:/tmp/w"}))
    for key, value in limits.items():
        assert session.conf.get(f"spark.sql.catalog.{name}.{key}", None) == value


def test_a_table_that_another_driver_makes_at_the_same_time_is_opened(session, table: TableInfo, monkeypatch):
    here, there = IcebergCatalogs(session), IcebergCatalogs(session)
    find = IcebergCatalogs.find_table

    def too_early(catalogs: IcebergCatalogs, of: TableInfo):
        found = find(catalogs, of)
        if catalogs is here:
            there.open_table(of)
        return found

    monkeypatch.setattr(IcebergCatalogs, "find_table", too_early)
    opened = here.open_table(table)
    assert opened.base() is None
    assert opened.java_table.uuid() == there.open_table(table).java_table.uuid()


def test_a_rehearsal_leaves_nothing_in_the_session(session):
    before = dict(session.conf.getAll)
    rehearse_commit(session)
    assert dict(session.conf.getAll) == before


# Actions


class UnreadableLater:
    """A `FileIO` that gives lists of manifests whole once, and then only their beginning."""

    class Java:
        implements: ClassVar = ["org.apache.iceberg.io.FileIO"]

    def __init__(self, io: Any, lists: Collection[str], folder: Path) -> None:
        self._io = io
        self._folder = folder
        self.reads = dict.fromkeys(lists, 0)

    def newInputFile(self, file: Any, *size: int) -> Any:  # noqa: N802 - named by Iceberg
        location = file if isinstance(file, str) else _location(file)
        opened = self._io.newInputFile(location, *size)
        if location not in self.reads:
            return opened
        self.reads[location] += 1
        if self.reads[location] == 1:
            return opened
        cut = self._folder / f"{self.reads[location]}-{Path(location).name}"
        cut.write_bytes(Path(urlparse(location).path).read_bytes()[:100])
        return self._io.newInputFile(f"file://{cut}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)


def _location(file: Any) -> str:
    """Return the location of what Iceberg opens: a list of manifests, or a manifest."""
    try:
        return str(file.location())
    except Py4JError:
        return str(file.path())


class WithIo:
    """The operations of a table with another `FileIO`."""

    class Java:
        implements: ClassVar = ["org.apache.iceberg.TableOperations"]

    def __init__(self, operations: Any, io: UnreadableLater) -> None:
        self._operations = operations
        self._io = io

    def io(self) -> UnreadableLater:
        return self._io

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)


def planned_files(table: Any, snapshot_id: int) -> int:
    """Return the number of data files that a scan of a snapshot reads."""
    files, count = table.newScan().useSnapshot(snapshot_id).planFiles().iterator(), 0
    while files.hasNext():
        files.next()
        count += 1
    return count


def test_manifests_that_a_snapshot_needs_stay_if_iceberg_could_not_read_its_list(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake", {"k": "INT NOT NULL", "v": "STRING"}, ("k",))
    for number in range(4):
        lake.commit(lake.batch([{"k": number, "v": "a"}]))
    java = lake.open().java_table
    snapshots = list(java.snapshots())
    first, second, *left = (snapshot.snapshotId() for snapshot in snapshots)
    ensure_callback_server_started(SparkContext._gateway)
    io = UnreadableLater(java.io(), [str(each.manifestListLocation()) for each in snapshots[2:3]], tmp_path)
    table = in_library(spark, spark._jvm.org.apache.iceberg.BaseTable(WithIo(java.operations(), io), java.name()))
    assert expire(spark, table, [first, second]) >= 2, "their lists of manifests"
    assert list(io.reads.values()) > [1]
    assert [each.snapshotId() for each in lake.open().java_table.snapshots()] == left
    assert [planned_files(lake.open().java_table, each) for each in left] == [3, 4]
    assert lake.values("duckdb", "k") == [0, 1, 2, 3]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize("spoil", [truncate, Path.unlink])
@pytest.mark.parametrize("what", ["manifest list", "manifest"])
def test_nothing_expires_if_the_newest_snapshot_cannot_be_read(
    spark: Any, tmp_path: Path, what: str, spoil: Callable[[Path], None]
) -> None:
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL", "v": "STRING"}, ("k",))
    for number in range(3):
        lake.commit(lake.batch([{"k": number, "v": "a"}]))
    table = lake.open().java_table
    first, second, newest = (snapshot.snapshotId() for snapshot in table.snapshots())
    # The table has read it before.
    (manifest,) = (each for each in table.currentSnapshot().allManifests(table.io()) if each.snapshotId() == newest)
    location = table.currentSnapshot().manifestListLocation() if what == "manifest list" else manifest.path()
    spoil(Path(urlparse(location).path))
    files = {path for path in tmp_path.rglob("*") if path.is_file()}

    with (
        pytest.raises(FlussTieringError, match="a file of the lake seems to be missing or damaged"),
        lake_errors("expire"),
    ):
        expire(spark, table, [first, second])

    assert [each.snapshotId() for each in lake.open().java_table.snapshots()] == [first, second, newest]
    assert [planned_files(lake.open().java_table, each) for each in (first, second)] == [1, 2]
    assert files == {path for path in tmp_path.rglob("*") if path.is_file()}
