"""Scan sessions of Fluss 1.0: what readers get from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from fluss_scanning import (
    PLACES,
    SMALL,
    Scanning,
    WatchedClient,
    bucket_of,
    free_places,
    names,
    new_table,
    upsert,
)
from fluss_tables import COLUMNS, add_column, descriptor, new_path
from refusals import refused

from fluss_java_client import FlussJavaClient, plain
from fluss_support import USER, FlussCluster
from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import (
    Column,
    DataType,
    StorageDescription,
    TableBucket,
    TableDescriptor,
    WriteKind,
)
from fluss_tiering.storage.fluss.access import ClusterAccess
from fluss_tiering.storage.fluss.kv_scan import ClusterKvScan
from fluss_tiering.storage.fluss.reading.scan_session import BucketScans, ScanSession
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey, ServedApis
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.storage import FlussStorage
from fluss_tiering.storage.open import open_bucket_scans

pytestmark = pytest.mark.fluss_versions("1.0")


def test_rows_of_all_sizes_and_the_session_ends(storage: FlussStorage, fluss: FlussClient, small: None) -> None:
    table = new_table(storage)
    upsert(storage, table, 0, 500)
    # One row is larger than each batch before and behind it.
    upsert(storage, table, 250, 251, "long " * SMALL)
    expected = {n: f"name-{n}" for n in range(500)} | {250: "long " * SMALL}
    watched = WatchedClient(fluss)
    batches = list(BucketScans(watched).open(table, bucket_of(table)))
    assert names(batches) == expected
    assert watched.asked == ["open", *map(str, range(1, len(batches)))]
    assert len(batches) > 5
    assert Scanning(storage, table).rows(max_rows=7) == expected
    assert free_places(fluss, table) == PLACES


def test_a_row_larger_than_4_mib(storage: FlussStorage, fluss: FlussClient) -> None:
    table = new_table(storage)
    long = "x" * (5 << 20)
    upsert(storage, table, 0, 3)
    upsert(storage, table, 1, 2, long)
    expected = {0: "name-0", 1: long, 2: "name-2"}
    assert names(BucketScans(fluss).open(table, bucket_of(table))) == expected
    assert Scanning(storage, table).rows() == expected


def test_only_wanted_columns_are_decoded(storage: FlussStorage, fluss: FlussClient) -> None:
    table = new_table(storage)
    upsert(storage, table, 0, 10)
    scans = BucketScans(fluss)
    for wanted in (["name"], ["name", "id"], []):
        (batch,) = scans.open(table, bucket_of(table), wanted)
        assert batch.schema.names == wanted
        assert batch.num_rows == 10
    with refused(ErrorCode.INVALID_REQUEST, "nothing"):
        scans.open(table, bucket_of(table), ["nothing"])


def test_leaders_are_asked_with_the_credentials_of_the_reader(
    storage: FlussStorage, fluss_cluster: FlussCluster
) -> None:
    table = new_table(storage)
    upsert(storage, table, 0, 10)
    secure = replace(storage.describe(), bootstrap_servers=fluss_cluster.sasl_bootstrap)
    assert len(names(open_bucket_scans(secure, ClusterAccess(USER)).open(table, bucket_of(table)))) == 10
    with refused(ErrorCode.INVALID_REQUEST, "AUTHENTICATE_EXCEPTION"):
        open_bucket_scans(secure, ClusterAccess(replace(USER, password="wrong"))).open(table, bucket_of(table))
    # Only the server can scan its own storage.
    assert open_bucket_scans(StorageDescription("embedded", "", "id", "1")) is None


def test_partitions_many_buckets_and_empty_ones(
    storage: FlussStorage, fluss: FlussClient, java_client: FlussJavaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (*COLUMNS, Column("day", DataType.parse("STRING NOT NULL")))
    made_from = TableDescriptor(
        columns=columns, primary_key=("id", "day"), partition_keys=("day",), bucket_keys=("id",), num_buckets=70
    )
    table = storage.create_table(new_path(), made_from)
    data = [list(range(100)), [f"n{n}" for n in range(100)], ["x" if n % 3 else "y" for n in range(100)]]
    storage.write(table.path, WriteKind.UPSERT, pa.table(data, schema=arrow_schema(columns)))
    buckets = [info.bucket for info in storage.buckets(table.path)]
    assert len(buckets) == 140
    expected = sorted(map(list, zip(*data, strict=True)))

    def through(read: Callable[[TableBucket], Iterator[pa.RecordBatch]]) -> list[list]:
        return sorted([*row.values()] for bucket in buckets for batch in read(bucket) for row in batch.to_pylist())

    def stored(bucket: TableBucket) -> Iterator[pa.RecordBatch]:
        scan = Scanning(storage, table, bucket).scan
        if scan is not None:
            yield decode_values(scan.read(None, None, None).values, columns, table.schema_id)
            scan.close()

    assert through(lambda bucket: BucketScans(fluss).open(table, bucket)) == expected
    assert through(stored) == expected
    assert sorted(java_client.kv(table.path)) == expected
    # In the way of Fluss 0.9.1.
    monkeypatch.setattr(ScanSession, "open", lambda *_: None)
    assert through(stored) == expected


TYPES = {
    "id": "BIGINT NOT NULL",
    "yes": "BOOLEAN",
    "price": "DOUBLE",
    "name": "STRING",
    "raw": "BYTES",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
    "total": "DECIMAL(12, 2)",
    "wide": "DECIMAL(30, 5)",
    "numbers": "ARRAY<INT>",
}


def test_the_java_client_reads_the_same(
    storage: FlussStorage, fluss: FlussClient, java_client: FlussJavaClient
) -> None:
    path = new_path("java")
    java_client.create(path, TYPES, primary_key=["id"])
    written = [
        [
            n,
            bool(n % 2),
            n / 4,
            f"näme {n}" * (n % 5),
            bytes([n % 256]) * (n % 4),
            f"2024-02-{1 + n % 28:02}",
            f"2024-02-29T23:59:59.{n:06}",
            f"{n}.25",
            None if n % 7 else f"-{n}.00001",
            [n, None],
        ]
        for n in range(300)
    ]
    java_client.upsert(path, written)
    java_client.delete(path, [[n, *[None] * 9] for n in range(0, 300, 10)])
    java_client.upsert(path, [[1, *[None] * 9]])
    table = storage.table(path)
    (bucket,) = [info.bucket for info in storage.buckets(path)]
    read = [plain(list(row.values())) for batch in BucketScans(fluss).open(table, bucket) for row in batch.to_pylist()]
    assert sorted(read) == sorted(java_client.kv(path))
    assert len(read) == 270


def test_rows_of_older_schemas_are_read_with_the_present_columns(storage: FlussStorage, fluss: FlussClient) -> None:
    before = new_table(storage)
    upsert(storage, before, 0, 4)
    add_column(fluss, before, "added", "INT")
    storage.listed.invalidate(before.path)
    table = storage.table(before.path)
    wider = pa.table({"id": [3, 4], "name": ["c", "d"], "added": [3, 4]})
    storage.write(table.path, WriteKind.UPSERT, wider)
    for wanted in (None, ["added", "id"], ["id", "added"]):
        (batch,) = BucketScans(fluss).open(table, bucket_of(table), wanted)
        found = dict(zip(batch["id"].to_pylist(), batch["added"].to_pylist(), strict=True))
        assert found == {**dict.fromkeys(range(3)), 3: 3, 4: 4}
    (counted,) = BucketScans(fluss).open(table, bucket_of(table), [])
    assert counted.num_rows == 5
    with refused(ErrorCode.INVALID_TABLE, "altered while it was read"):
        list(BucketScans(fluss).open(before, bucket_of(table)))


def test_a_leader_without_sessions_is_read_as_in_fluss_0_9_1(
    storage: FlussStorage, fluss: FlussClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(storage)
    upsert(storage, table, 0, 10)
    serves = ServedApis.serves
    monkeypatch.setattr(ServedApis, "serves", lambda self, api: api is not ApiKey.SCAN_KV and serves(self, api))
    assert BucketScans(fluss).open(table, bucket_of(table)) is None
    scanning = Scanning(storage, table)
    assert isinstance(scanning.scan, ClusterKvScan)
    assert len(scanning.rows()) == 10
    scanning.scan.close()


def test_what_cannot_be_scanned_by_a_leader_is_refused(storage: FlussStorage, fluss: FlussClient) -> None:
    log = storage.create_table(new_path(), descriptor())
    table = new_table(storage)
    newer = replace(table, descriptor=replace(table.descriptor, properties={"table.kv.value-layout-version": "3"}))
    scans = BucketScans(fluss)
    for what, bucket, code in (
        (log, bucket_of(log), ErrorCode.TABLE_WITHOUT_PRIMARY_KEY),
        (table, bucket_of(table, 7), ErrorCode.INVALID_REQUEST),
        (newer, bucket_of(newer), ErrorCode.INVALID_TABLE),
        (replace(table, table_id=987_654), TableBucket(987_654, 0), ErrorCode.TABLE_NOT_EXIST),
    ):
        with refused(code):
            scans.open(what, bucket)
