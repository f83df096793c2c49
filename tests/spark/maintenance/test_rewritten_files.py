"""Data files that our tasks rewrite: every engine reads the same rows, in sorted files, and the index knows them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from every_type import NESTED, TIMES, VALUES
from maintenance_support import data_files, delete_files, duckdb_rows
from spark_support import LEGACY, Tiering, data_folder, named

import judges
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.key_index import IndexStore, KeyIndex, Place, read_state, stored_states
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.spark.maintenance import rewriting
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.spark.maintenance.maintain import Maintenance, maintain_table
from fluss_tiering.spark.maintenance.plan import MaintenanceLimits, Step

BY_POSITION = {"table.datalake.enabled": "true", "table.datalake.delete-files": "position"}
SMALL = MaintenanceLimits(min_input_files=2, delete_files=1)
FORMATS = pytest.mark.parametrize("version", [2, 3], ids=["position delete files", "deletion vectors"])


@pytest.fixture(autouse=True)
def by_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note the tables that Spark rewrites. At the end of a test there is none that it has not removed."""
    rewrite, noted = rewriting.rewrite, list[str]()

    def noting(spark: Any, table: Any, *arguments: Any) -> Any:
        noted.append(str(table.name()))
        return rewrite(spark, table, *arguments)

    monkeypatch.setattr(rewriting, "rewrite", noting)
    yield noted
    assert noted == []


def compacted(tiering: Tiering, table: TableInfo, limits: MaintenanceLimits = SMALL) -> Maintenance:
    done = maintain_table(tiering.client, tiering.spark, table, steps={Step.COMPACT}, limits=limits)
    assert (done.error, done.conflicts) == (None, 0)
    return done


def as_version(tiering: Tiering, table: TableInfo, version: int) -> None:
    if version > 2:
        tiering.spark.sql(f"ALTER TABLE {tiering.name(table)} SET TBLPROPERTIES ('format-version' = '{version}')")


def of_columns(tiering: Tiering, name: str, types: dict[str, Any], *, keyed: bool, version: int) -> TableInfo:
    columns = (
        Column("id", DataType.parse("INT NOT NULL")),
        *(Column(f"n{number}", DataType.parse(kind)) for number, kind in enumerate(types)),
    )
    key = ("id",) if keyed else ()
    properties = {
        **(BY_POSITION if keyed else {"table.datalake.enabled": "true"}),
        "iceberg.format-version": str(version),
    }
    return tiering.client.create_table(TablePath("types", name), TableDescriptor(columns, key, key, 1, properties))


def write(tiering: Tiering, table: TableInfo, rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(table.descriptor.columns))
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    for _ in tiering.client.write_rows(table.path, kind, [batch]):
        pass


def rows_of_types(types: dict[str, Any], ids: range) -> list[dict[str, Any]]:
    """Return rows with the two values of each type and null, in turn."""
    found = []
    for number in ids:
        values = [(*pair, None)[number % 3] for pair in types.values()]
        found.append({"id": number, **{f"n{each}": value for each, value in enumerate(values)}})
    return found


@pytest.mark.sampled(1)
@FORMATS
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "log"])
@pytest.mark.parametrize("types", [VALUES, TIMES, NESTED], ids=["plain types", "times", "nested types"])
def test_values_of_every_type_stay_as_they_were(
    tiering: Tiering, types: dict[str, Any], *, keyed: bool, version: int
) -> None:
    kind = {len(VALUES): "plain", len(TIMES): "times"}.get(len(types), "nested")
    table = of_columns(tiering, f"{kind}_{'keyed' if keyed else 'log'}_{version}", types, keyed=keyed, version=version)
    for first in (0, 4, 8, 2):
        write(tiering, table, rows_of_types(types, range(first, first + 6)))
        tiering.tier(table)
    # ClickHouse knows no deletion vectors.
    readers = [judges.DUCKDB, judges.PYICEBERG, *([judges.CLICKHOUSE] if version == 2 else [])]
    metadata = judges.newest_metadata(data_folder(table).parent)
    before = {judge: judges.read(judge, metadata) for judge in readers}

    done = compacted(tiering, table)

    assert (done.rewritten.files, done.rewritten.new_files) == (4, 1)
    metadata = judges.newest_metadata(data_folder(table).parent)
    for judge, rows in before.items():
        found = judges.read(judge, metadata)
        assert found.schema == rows.schema, judge
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, rows.to_pylist())), judge
        for key in (0, 7, 99):
            found = judges.read(judge, metadata, judges.Predicate("id", "=", key), columns=["id"])
            assert found.num_rows == rows.filter(pa.compute.field("id") == key).num_rows, judge


@FORMATS
@pytest.mark.sampled(1)
def test_files_are_sorted_and_the_index_knows_their_rows(tiering: Tiering, version: int) -> None:
    table = tiering.table(num_buckets=2, properties={**BY_POSITION, **LEGACY})
    chance, expected = random.Random(version), dict[int, str | None]()
    for step in range(5):
        changed = named(chance.sample(range(400), 150), f"step {step}")
        gone = chance.sample(range(400), 20) if step else []
        tiering.write(table, changed)
        tiering.delete(table, gone)
        expected = {key: value for key, value in {**expected, **changed}.items() if key not in gone}
        tiering.tier(table)
        as_version(tiering, table, version)

    done = compacted(tiering, table)

    assert (done.rewritten.files, done.rewritten.new_files) == (10, 2)
    assert done.after is not None
    assert (done.after.delete_files, done.after.position_deletes) == (0, 0)
    assert duckdb_rows(tiering, table) == sorted(expected.items())
    files = data_files(tiering, table)
    for location in files:
        keys = pq.read_table(urlparse(location).path).column("id").to_pylist()
        assert keys == sorted(keys)
    lake = IcebergCatalogs(tiering.spark).open_table(table)
    store = IndexStore(f"{lake.location()}/_key_index")
    for bucket in range(2):
        place = Place(str(lake.java_table.uuid()), bucket)
        runs = read_state(store, place, stored_states(store, place)[0].snapshot_id)
        live = [each for each in files if f"bucket={bucket}/" in each]
        assert runs is not None
        assert live
        assert KeyIndex(store, place, runs).unknown_files(live) == []

    tiering.write(table, named(range(0, 400, 7), "after"))
    tiering.delete(table, range(0, 400, 11))
    tiering.tier(table)
    expected = {**expected, **named(range(0, 400, 7), "after")}
    left = sorted((key, name) for key, name in expected.items() if key % 11)
    assert duckdb_rows(tiering, table) == tiering.lake_rows(table) == left


@FORMATS
@pytest.mark.sampled(1)
def test_delete_files_go_together_with_the_only_data_files_that_have_them(tiering: Tiering, version: int) -> None:
    properties = {**BY_POSITION, **LEGACY, "iceberg.format-version": str(version)}
    table = tiering.tiered(named(range(100), "first"), num_buckets=2, properties=properties)
    placed = judges.read(judges.DUCKDB, judges.newest_metadata(data_folder(table).parent), columns=["id", "__bucket"])
    of_bucket = sorted(row["id"] for row in placed.to_pylist() if row["__bucket"] == 0)
    for step in range(4):
        tiering.round(table, named(of_bucket[step::5], f"step {step}"))
    assert delete_files(tiering, table) == 1
    rows, snapshots = duckdb_rows(tiering, table), len(tiering.snapshots(table))

    done = compacted(tiering, table)

    # One commit does it all.
    assert len(tiering.snapshots(table)) == snapshots + 1
    # The other bucket keeps its data file, which is older than the delete file.
    assert (done.rewritten.files, done.rewritten.new_files, len(data_files(tiering, table))) == (5, 1, 2)
    assert delete_files(tiering, table) == 0
    assert duckdb_rows(tiering, table) == tiering.lake_rows(table) == rows


def test_a_null_in_a_partition_column_stays_null(tiering: Tiering, by_spark: list[str]) -> None:
    columns = (Column("day", DataType.parse("STRING")), Column("v", DataType.parse("INT")))
    descriptor = TableDescriptor(columns, (), (), 1, {"table.datalake.enabled": "true"}, partition_keys=("day",))
    table = tiering.client.create_table(TablePath("types", "null_partition"), descriptor)
    write(tiering, table, [{"day": "None", "v": 1}])
    tiering.tier(table)
    for number in range(3):
        tiering.spark.sql(f"INSERT INTO {tiering.name(table)} SELECT CAST(NULL AS STRING), {number}")

    assert compacted(tiering, table).rewritten.files == 3

    by_spark.clear()
    days = tiering.spark.sql(f"SELECT day FROM {tiering.name(table)}").collect()
    assert sorted(str(row.day is None) for row in days) == ["False", "True", "True", "True"]


def test_clickhouse_sorts_the_rows_of_a_log(tiering: Tiering) -> None:
    table = tiering.table(primary_key=False, properties=LEGACY)

    def sorts() -> None:
        warehouse = urlparse(table.lake_catalog_properties["warehouse"]).path
        metadata = judges.newest_metadata(f"{warehouse}/{table.path.database}/{table.path.table}")
        assert judges.sorted_by_clickhouse(metadata, "__offset") == list(range(30))
        assert judges.sorted_by_clickhouse(metadata, "__offset", descending=True) == list(range(29, -1, -1))

    for step in range(3):
        tiering.round(table, named(range(step * 10, step * 10 + 10), "row"))
    sorts()
    assert compact_table(tiering.spark, table, min_input_files=2).error is None
    sorts()


def test_values_of_columns_that_only_the_lake_table_has_are_kept(tiering: Tiering, by_spark: list[str]) -> None:
    table = tiering.table(primary_key=False, properties={"table.datalake.enabled": "true"})
    for step in range(3):
        tiering.round(table, named([step], "row"))
    tiering.spark.sql(f"ALTER TABLE {tiering.name(table)} ADD COLUMN note STRING")
    tiering.spark.sql(
        f"INSERT INTO {tiering.name(table)} SELECT *, 'mine' FROM (SELECT id, name FROM {tiering.name(table)} "
        "WHERE id = 1)"
    )
    assert compacted(tiering, table).rewritten.files == 4
    assert len(by_spark) == 1
    by_spark.clear()
    notes = tiering.spark.sql(f"SELECT id, note FROM {tiering.name(table)}").collect()
    assert sorted(map(tuple, notes), key=str) == [(0, None), (1, "mine"), (1, None), (2, None)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["missing", "damaged", "damaged inside", "rows missing"])
def test_a_data_file_that_cannot_be_read_stops_the_rewrite(tiering: Tiering, what: str) -> None:
    table = tiering.table(properties=BY_POSITION)
    for step in range(3):
        tiering.round(table, named(range(step * 10, step * 10 + 10), "row"))
    path = Path(urlparse(data_files(tiering, table)[1]).path)
    content, rows = path.read_bytes(), pq.read_table(path)
    if what == "missing":
        path.unlink()
    elif what == "damaged":
        path.write_bytes(content[:-100])
    elif what == "damaged inside":
        path.write_bytes(content[:4] + b"\xff" * (len(content) - 12) + content[-8:])
    else:
        pq.write_table(rows.slice(1), path)
    on_disk = tiering.files_on_disk(table)

    done = maintain_table(tiering.client, tiering.spark, table, steps={Step.COMPACT}, limits=SMALL)

    assert done.error is not None
    assert str(path) in done.error
    assert {"missing": "file missing: ", "rows missing": "has 9 rows"}.get(what, "file damaged: ") in done.error
    assert "restore it from a backup" in done.error
    assert tiering.files_on_disk(table) == on_disk
    path.write_bytes(content)
    assert compacted(tiering, table).rewritten.files == 3
    assert len(duckdb_rows(tiering, table)) == 30


LETTERS = {"p": pa.string(), "k": pa.int32(), "v": pa.string()}


@FORMATS
@pytest.mark.sampled(1)
def test_partitions_whose_values_differ_only_by_case_keep_their_rows(tiering: Tiering, version: int) -> None:
    columns = (
        Column("p", DataType.parse("STRING NOT NULL")),
        Column("k", DataType.parse("INT NOT NULL")),
        Column("v", DataType.parse("STRING")),
    )
    properties = {**BY_POSITION, "iceberg.format-version": str(version)}
    descriptor = TableDescriptor(columns, ("p", "k"), ("k",), 1, properties, partition_keys=("p",))
    table = tiering.client.create_table(TablePath("letters", f"case_{version}"), descriptor)
    expected = {}

    def upsert(*changed: tuple[str, int, str]) -> None:
        write(tiering, table, [{"p": p, "k": k, "v": v} for p, k, v in changed])
        expected.update({(p, k): v for p, k, v in changed})
        tiering.tier(table)

    for key in (1, 2, 3):
        upsert(*((p, key, f"first {p}") for p in ("a", "A", "bc", "bC")))
    done = compacted(tiering, table)
    assert (done.rewritten.files, done.rewritten.new_files) == (12, 4)
    names = [Path(file).name for file in data_files(tiering, table)]
    # DuckDB compares the paths of data files without case, and so gives the deletes of one to another.
    assert len(set(names)) == 4, names
    upsert(("a", 1, "second"), ("bC", 2, "second"))

    # ClickHouse knows no deletion vectors.
    readers = [judges.DUCKDB, judges.PYICEBERG, *([judges.CLICKHOUSE] if version == 2 else [])]
    metadata = judges.newest_metadata(data_folder(table).parent)
    for judge in readers:
        rows = judges.read(judge, metadata, columns=["p", "k", "v"])
        found = zip(*(rows[name].cast(kind).to_pylist() for name, kind in LETTERS.items()), strict=True)
        assert sorted(found) == sorted((*key, v) for key, v in expected.items()), judge
    in_spark = tiering.spark.table(tiering.name(table)).select("p", "k", "v").collect()
    assert sorted(map(tuple, in_spark)) == sorted((*key, v) for key, v in expected.items())
