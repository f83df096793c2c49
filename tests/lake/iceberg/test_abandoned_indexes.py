"""Key indexes that nobody needs any more are orphans: those of dropped partitions and of dropped lake tables."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from table_support import PATH, commit_of

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.orphans import find_orphans
from fluss_tiering.lake.key_index import IndexStore, Place, write_state
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo

COLUMNS = (Column("day", DataType.parse("STRING NOT NULL")), Column("k", DataType.parse("INT NOT NULL")))
OLD_S = 5 * 24 * 3600


@pytest.fixture
def table(catalogs: IcebergCatalogs, lake_properties: dict[str, str]) -> TableInfo:
    """Return a table with a row in the partition mon, and none in tue."""
    descriptor = TableDescriptor(COLUMNS, ("day", "k"), ("k",), 2, partition_keys=("day",))
    table = TableInfo(1, PATH, 1, descriptor, 0, lake_properties)
    lake = catalogs.open_table(table)
    files = []
    for day in ("mon", "tue"):
        location = lake.piece_location(0, str(uuid.uuid4()), (day,))
        writer = lake.file_writer().open_piece(0, location, 0, (day,))
        stamps = pa.array([0]).to_numpy()
        writer.write(pa.RecordBatch.from_pydict({"day": [day], "k": [1]}, arrow_schema(COLUMNS)), stamps, stamps)
        files += writer.close()
    lake.commit([files], commit_of(1))
    tuesday = lake.java_table.newDelete()
    expressions = catalogs._spark._jvm.org.apache.iceberg.expressions.Expressions
    tuesday.deleteFromRowFilter(expressions.equal("day", "tue")).commit()
    return table


def store_of(lake_table: TableInfo, catalogs: IcebergCatalogs) -> tuple[IndexStore, str]:
    lake = catalogs.open_table(lake_table)
    return lake.index_store(), lake.uuid


def write(store: IndexStore, place: Place, age_s: float = OLD_S, name: str | None = None) -> str:
    """Write a state, or another file, and return the name of its place's folder."""
    path = Path(urlparse(store.location).path, place.folder)
    if name is None:
        write_state(store, place, 7, [])
        path /= "state-7"
    else:
        path.mkdir(parents=True, exist_ok=True)
        path /= name
        path.write_text("x")
    os.utime(path, (time.time() - age_s,) * 2)
    return place.folder


def found(spark, catalogs: IcebergCatalogs, table: TableInfo) -> Mapping[str, str | None]:
    """Return why the files of indexes are kept that are orphans, by their folders."""
    orphans = find_orphans(spark, table, catalogs.open_table(table), timedelta(days=3))
    return {
        each.location.rpartition("/_key_index/")[2].rpartition("/")[0]: each.kept
        for each in orphans
        if "/_key_index/" in each.location
    }


def test_only_indexes_of_partitions_without_rows_are_removed(spark, catalogs, table):
    assert found(spark, catalogs, table) == {}
    store, own = store_of(table, catalogs)
    write(store, Place(own, 0, ("mon",)))
    write(store, Place(own, 0))
    gone = [write(store, Place(own, bucket, ("tue",))) for bucket in (0, 1)]
    # Somebody works on one, the state of another one cannot be read, and what pieces have noted is kept for longer.
    write(store, Place(own, 0, ("wed",)))
    write(store, Place(own, 1, ("wed",)), age_s=0)
    write(store, Place(own, 0, ("thu",)), name="state-8")
    write(store, Place(own, 0, ("fri",)))
    write(store, Place(own, 0, ("fri",)), age_s=3.5 * 24 * 3600, name="noted-1")
    (Path(urlparse(store.location).path) / "strange").write_text("x")

    assert found(spark, catalogs, table) == dict.fromkeys(gone)

    lake = catalogs.open_table(table)
    orphans = find_orphans(spark, table, lake, timedelta(days=3))
    assert lake.delete_locations([each.location for each in orphans]) == []
    assert found(spark, catalogs, table) == {}
    assert store.files(Place(own, 0, ("mon",)).folder) != []


def test_the_index_of_another_lake_table_is_removed_unless_it_may_live(spark, catalogs, table):
    store, _ = store_of(table, catalogs)
    dropped = write(store, Place(str(uuid.uuid4()), 0))
    write(store, Place(str(uuid.uuid4()), 0), age_s=0)
    assert found(spark, catalogs, table) == {dropped: None}

    # A table that was only renamed keeps its folder, and its first metadata is here.
    metadata = Path(urlparse(catalogs.open_table(table).metadata_location()).path)
    first = next(metadata.glob("00000-*.metadata.json"))
    other = metadata / f"00000-{uuid.uuid4()}.metadata.json"
    own = catalogs.open_table(table).uuid
    other.write_text(first.read_text().replace(own, str(uuid.uuid4())))
    os.utime(other, (time.time() - OLD_S,) * 2)
    ((folder, kept),) = found(spark, catalogs, table).items()
    assert folder == dropped
    assert kept is not None
    assert "another lake table was made in this folder" in kept


def test_a_plain_file_in_the_place_of_the_folder_has_no_indexes(spark, catalogs, table):
    store, _ = store_of(table, catalogs)
    path = Path(urlparse(store.location).path)
    assert not path.exists()
    path.write_text("x")
    assert found(spark, catalogs, table) == {}
