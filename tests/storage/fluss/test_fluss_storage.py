"""A real Fluss cluster as the server's storage: tables, buckets, offsets files."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from fluss_scanning import open_storage
from fluss_tables import COLUMNS, descriptor, new_path, rows
from refusals import refused

from fluss_support import FlussCluster
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey, ServedApis
from fluss_tiering.storage.fluss.rpc.calls.tables import (
    alter_table,
    create_partition,
    create_table,
    drop_database,
    drop_table,
    list_databases,
)
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.storage import FlussStorage
from waiting import wait_until

FRESHNESS = "table.datalake.freshness"
DELETE_FILES = "table.datalake.delete-files"


def table_of(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def test_a_storage_says_which_cluster_it_is(storage: FlussStorage, fluss_cluster: FlussCluster) -> None:
    described = storage.describe()
    assert (described.kind, described.data_dir, described.bootstrap_servers) == ("fluss", "", fluss_cluster.bootstrap)
    again = open_storage(fluss_cluster)
    assert again.describe() == described
    again.close()


def test_a_table_is_made_in_a_database_of_its_own_and_dropped(storage: FlussStorage, fluss: FlussClient) -> None:
    path = TablePath("warehouse", "orders")
    made_from = descriptor(primary_key=True, tiered=True, num_buckets=3, table__datalake__freshness="1h")
    made = storage.create_table(path, made_from)
    assert "warehouse" in fluss.call(list_databases())
    assert (made.path, made.descriptor.primary_key, made.descriptor.num_buckets) == (path, ("id",), 3)
    assert made.lake_catalog_properties["type"] == "jdbc"
    # All buckets have leaders, so a write does not wait.
    assert [info.bucket for info in storage.buckets(path)] == [TableBucket(made.table_id, n) for n in range(3)]
    assert storage.table(path) == storage.table_by_id(made.table_id) == made
    assert made in storage.tables()
    with refused(ErrorCode.TABLE_ALREADY_EXIST, "warehouse.orders"):
        storage.create_table(path, made_from)

    assert storage.drop_table(path) == made
    for gone in (
        lambda: storage.table(path),
        lambda: storage.table_by_id(made.table_id),
        lambda: storage.buckets(path),
    ):
        with refused(ErrorCode.TABLE_NOT_EXIST):
            gone()
    assert made not in storage.tables()
    with refused(ErrorCode.TABLE_NOT_EXIST, "warehouse.orders"):
        storage.drop_table(path)
    fluss.call(drop_database("warehouse"))


def test_a_primary_key_is_the_bucket_key_where_none_is_named(storage: FlussStorage) -> None:
    made = storage.create_table(new_path(), TableDescriptor(columns=COLUMNS, primary_key=("id",), num_buckets=2))
    assert made.descriptor.bucket_keys == ("id",)


def test_a_bucket_key_of_several_columns_is_refused(storage: FlussStorage, fluss: FlussClient) -> None:
    path = new_path()
    made_from = TableDescriptor(columns=COLUMNS, bucket_keys=("id", "name"), num_buckets=2)
    with refused(ErrorCode.INVALID_TABLE, "(id, name) has several columns: expected one", "--bucket-key"):
        storage.create_table(path, made_from)
    # A table that is not tiered may have one, and Fluss's clients do not write to it, either.
    fluss.call(create_table(path, made_from))
    with refused(ErrorCode.INVALID_TABLE, str(path), "(id, name): expected one column"):
        storage.write(path, WriteKind.APPEND, table_of(rows(0, 3)))


def test_what_the_lake_could_never_hold_is_refused_before_the_cluster_makes_it(storage: FlussStorage) -> None:
    path = new_path()
    with refused(ErrorCode.INVALID_TABLE, "iceberg.write.parquet.compression-codec", "zstd"):
        storage.create_table(path, descriptor(tiered=True, **{"iceberg.write.parquet.compression-codec": "rar"}))
    with refused(ErrorCode.TABLE_NOT_EXIST):
        storage.table(path)


def test_options_that_only_a_cluster_has_are_passed_on(storage: FlussStorage) -> None:
    path = new_path()
    made = storage.create_table(path, descriptor(primary_key=True, **{"table.merge-engine": "first_row"}))
    assert made.descriptor.properties["table.merge-engine"] == "first_row"
    # What it does not know, it refuses itself.
    with refused(ErrorCode.INVALID_TABLE, "table.merge-engines"):
        storage.create_table(new_path(), descriptor(primary_key=True, **{"table.merge-engines": "first_row"}))


def test_options_are_altered_and_reset(storage: FlussStorage) -> None:
    path = new_path()
    before = storage.create_table(path, descriptor(tiered=True, table__datalake__freshness="1h", mine="old"))
    properties = {**before.descriptor.properties, FRESHNESS: "2h", "yours": "new"}
    del properties["mine"]
    after = storage.alter_table(path, properties)
    assert after == storage.table(path)
    assert after.descriptor.properties == properties
    # Fluss can change only some of its own options.
    with refused(ErrorCode.INVALID_TABLE, "table.replication.factor", "not supported to alter"):
        storage.alter_table(path, {**properties, "table.replication.factor": "2"})
    with refused(ErrorCode.INVALID_TABLE, "iceberg.write.target-file-size-bytes"):
        storage.alter_table(path, {**properties, "iceberg.write.target-file-size-bytes": "many"})
    assert not after.has_primary_key
    with refused(ErrorCode.INVALID_TABLE, DELETE_FILES, "expected", "leave it out"):
        storage.alter_table(path, {**properties, DELETE_FILES: "position"})
    with refused(ErrorCode.INVALID_TABLE, DELETE_FILES, "expected", "leave it out"):
        storage.create_table(new_path(), descriptor(tiered=True, **{DELETE_FILES: "position"}))
    assert storage.table(path).descriptor.properties == properties


def test_what_others_do_to_tables_is_seen(storage: FlussStorage, fluss: FlussClient) -> None:
    path = new_path()
    fluss.call(create_table(path, descriptor(tiered=True, table__datalake__freshness="1h")))
    made = storage.table(path)
    assert made in storage.listed.refresh()
    fluss.call(alter_table(path, {FRESHNESS: "2h"}))
    wait_until(lambda: storage.table(path).descriptor.properties[FRESHNESS] == "2h")
    fluss.call(alter_table(path, {FRESHNESS: "3h"}))

    def listed() -> TableInfo:
        (found,) = [each for each in storage.listed.refresh() if each.path == path]
        return found

    # Known tables are read again in turn.
    wait_until(lambda: listed().descriptor.properties[FRESHNESS] == "3h")
    # This is another table with the same name.
    fluss.call(drop_table(path))
    fluss.call(create_table(path, descriptor()))
    wait_until(lambda: listed().table_id > made.table_id)
    with refused(ErrorCode.TABLE_NOT_EXIST, f"id {made.table_id}"):
        storage.table_by_id(made.table_id)
    fluss.call(drop_table(path))
    assert path not in [each.path for each in storage.listed.refresh()]


def test_a_table_in_other_formats_is_told(storage: FlussStorage, fluss: FlussClient) -> None:
    path, tiered = new_path(), new_path()
    fluss.call(create_table(path, descriptor(table__log__format="INDEXED")))
    rows_of_it = table_of(rows(0, 1))
    with refused(ErrorCode.INVALID_TABLE, str(path), "table.log.format=INDEXED", "ARROW"):
        storage.write(path, WriteKind.APPEND, rows_of_it)
    fluss.call(create_table(tiered, descriptor(tiered=True, table__log__format="INDEXED")))
    with refused(ErrorCode.INVALID_TABLE, str(tiered), "table.log.format=INDEXED", "ARROW"):
        storage.table(tiered)
    assert {path, tiered} & {each.path for each in storage.listed.refresh()} == {path}
    fluss.call(drop_table(tiered))


def test_a_cluster_without_the_call_to_alter_is_named(storage: FlussStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    path = new_path()
    before = storage.create_table(path, descriptor(tiered=True, table__datalake__freshness="1h"))
    monkeypatch.setattr(ServedApis, "serves", lambda self, api: api is not ApiKey.ALTER_TABLE)
    with refused(ErrorCode.UNSUPPORTED_VERSION, "ALTER_TABLE"):
        storage.alter_table(path, {**before.descriptor.properties, FRESHNESS: "2h"})


# D43
def test_the_size_of_a_row_is_measured_again_when_the_log_has_grown(storage: FlussStorage) -> None:
    table = storage.create_table(new_path(), descriptor())

    def row_bytes() -> float:
        (info,) = storage.buckets(table.path)
        return info.log_size_bytes / info.log_end_offset

    storage.write(table.path, WriteKind.APPEND, table_of(rows(0, 2_000)))
    small = row_bytes()
    for start in range(0, 2_000, 100):
        names = [os.urandom(10_000).hex() for _ in range(100)]
        large = pa.record_batch([list(range(start, start + 100)), names], schema=rows(0, 0).schema)
        storage.write(table.path, WriteKind.APPEND, table_of(large))

    assert small < 40
    # Half of the rows are small. Nothing is measured while the leader moves that part of the log to the remote folder.
    wait_until(lambda: row_bytes() > 2_000)
    assert row_bytes() < 20_000


def test_buckets_tell_ranges_sizes_and_snapshots(storage: FlussStorage) -> None:
    table = storage.create_table(new_path(), descriptor(primary_key=True, num_buckets=2))
    empty = storage.buckets(table.path)
    assert [(info.log_start_offset, info.log_end_offset, info.log_size_bytes) for info in empty] == [(0, 0, 0)] * 2
    ends = storage.write(table.path, WriteKind.UPSERT, table_of(rows(0, 2_000)))
    assert sum(ends.values()) == 2_000
    infos = {info.bucket: info for info in storage.buckets(table.path)}
    assert {bucket: info.log_end_offset for bucket, info in infos.items()} == ends
    for info in infos.values():
        # The id and the name are compressed.
        assert 3 < info.log_size_bytes / info.log_end_offset < 40

    def latest():
        found = {each.bucket: each.log_offset for each in storage.take_kv_snapshots(table.path)}
        return found == ends and storage.take_kv_snapshots(table.path)

    for snapshot in wait_until(latest):
        assert (snapshot.row_count, snapshot.size_bytes, snapshot.split_keys) == (-1, 0, ())
        assert storage.kv_snapshot(snapshot.bucket, snapshot.snapshot_id) == snapshot
        assert storage.kv_snapshot(snapshot.bucket, snapshot.snapshot_id + 1000) is None
        assert snapshot in [info.latest_kv_snapshot for info in storage.buckets(table.path)]
    assert storage.collectable_kv_snapshots(table.path) == ()
    assert storage.delete_kv_snapshots([(snapshot.bucket, snapshot.snapshot_id)]) == 0
    log = storage.create_table(new_path(), descriptor())
    with refused(ErrorCode.TABLE_WITHOUT_PRIMARY_KEY, str(log.path)):
        storage.take_kv_snapshots(log.path)


def test_buckets_of_all_partitions(storage: FlussStorage, fluss: FlussClient) -> None:
    columns = (*COLUMNS, Column("day", DataType.parse("STRING NOT NULL")), Column("hour", DataType.parse("STRING")))
    made_from = TableDescriptor(columns=columns, num_buckets=2, partition_keys=("day", "hour"))
    table = storage.create_table(new_path(), made_from)
    assert table.descriptor.partition_keys == ("day", "hour")
    assert storage.buckets(table.path) == []
    fluss.call(create_partition(table.path, {"day": "monday", "hour": "9"}))
    fluss.call(create_partition(table.path, {"day": "friday", "hour": "10"}))
    infos = wait_until(lambda: len(found := storage.buckets(table.path)) == 4 and found)
    assert {info.partition_values for info in infos} == {("monday", "9"), ("friday", "10")}
    assert len({info.bucket.partition_id for info in infos} - {None}) == 2


def test_offsets_files_are_those_of_the_table_that_are_there(storage: FlussStorage) -> None:
    table = storage.create_table(new_path(), descriptor(tiered=True, table__datalake__freshness="1h", num_buckets=2))
    other = storage.create_table(new_path(), descriptor(tiered=True, table__datalake__freshness="1h"))
    path = storage.write_lake_offsets(table.table_id, {TableBucket(table.table_id, 1): 7})
    assert storage.has_lake_offsets(table.table_id, path)
    file = Path(path.removeprefix("file:"))
    assert file.read_text() == f'{{"version":1,"table_id":{table.table_id},"bucket_offsets":[-1,7]}}'
    assert not storage.has_lake_offsets(other.table_id, path)
    assert not storage.has_lake_offsets(table.table_id, str(file.parent))
    assert not storage.has_lake_offsets(table.table_id, "")
    file.unlink()
    assert not storage.has_lake_offsets(table.table_id, path)
    # It cannot be found out, so there is an error.
    elsewhere = path.replace("file:", "gopher://nowhere")
    with refused(ErrorCode.STORAGE, "gopher"):
        storage.has_lake_offsets(table.table_id, elsewhere)
    with refused(ErrorCode.TABLE_NOT_EXIST, "id 4711"):
        storage.write_lake_offsets(4711, {})


def test_readers_are_sent_to_the_cluster(storage: FlussStorage, fluss_cluster: FlussCluster) -> None:
    table = storage.create_table(new_path(), descriptor())
    storage.write(table.path, WriteKind.APPEND, table_of(rows(0, 3)))
    bucket = TableBucket(table.table_id, 0)
    with refused(ErrorCode.INVALID_REQUEST, fluss_cluster.bootstrap):
        storage.fetch_log(bucket, 0, 3)
    with refused(ErrorCode.INVALID_REQUEST, fluss_cluster.bootstrap):
        storage.fetch_kv_snapshot(bucket, 0, None, None)
    (batch,) = storage.reader().read_log(table, bucket, 0, 3)
    assert batch.records.to_pylist() == rows(0, 3).to_pylist()
