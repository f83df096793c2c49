import pytest
from fluss_tables import append, descriptor, new_table, rows

from fluss_support import FlussCluster
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor
from fluss_tiering.storage.fluss.buckets import log_offsets
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.tables import create_partition, list_partitions
from fluss_tiering.storage.fluss.rpc.client import FlussClient, ParallelCalls
from waiting import wait_until


class CountingClient:
    """A client that records its calls."""

    def __init__(self, client: FlussClient) -> None:
        self._client = client
        self.calls: list[ApiKey] = []

    def call(self, call):
        self.calls.append(call.api)
        return self._client.call(call)


@pytest.fixture
def calls():
    threads = ParallelCalls()
    yield threads
    threads.close()


def test_a_call_for_each_server_tells_of_all_buckets(fluss: FlussClient, calls: ParallelCalls) -> None:
    made = new_table(fluss, descriptor(num_buckets=6))
    for bucket in range(5):
        append(fluss, made, rows(0, bucket + 1), bucket, compression="ZSTD")
    buckets = [TableBucket(made.table_id, number) for number in range(6)]
    counting = CountingClient(fluss)
    found = log_offsets(counting, calls, made.path, buckets)
    assert found == {bucket: (0, bucket.bucket + 1 if bucket.bucket < 5 else 0) for bucket in buckets}
    # Each of the two servers is asked for both ends.
    assert counting.calls.count(ApiKey.LIST_OFFSETS) == 4


def test_partitions_that_are_gone_are_left_out(fluss: FlussClient, calls: ParallelCalls) -> None:
    columns = (Column("id", DataType.parse("BIGINT")), Column("day", DataType.parse("STRING")))
    made = new_table(fluss, TableDescriptor(columns=columns, num_buckets=2, partition_keys=("day",)))
    for day in ("monday", "tuesday", "friday"):
        fluss.call(create_partition(made.path, {"day": day}))
    ids = [each.partition_id for each in fluss.call(list_partitions(made.path))]
    assert len(ids) == 3
    there = [TableBucket(made.table_id, number, each) for each in ids for number in range(2)]
    gone = TableBucket(made.table_id, 0, max(ids) + 1_000)
    assert log_offsets(fluss, calls, made.path, [*there, gone]) == dict.fromkeys(there, (0, 0))
    assert log_offsets(fluss, calls, made.path, [gone]) == {}


@pytest.mark.system
def test_who_does_not_wait_for_a_leader_hears_at_once_that_there_is_none(
    fluss: FlussClient, fluss_cluster: FlussCluster, calls: ParallelCalls
) -> None:
    made = new_table(fluss, descriptor(num_buckets=4))
    buckets = [TableBucket(made.table_id, number) for number in range(4)]
    killed = fluss_cluster.tablet_servers[1]
    killed.kill()
    try:
        wait_until(lambda: 1 not in fluss.call(metadata()).tablet_servers)
        # A call that waited for a leader would still be waiting when the time of the test is over.
        with (
            FlussClient(fluss_cluster.bootstrap, timeout=3600) as patient,
            pytest.raises(FlussTieringError, match="no tablet server that is alive leads it") as told,
        ):
            log_offsets(patient, calls, made.path, buckets, wait_for_leaders=False)
        assert told.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    finally:
        killed.start()
        fluss_cluster.wait_until_ready()
    assert log_offsets(fluss, calls, made.path, buckets) == dict.fromkeys(buckets, (0, 0))
    assert log_offsets(fluss, calls, made.path, buckets, wait_for_leaders=False) == dict.fromkeys(buckets, (0, 0))
