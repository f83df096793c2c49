"""Lake catalogs beside what a Spark session has already, and Iceberg's own actions on lake tables."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
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
from fluss_tiering.lake.iceberg.orphans import check_grace, find_orphans
from fluss_tiering.lake.names import round_file_name
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath
from fluss_tiering.spark.startup.workers import rehearse_commit

COLUMNS = (Column("k", DataType.parse("INT NOT NULL")), Column("v", DataType.parse("STRING")))
ICEBERG = "org.apache.iceberg.spark.SparkCatalog"
OLD_S = 10 * 24 * 3600


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


# D53
def test_tables_under_the_former_default_name_are_not_made_again(spark, session, table: TableInfo):
    properties = {key: value for key, value in table.lake_catalog_properties.items() if key != "name"}
    unnamed = replace(table, lake_catalog_properties=properties)
    former = spark.newSession()
    former.conf.set("spark.sql.catalog.fluss_catalog", ICEBERG)
    IcebergCatalogs(former).open_table(replace(table, lake_catalog_properties={**properties, "name": "fluss_catalog"}))

    with pytest.raises(FlussTieringError, match="is in the JDBC catalog 'fluss_catalog', the former default") as error:
        IcebergCatalogs(session).find_table(unnamed)
    assert error.value.code is ErrorCode.LAKE_TABLE_MISMATCH
    elsewhere = replace(unnamed, path=TablePath("db", "another"))
    assert IcebergCatalogs(session).find_table(elsewhere) is None
    # A catalog with a name is never looked for under another one.
    assert IcebergCatalogs(session).open_table(table).base() is None


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


def test_exactly_the_named_snapshots_expire_and_their_files_go(spark, tmp_path: Path):
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL", "v": "STRING"}, ("k",))
    for number in range(3):
        lake.commit(lake.batch([{"k": number, "v": "a"}]))
    opened = lake.open()
    ids = [snapshot.snapshotId() for snapshot in opened.java_table.snapshots()]
    files = {path for path in tmp_path.rglob("*") if path.is_file() and not path.name.endswith(".crc")}

    deleted = expire(spark, opened.java_table, [ids[0]])

    left = {path for path in tmp_path.rglob("*") if path.is_file() and not path.name.endswith(".crc")}
    assert deleted == len([path for path in files - left if path.name.endswith((".avro", ".parquet"))])
    assert deleted >= 1, "at least its list of manifests"
    assert [each.snapshotId() for each in lake.open().java_table.snapshots()] == ids[1:]
    assert lake.values("duckdb", "k") == [0, 1, 2]


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

    with pytest.raises(FlussTieringError, match=f"^{what} (missing|damaged): {location}: ") as refused:
        expire(spark, table, [first, second])

    assert refused.value.code is ErrorCode.CORRUPT_DATA
    assert [each.snapshotId() for each in lake.open().java_table.snapshots()] == [first, second, newest]
    assert [planned_files(lake.open().java_table, each) for each in (first, second)] == [1, 2]
    assert files == {path for path in tmp_path.rglob("*") if path.is_file()}


def test_files_that_the_oldest_snapshot_left_has_removed_go_at_once(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL", "v": "STRING"}, ("k",))
    lake.commit(lake.batch([{"k": 1, "v": "a"}]))
    lake.commit(lake.batch([{"k": 2, "v": "a"}]))
    spark.sql(f"DELETE FROM {lake.name}.db.t WHERE k = 1")
    table = lake.open().java_table
    first, second, _third = (snapshot.snapshotId() for snapshot in table.snapshots())
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    expire(spark, table, [first])
    assert len(list(tmp_path.rglob("*.parquet"))) == 2, "the second one needs both"

    assert expire(spark, lake.open().java_table, [second]) == 3, "a data file, a manifest and a list of manifests"
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert lake.values("duckdb", "k") == [2]


def plans(spark: SparkSession) -> dict[int, str]:
    """Return the plans of the last queries that Spark has run, by their numbers. It forgets those before."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    found = [executions.apply(number) for number in range(executions.size())]
    return {each.executionId(): each.physicalPlanDescription() for each in found}


def test_no_join_of_names_of_files_holds_a_side_in_memory(spark, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL", "v": "STRING"}, ("k",))
    for number in range(3):
        lake.commit(lake.batch([{"k": number, "v": "a"}]))
    opened = lake.open()
    adaptive, before = spark.conf.get("spark.sql.adaptive.enabled"), plans(spark)

    expire(spark, opened.java_table, [opened.java_table.currentSnapshot().parentId()])
    find_orphans(spark, lake.table, lake.open(), timedelta(days=3))

    made = [plan for number, plan in plans(spark).items() if number not in before]
    assert any("SortMergeJoin" in plan for plan in made), made
    assert not any("Broadcast" in plan or "AdaptiveSparkPlan" in plan for plan in made)
    assert spark.conf.get("spark.sql.adaptive.enabled") == adaptive


@pytest.mark.parametrize("ending", ["", "/"])
def test_a_table_into_which_nothing_was_written_has_no_orphans(spark, tmp_path, ending: str):
    properties = {"write.data.path": f"file://{tmp_path}/elsewhere{ending}"}
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL"}, properties=properties)
    assert orphans(spark, lake) == {}


def orphans(spark, lake: Lake, days: float = 3) -> dict[str, str | None]:
    found = find_orphans(spark, lake.table, lake.open(), timedelta(days=days))
    return {Path(each.location).name: each.kept for each in found}


def stray(folder: Path, name: str, age_s: float = OLD_S) -> str:
    path = folder / "db" / "t" / "data" / "k_bucket=0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (time.time() - age_s,) * 2)
    return name


def test_orphans_are_the_old_files_of_rounds_that_are_decided(spark, tmp_path: Path):
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL", "v": "STRING"}, ("k",))
    opened = lake.open()
    assert orphans(spark, lake) == {}, "nothing was ever written"
    files = lake.write(opened, [lake.batch([{"k": 1, "v": "a"}])])
    opened.commit([files], LakeCommit(1, 5, str(uuid.uuid4()), "/offsets", {TableBucket(1, 0): 1}))
    for path in tmp_path.rglob("*.parquet"):
        os.utime(path, (time.time() - OLD_S,) * 2)
    attempt = uuid.uuid4()
    decided = stray(tmp_path, f"{round_file_name(0, 5, attempt)}-0-00000.parquet")
    earlier = stray(tmp_path, f"{round_file_name(0, 4, attempt)}-0-00000.parquet")
    running = stray(tmp_path, f"{round_file_name(0, 6, attempt)}-0-00000.parquet")
    foreign = stray(tmp_path, "part-00000.parquet")
    young = stray(tmp_path, f"{round_file_name(0, 3, attempt)}-0-00000.parquet", age_s=2 * 24 * 3600)

    found = orphans(spark, lake)

    assert set(found) == {decided, earlier, running, foreign}
    assert [found[name] for name in (decided, earlier, foreign)] == [None, None, None]
    assert "the round of epoch 6 may still commit it" in str(found[running])
    assert young in orphans(spark, lake, days=1)


def test_the_offsets_file_that_the_newest_commit_names_is_no_orphan(spark, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("fluss_tiering.lake.iceberg.summary._MAX_OFFSETS_LENGTH", 1)
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL", "v": "STRING"}, ("k",))
    for epoch in (1, 2):
        lake.open().commit([], LakeCommit(1, epoch, str(uuid.uuid4()), "/offsets", {TableBucket(1, 0): epoch}))
    for path in tmp_path.rglob("*offsets.json"):
        os.utime(path, (time.time() - OLD_S,) * 2)
    newest = lake.open().newest_commit()
    assert newest is not None
    assert newest.commit.lake_offsets is not None
    (orphan,) = orphans(spark, lake)
    assert orphan.endswith("-offsets.json")
    assert orphan != Path(newest.commit.lake_offsets).name


def test_a_folder_that_another_table_may_share_keeps_its_files(spark, tmp_path: Path):
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL", "v": "STRING"}, ("k",))
    lake.commit(lake.batch([{"k": 1, "v": "a"}]))
    stray(tmp_path, "part-00000.parquet")
    metadata = tmp_path / "db" / "t" / "metadata"
    first = min(metadata.glob("v1*.metadata.json"))
    theirs = metadata / "00000-another.metadata.json"
    theirs.write_text(first.read_text().replace(lake.open().java_table.uuid().toString(), str(uuid.uuid4())))
    assert orphans(spark, lake) == {"part-00000.parquet": None}, "a table that was made later has none of these files"
    os.utime(theirs, (time.time() - OLD_S,) * 2)
    (kept,) = orphans(spark, lake).values()
    assert kept is not None
    assert "another lake table was made in this folder" in kept
    assert "00000-another.metadata.json" in kept


def test_an_age_below_a_day_is_refused():
    check_grace(timedelta(days=1))
    with pytest.raises(FlussTieringError, match="an age of 23h is too short: expected one day or more") as error:
        check_grace(timedelta(hours=23))
    assert error.value.code is ErrorCode.INVALID_REQUEST
