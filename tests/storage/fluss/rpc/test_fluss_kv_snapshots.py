from fluss_tables import descriptor, new_table, rows, snapshot_behind, upsert

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.storage.fluss.rpc.calls.kv import (
    acquire_lease,
    drop_lease,
    kv_snapshot_files,
    release_lease,
)
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError
from waiting import wait_until

HOUR = 3_600_000


def kv_table(fluss: FlussClient) -> tuple[TableInfo, TableBucket]:
    made = new_table(fluss, descriptor(primary_key=True, tiered=True, **{"table.datalake.freshness": "1h"}))
    return made, TableBucket(made.table_id, 0)


def exists(fluss: FlussClient, bucket: TableBucket, snapshot_id: int) -> bool:
    try:
        fluss.call(kv_snapshot_files(bucket, snapshot_id))
    except FlussServerError as error:
        if error.code is not ErrorCode.KV_SNAPSHOT_NOT_EXIST:
            raise
        return False
    return True


def test_a_lease_keeps_its_snapshot_and_only_as_long_as_it_is_held(fluss: FlussClient) -> None:
    made, bucket = kv_table(fluss)
    leased = snapshot_behind(fluss, made, upsert(fluss, made, rows(0, 2)))
    assert fluss.call(acquire_lease("keep", HOUR, {bucket: leased.snapshot_id})) == {}
    passed = snapshot_behind(fluss, made, upsert(fluss, made, rows(2, 4)))
    snapshot_behind(fluss, made, upsert(fluss, made, rows(4, 6)))
    # One snapshot is retained. The one without a lease is gone, and the older, leased one is there.  # L1
    wait_until(lambda: not exists(fluss, bucket, passed.snapshot_id))
    assert exists(fluss, bucket, leased.snapshot_id)
    fluss.call(release_lease("keep", [bucket]))
    fluss.call(drop_lease("keep"))
    snapshot_behind(fluss, made, upsert(fluss, made, rows(6, 8)))
    wait_until(lambda: not exists(fluss, bucket, leased.snapshot_id))


def test_leases_take_what_does_not_exist(fluss: FlussClient) -> None:
    """This is why the metadata of a leased snapshot are read before a round plans with it."""
    _, bucket = kv_table(fluss)
    assert fluss.call(acquire_lease("wrong", HOUR, {bucket: 4711})) == {}
    assert not exists(fluss, bucket, 4711)
    fluss.call(drop_lease("wrong"))
    # An unknown lease is released and dropped without an error.  # L8
    fluss.call(release_lease("never", [bucket]))
    fluss.call(drop_lease("never"))
