"""Each call to a Fluss cluster with ACLs needs exactly the right that is declared for it, and an error names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from fluss_tables import COLUMNS, rows, snapshot_behind, upsert
from guarded_cluster import TIERING, Acl, GuardedCluster

from call_rights import RIGHTS, Operation
from fluss_tiering.formats.compacted.kv_batches import encode_kv_batch
from fluss_tiering.formats.compacted.row import encode_values
from fluss_tiering.formats.log.batch import encode_log_batch
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath
from fluss_tiering.storage.fluss.rpc.acls import ResourceType
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import BucketLeader, Call, ServerKind
from fluss_tiering.storage.fluss.rpc.calls import kv, lake, log, tables, writes
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError

DATABASE = "acl_calls"
KEYED, LOGGED, DAYS, GONE = (TablePath(DATABASE, name) for name in ("keyed", "logged", "days", "gone"))
DAY = {"day": "2026-01-01"}
UNCHECKED_BEFORE_1_0 = {ApiKey.LIST_OFFSETS}
OF_THE_HANDSHAKE = {ApiKey.API_VERSIONS, ApiKey.AUTHENTICATE}
LEASE = "acl-lease"


@dataclass(frozen=True)
class Sample:
    """A call as this client makes it.

    Attributes:
        call: The call.
        resource: The name of what it is about.
        hides: Whether the result lacks what the user has no right to.
        before: What the administrator has to do before.
    """

    call: Call[Any, Any]
    resource: str = ""
    hides: Callable[[Any], bool] | None = None
    before: Callable[[], object] | None = None


def made(guarded: GuardedCluster, path: TablePath, **options: Any) -> TableInfo:
    columns = (*COLUMNS, Column("day", DataType.parse("STRING NOT NULL"))) if "partition_keys" in options else COLUMNS
    guarded.admin.call(tables.create_database(path.database, ignore_if_exists=True))
    guarded.admin.call(tables.create_table(path, TableDescriptor(columns=columns, num_buckets=1, **options)))
    return guarded.admin.call(tables.table(path))


@pytest.fixture(scope="module")
def samples(guarded: GuardedCluster) -> Mapping[ApiKey, Sample]:
    """A call of each kind that the cluster serves."""
    keyed = made(guarded, KEYED, primary_key=("id",), bucket_keys=("id",))
    logged = made(guarded, LOGGED)
    made(guarded, DAYS, partition_keys=("day",))
    upsert(guarded.admin, keyed, rows(0, 5))
    snapshot = snapshot_behind(guarded.admin, keyed, 5)
    bucket, log_bucket = TableBucket(keyed.table_id, 0), TableBucket(logged.table_id, 0)
    batch = rows(0, 3)
    to_log = encode_log_batch(0, 0, batch, schema_id=logged.schema_id, change_types=None, compression="ZSTD")
    to_kv = encode_kv_batch([b"\1\0\0\0\0\0\0\0"], encode_values(rows(1, 2), COLUMNS, keyed.schema_id).to_pylist(), 1)
    acquired = kv.acquire_lease(LEASE, 60_000, {bucket: snapshot.snapshot_id})
    calls = {
        ApiKey.GET_METADATA: Sample(metadata([KEYED]), str(KEYED), hides=lambda found: found.hidden == {KEYED}),
        ApiKey.LIST_DATABASES: Sample(tables.list_databases(), DATABASE, hides=lambda found: DATABASE not in found),
        ApiKey.GET_DATABASE_INFO: Sample(tables.database_created_time(DATABASE), DATABASE),
        ApiKey.LIST_TABLES: Sample(tables.list_tables(DATABASE), str(KEYED), hides=lambda found: KEYED not in found),
        ApiKey.GET_TABLE_INFO: Sample(tables.table(KEYED), str(KEYED)),
        ApiKey.GET_TABLE_SCHEMA: Sample(tables.table_columns(KEYED, keyed.schema_id), str(KEYED)),
        ApiKey.LIST_PARTITION_INFOS: Sample(tables.list_partitions(DAYS), str(DAYS)),
        ApiKey.LIST_OFFSETS: Sample(log.log_offset(KEYED, bucket, log.OffsetType.LATEST), str(KEYED)),
        ApiKey.GET_LATEST_KV_SNAPSHOTS: Sample(kv.latest_kv_snapshots(KEYED), str(KEYED)),
        ApiKey.GET_KV_SNAPSHOT_METADATA: Sample(kv.kv_snapshot_files(bucket, snapshot.snapshot_id), str(KEYED)),
        ApiKey.FETCH_LOG: Sample(log.fetch_log(KEYED, bucket, 0), str(KEYED)),
        ApiKey.SCAN_KV: Sample(kv.open_session(KEYED, bucket, 1 << 20), str(KEYED)),
        ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE: Sample(acquired, str(KEYED)),
        ApiKey.RELEASE_KV_SNAPSHOT_LEASE: Sample(kv.release_lease(LEASE, [bucket]), str(KEYED)),
        ApiKey.DROP_KV_SNAPSHOT_LEASE: Sample(
            kv.drop_lease(LEASE), str(KEYED), before=lambda: guarded.admin.call(acquired)
        ),
        ApiKey.GET_LAKE_SNAPSHOT: Sample(lake.lake_snapshot(KEYED), str(KEYED)),
        ApiKey.LAKE_TIERING_HEARTBEAT: Sample(lake.heartbeat()),
        ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT: Sample(lake.prepare_lake_snapshot(LOGGED, log_bucket.table_id, {})),
        # Of a table that there never was, since the path has no offsets file.
        ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT: Sample(lake.commit_lake_snapshot(1 << 40, 1, "no-file", {})),
        ApiKey.PRODUCE_LOG: Sample(writes.produce_log(LOGGED, log_bucket, to_log), str(LOGGED)),
        ApiKey.PUT_KV: Sample(writes.put_kv(KEYED, bucket, to_kv), str(KEYED)),
        ApiKey.CREATE_PARTITION: Sample(tables.create_partition(DAYS, DAY, ignore_if_exists=True), str(DAYS)),
        ApiKey.DROP_PARTITION: Sample(tables.drop_partition(DAYS, DAY, ignore_if_not_exists=True), str(DAYS)),
        ApiKey.CREATE_DATABASE: Sample(tables.create_database(DATABASE, ignore_if_exists=True)),
        ApiKey.CREATE_TABLE: Sample(tables.create_table(LOGGED, logged.descriptor, ignore_if_exists=True), DATABASE),
        ApiKey.ALTER_TABLE: Sample(tables.alter_table(LOGGED, {"table.datalake.freshness": "5min"}), str(LOGGED)),
        ApiKey.DROP_TABLE: Sample(tables.drop_table(GONE, ignore_if_not_exists=True), str(GONE)),
        ApiKey.DROP_DATABASE: Sample(tables.drop_database("acl_gone", ignore_if_not_exists=True), "acl_gone"),
    }
    assert calls.keys() == set(ApiKey) - OF_THE_HANDSHAKE, "the handshake is made before there is a user"
    if guarded.cluster.version == "0.9.1":
        with pytest.raises(FlussTieringError) as unknown:
            guarded.admin.call(calls.pop(ApiKey.SCAN_KV).call)
        assert unknown.value.code is ErrorCode.UNSUPPORTED_VERSION
    return calls


@contextmanager
def calling(guarded: GuardedCluster) -> Iterator[Callable[[Sample], FlussServerError | None]]:
    """Return a function that makes a call, and returns the error if the right to make it is missing."""
    with guarded.client() as client:
        yield lambda sample: refusal(client, sample)


def refusal(client: FlussClient, sample: Sample) -> FlussServerError | None:
    if sample.before is not None:
        sample.before()
    call = sample.call
    if isinstance(call.destination, BucketLeader):
        # The one tablet server is asked at once, so that no other right is needed to find it.
        call = replace(call, destination=ServerKind.ANY)
    try:
        found = client.call(call)
    except FlussServerError as error:
        return error if error.fluss_error is FlussError.AUTHORIZATION_EXCEPTION else None
    assert sample.hides is None or not sample.hides(found), "it is hidden"
    return None


def require_refused(api: ApiKey, sample: Sample, client: FlussClient) -> None:
    """Fail unless the call is refused, or hides what it is about, for lack of the declared right alone."""
    needed = RIGHTS[api]
    assert needed.right is not None
    assert needed.hides == (sample.hides is not None), api
    if sample.hides is not None:
        assert sample.hides(client.call(sample.call)), api
        return
    error = refusal(client, sample)
    assert error is not None, api
    assert error.code is ErrorCode.AUTHORIZATION
    missing = error.missing_acl
    assert missing is not None, error.message
    assert (missing.operation, missing.resource_type) == (needed.right.operation, needed.right.resource_type), api
    assert missing.resource_type == ResourceType.CLUSTER or missing.resource == sample.resource
    assert missing.principal == f"User:{TIERING.username}"
    assert missing.statement() in error.message


def test_calls_without_their_right_are_refused(guarded: GuardedCluster, samples: Mapping[ApiKey, Sample]) -> None:
    guarded.give()
    with guarded.client() as client:
        for api, sample in samples.items():
            if RIGHTS[api].right is None or (guarded.cluster.version == "0.9.1" and api in UNCHECKED_BEFORE_1_0):
                assert refusal(client, sample) is None, f"{api.name}: Fluss checks a right"
            else:
                require_refused(api, sample, client)


def test_no_other_right_will_do(guarded: GuardedCluster, samples: Mapping[ApiKey, Sample]) -> None:
    for wanted in set(Operation) - {Operation.DESCRIBE}:
        # Of the whole cluster, so that the operation alone is what is missing. Each one includes DESCRIBE.
        guarded.give(*(Acl(each, ResourceType.CLUSTER) for each in Operation if each is not wanted))
        with guarded.client() as client:
            for api, sample in samples.items():
                right = RIGHTS[api].right
                if right is not None and right.operation is wanted:
                    require_refused(api, sample, client)


def test_the_declared_right_is_enough(guarded: GuardedCluster, samples: Mapping[ApiKey, Sample]) -> None:
    wanted = {each.right: [] for each in RIGHTS.values() if each.right is not None}
    for api, sample in samples.items():
        if (right := RIGHTS[api].right) is not None:
            wanted[right].append((api, sample))
    for right, calls in wanted.items():
        resources = {sample.resource for _, sample in calls}
        guarded.give(*(Acl(right.operation, right.resource_type, each) for each in resources))
        with guarded.client() as client:
            for api, sample in calls:
                error = refusal(client, sample)
                assert error is None, f"{api.name}: {error}"
