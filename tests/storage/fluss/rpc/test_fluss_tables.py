import pytest
from fluss_tables import COLUMNS, descriptor, new_path, new_table
from refusals import refused

from fluss_support import FlussCluster
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TablePath
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, fetch_log, log_offset
from fluss_tiering.storage.fluss.rpc.calls.tables import (
    create_database,
    create_partition,
    create_table,
    drop_database,
    drop_table,
    list_databases,
    list_partitions,
    list_tables,
    table,
)
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from waiting import wait_until


def test_databases_and_tables_come_and_go(fluss: FlussClient) -> None:
    fluss.call(create_database("sales"))
    with pytest.raises(FlussServerError) as caught:
        fluss.call(create_database("sales"))
    assert caught.value.fluss_error is FlussError.DATABASE_ALREADY_EXIST
    fluss.call(create_database("sales", ignore_if_exists=True))
    assert {"fluss", "sales"} <= set(fluss.call(list_databases()))

    path = TablePath("sales", "orders")
    fluss.call(create_table(path, descriptor()))
    with refused(ErrorCode.TABLE_ALREADY_EXIST, "sales.orders"):
        fluss.call(create_table(path, descriptor()))
    fluss.call(create_table(path, descriptor(), ignore_if_exists=True))
    assert fluss.call(list_tables("sales")) == [path]
    with pytest.raises(FlussServerError) as caught:
        fluss.call(drop_database("sales"))
    assert caught.value.fluss_error is FlussError.DATABASE_NOT_EMPTY

    fluss.call(drop_table(path))
    with refused(ErrorCode.TABLE_NOT_EXIST, "sales.orders"):
        fluss.call(drop_table(path))
    with refused(ErrorCode.TABLE_NOT_EXIST, "sales.orders"):
        fluss.call(table(path))
    fluss.call(drop_table(path, ignore_if_not_exists=True))
    fluss.call(drop_database("sales"))
    with refused(ErrorCode.DATABASE_NOT_EXIST, "sales"):
        fluss.call(list_tables("sales"))


def test_a_table_is_described_as_it_was_made(fluss: FlussClient, fluss_cluster: FlussCluster) -> None:
    texts = ("BOOLEAN", "INT", "DOUBLE", "DECIMAL(20, 3) NOT NULL", "DATE", "TIMESTAMP(3)", "TIMESTAMP_LTZ(9)")
    made_from = TableDescriptor(
        columns=(*COLUMNS, *(Column(f"c{n}", DataType.parse(text), "why") for n, text in enumerate(texts))),
        primary_key=("id",),
        bucket_keys=("id",),
        num_buckets=3,
        properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1h", "iceberg.mine": "x"},
        comment="orders",
    )
    made = new_table(fluss, made_from)
    read = made.descriptor
    assert (read.columns, read.primary_key, read.bucket_keys) == (made_from.columns, ("id",), ("id",))
    assert (read.num_buckets, read.comment) == (3, "orders")
    assert made_from.properties.items() <= read.properties.items()
    # The options of the lake catalog come with the table.
    assert made.lake_catalog_properties == fluss_cluster.lake_catalog
    assert made.created_time > 1_700_000_000_000


def test_what_fluss_refuses_of_a_table_has_its_words(fluss: FlussClient) -> None:
    with refused(ErrorCode.INVALID_TABLE, "INVALID_CONFIG_EXCEPTION", "table.nothing"):
        fluss.call(create_table(new_path(), descriptor(table__nothing="1")))
    with refused(ErrorCode.INVALID_TABLE, "__offset"):
        columns = (*COLUMNS, Column("__offset", DataType.parse("INT")))
        fluss.call(create_table(new_path(), TableDescriptor(columns=columns)))


def test_nested_types_come_back_as_the_cluster_has_them(fluss: FlussClient) -> None:
    path = new_path()
    columns = (Column("names", DataType.parse("ARRAY<ROW<first STRING, last STRING NOT NULL>>")),)
    fluss.call(create_table(path, TableDescriptor(columns)))
    assert fluss.call(table(path)).descriptor.columns[0].data_type == columns[0].data_type
    fluss.call(drop_table(path))


def test_partitions(fluss: FlussClient) -> None:
    columns = (*COLUMNS, Column("day", DataType.parse("STRING NOT NULL")))
    made = new_table(fluss, TableDescriptor(columns=columns, num_buckets=2, partition_keys=("day",)))
    assert made.descriptor.partition_keys == ("day",)
    assert fluss.call(list_partitions(made.path)) == []
    fluss.call(create_partition(made.path, {"day": "monday"}))
    (monday,) = fluss.call(list_partitions(made.path))
    assert (monday.values, monday.name) == ({"day": "monday"}, "monday")
    bucket = TableBucket(made.table_id, 1, monday.partition_id)
    assert fluss.call(log_offset(made.path, bucket, OffsetType.LATEST)) == 0
    gone = TableBucket(made.table_id, 1, 4711)
    with pytest.raises(FlussServerError) as caught:
        fluss.call(log_offset(made.path, gone, OffsetType.LATEST))
    assert caught.value.fluss_error is FlussError.PARTITION_NOT_EXISTS
    plain = new_table(fluss, descriptor())
    with pytest.raises(FlussServerError) as caught:
        fluss.call(list_partitions(plain.path))
    assert caught.value.fluss_error is FlussError.TABLE_NOT_PARTITIONED_EXCEPTION


def test_buckets_lie_on_all_tablet_servers(fluss: FlussClient, fluss_cluster: FlussCluster) -> None:
    made = new_table(fluss, descriptor(num_buckets=4))
    buckets = [TableBucket(made.table_id, number) for number in range(4)]

    def leaders():
        known = fluss.call(metadata([made.path])).leaders
        return known if None not in known.values() and len(known) == 4 else None

    assert set(wait_until(leaders).values()) == {0, 1}
    # Each server is asked about the buckets that it leads.
    assert [fluss.call(log_offset(made.path, each, OffsetType.LATEST)) for each in buckets] == [0] * 4


def test_buckets_and_tables_that_are_not_there_are_not_waited_for(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    path = made.path
    with refused(ErrorCode.INVALID_REQUEST, str(path), "bucket 7", "expected one of its 1 buckets"):
        fluss.call(fetch_log(path, TableBucket(made.table_id, 7), 0))
    bucket = TableBucket(made.table_id, 0)
    assert fluss.call(fetch_log(path, bucket, 0)).high_watermark == 0
    fluss.call(drop_table(path))

    def refusal() -> FlussTieringError | None:
        try:
            fluss.call(fetch_log(path, bucket, 0))
        except FlussTieringError as error:
            return error
        return None

    # The leader learns of the drop a moment later. The client then asks for metadata, which tell the reason.
    error = wait_until(refusal)
    assert (error.code, str(path) in error.message) == (ErrorCode.TABLE_NOT_EXIST, True)
    fluss.call(create_table(path, descriptor()))
    with refused(ErrorCode.TABLE_NOT_EXIST, f"bucket 0 of table {made.table_id}", f"{path} is table "):
        fluss.call(fetch_log(path, bucket, 0))
