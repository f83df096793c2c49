"""Scans of a real Fluss cluster's primary-key tables."""

import pyarrow as pa
import pytest
from fluss_scanning import Scanning, new_table, open_storage, upsert
from fluss_tables import COLUMNS, add_column, descriptor, new_path
from refusals import refused

from fluss_support import FlussCluster
from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.formats.log.batch import ChangeType
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.storage.fluss import scans
from fluss_tiering.storage.fluss.buckets import ClusterBuckets
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey, ServedApis
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.storage import FlussStorage
from waiting import wait_until


def snapshot_at(storage: FlussStorage, table: TableInfo, offset: int) -> int:
    """Wait for a KV snapshot that has the log up to an offset, and return its id."""
    found = wait_until(lambda: [s for s in storage.take_kv_snapshots(table.path) if s.log_offset >= offset])
    return found[0].snapshot_id


def test_a_snapshot_with_the_log_laid_over_it(storage: FlussStorage) -> None:  # K5
    table = new_table(storage)
    snapshot_at(storage, table, upsert(storage, table, 0, 1_000))
    upsert(storage, table, 990, 1_010, "new")
    storage.write(table.path, WriteKind.DELETE, pa.table({"id": [0, 1, 1_005]}))
    scanning = Scanning(storage, table)
    (info,) = storage.buckets(table.path)
    assert (scanning.admitted, scanning.log_offset) == (1, info.log_end_offset)
    # Later rows are not in the scan. The log from its offset on has them.
    upsert(storage, table, 2_000, 2_001)
    expected = {id_: f"name-{id_}" for id_ in range(2, 990)} | dict.fromkeys(range(990, 1_010), "new")
    del expected[1_005]
    assert scanning.rows() == expected
    assert scanning.rows(max_rows=7) == expected
    log = storage.reader().read_log(table, info.bucket, scanning.log_offset, scanning.log_offset + 1)
    ((change_type,),) = [batch.change_types.tolist() for batch in log]
    assert change_type == ChangeType.INSERT
    scanning.scan.close()
    with refused(ErrorCode.SCANNER_EXPIRED, "start the scan again"):
        scanning.scan.read(None, None, None)
    assert scanning.lost == 0


@pytest.mark.fluss_versions("0.9.1")
def test_a_bucket_without_a_snapshot_yet_is_read_from_its_log(
    storage: FlussStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterBuckets, "latest_kv_snapshot", lambda *_: None)
    table = new_table(storage)
    upsert(storage, table, 0, 100)
    upsert(storage, table, 50, 60, "new")
    names = {id_: "new" if 50 <= id_ < 60 else f"name-{id_}" for id_ in range(100)}
    assert Scanning(storage, table).rows(max_rows=9) == names


def test_a_bucket_without_rows_has_no_scan(storage: FlussStorage) -> None:  # K4
    table = new_table(storage)
    never = Scanning(storage, table)
    assert (never.scan, never.log_offset, never.admitted) == (None, 0, 0)
    upsert(storage, table, 0, 3)
    storage.write(table.path, WriteKind.DELETE, pa.table({"id": [0, 1, 2]}))
    emptied = Scanning(storage, table)
    assert (emptied.scan, emptied.log_offset) == (None, 6)


def test_a_refused_scan_opens_nothing(storage: FlussStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(storage)
    upsert(storage, table, 0, 3)
    monkeypatch.setattr(scans, "acquire_lease", None)

    def refuse() -> None:
        raise FlussTieringError(ErrorCode.TOO_MANY_SCANNERS, "too many")

    with refused(ErrorCode.TOO_MANY_SCANNERS):
        storage.open_kv_scan(TableBucket(table.table_id, 0), admit=refuse, on_lost=lambda: None)


def test_what_cannot_be_scanned_is_refused(storage: FlussStorage) -> None:
    log = storage.create_table(new_path(), descriptor())
    table = new_table(storage)
    for bucket, code in (
        (TableBucket(log.table_id, 0), ErrorCode.TABLE_WITHOUT_PRIMARY_KEY),
        (TableBucket(table.table_id, 1), ErrorCode.INVALID_REQUEST),
        (TableBucket(table.table_id, 0, 4711), ErrorCode.INVALID_REQUEST),
        (TableBucket(987_654, 0), ErrorCode.TABLE_NOT_EXIST),
    ):
        with refused(code):
            storage.open_kv_scan(bucket, admit=lambda: None, on_lost=lambda: None)


@pytest.mark.fluss_versions("0.9.1")
def test_the_snapshot_stays_while_the_scan_lives_and_goes_then(
    storage: FlussStorage, monkeypatch: pytest.MonkeyPatch
) -> None:  # Fluss #2512
    table = new_table(storage)
    pinned = snapshot_at(storage, table, upsert(storage, table, 0, 500))
    scanning = Scanning(storage, table)
    # A read renews the lease if it is time to.
    monkeypatch.setattr(scans, "_RENEWED_AFTER_S", 0.0)
    bucket = TableBucket(table.table_id, 0)
    # The cluster retains one snapshot.
    for step in range(1, 4):
        snapshot_at(storage, table, upsert(storage, table, 0, 500, f"step {step}"))
        assert storage.kv_snapshot(bucket, pinned) is not None
        assert set(scanning.rows(max_rows=100).values()) == {f"name-{n}" for n in range(500)}
    scanning.scan.close()
    snapshot_at(storage, table, upsert(storage, table, 0, 1, "more"))
    wait_until(lambda: storage.kv_snapshot(bucket, pinned) is None)


@pytest.mark.fluss_versions("0.9.1")
def test_a_snapshot_that_goes_before_it_is_pinned_is_followed_by_the_next(
    storage: FlussStorage, monkeypatch: pytest.MonkeyPatch
) -> None:  # L6, L7
    table = new_table(storage)
    snapshot_at(storage, table, upsert(storage, table, 0, 10))
    there = storage.kv_snapshot
    asked = []

    def gone_at_first(self, bucket, snapshot_id):
        asked.append(snapshot_id)
        return None if len(asked) <= gone else there(bucket, snapshot_id)

    ask = ClusterBuckets.kv_snapshot
    there = lambda bucket, snapshot_id: ask(storage._buckets, bucket, snapshot_id)  # noqa: E731
    monkeypatch.setattr(ClusterBuckets, "kv_snapshot", gone_at_first)
    gone = 2
    assert len(Scanning(storage, table).rows()) == 10
    assert len(asked) == 3
    gone = 100
    with refused(ErrorCode.KV_SNAPSHOT_NOT_EXIST, str(table.path), "kv.snapshot.interval"):
        Scanning(storage, table)


@pytest.mark.fluss_versions("0.9.1")
def test_a_cluster_without_leases_is_scanned_too(storage: FlussStorage, monkeypatch: pytest.MonkeyPatch) -> None:  # L15
    table = new_table(storage)
    snapshot_at(storage, table, upsert(storage, table, 0, 10))
    serves = ServedApis.serves
    leases = {ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, ApiKey.DROP_KV_SNAPSHOT_LEASE}
    monkeypatch.setattr(ServedApis, "serves", lambda self, api: api not in leases and serves(self, api))
    scanning = Scanning(storage, table)
    assert len(scanning.rows()) == 10
    scanning.scan.close()


@pytest.mark.fluss_versions("0.9.1")
def test_a_storage_that_closes_ends_its_scans(storage: FlussStorage, fluss_cluster: FlussCluster) -> None:  # K12, K17
    table = new_table(storage)
    pinned = snapshot_at(storage, table, upsert(storage, table, 0, 10))
    other = open_storage(fluss_cluster)
    scanning = Scanning(other, table)
    other.close()
    assert scanning.lost == 1
    with refused(ErrorCode.SCANNER_EXPIRED):
        scanning.scan.read(None, None, None)
    # The lease is gone too.
    snapshot_at(storage, table, upsert(storage, table, 0, 10, "more"))
    snapshot_at(storage, table, upsert(storage, table, 0, 10, "yet more"))
    wait_until(lambda: storage.kv_snapshot(TableBucket(table.table_id, 0), pinned) is None)


def test_rows_from_before_a_column_was_added_have_it_too(storage: FlussStorage, fluss: FlussClient) -> None:
    before = new_table(storage)
    upsert(storage, before, 0, 4)
    add_column(fluss, before, "added", "INT")
    storage.listed.invalidate(before.path)
    table = storage.table(before.path)
    assert table.schema_id > before.schema_id
    wider = pa.table({"id": [3, 4], "name": ["c", "d"], "added": [3, 4]})
    end = max(storage.write(table.path, WriteKind.UPSERT, wider).values())
    for wait in (0, end):
        snapshot_at(storage, table, wait)
        scan = Scanning(storage, table).scan
        found = decode_values(scan.read(None, None, None).values, table.descriptor.columns, table.schema_id)
        assert dict(zip(found["id"].to_pylist(), found["added"].to_pylist(), strict=True)) == {
            **dict.fromkeys(range(3)),
            3: 3,
            4: 4,
        }


def test_buckets_of_partitions_are_scanned(storage: FlussStorage) -> None:
    columns = (*COLUMNS, Column("day", DataType.parse("STRING NOT NULL")))
    made_from = TableDescriptor(columns=columns, primary_key=("id", "day"), partition_keys=("day",))
    table = storage.create_table(new_path(), made_from)
    written = pa.table([[1, 1, 2], ["a", "b", "c"], ["x", "y", "x"]], schema=arrow_schema(columns))
    storage.write(table.path, WriteKind.UPSERT, written)
    found = {
        info.partition_values: Scanning(storage, table, info.bucket).rows() for info in storage.buckets(table.path)
    }
    for bucket, code in (
        (TableBucket(table.table_id, 0), ErrorCode.INVALID_REQUEST),
        (TableBucket(table.table_id, 0, 4711), ErrorCode.PARTITION_NOT_EXIST),
    ):
        with refused(code):
            Scanning(storage, table, bucket)
    assert found == {("x",): {1: "a", 2: "c"}, ("y",): {1: "b"}}
