"""The number of buckets of a partition whose table was rescaled, which only clusters of Fluss 1.0.0 can be.

The answers of a real cluster are changed to those of such a one: its tables have fewer or more buckets than their
definition is made to say.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from fluss_tables import COLUMNS, new_path
from refusals import refused
from rescaled import Rescaled

from fluss_support import FlussCluster
from fluss_tiering.formats.bucketing import assign_buckets
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind
from fluss_tiering.storage.fluss.access import ClusterLink
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussError
from fluss_tiering.storage.fluss.storage import FlussStorage

DAY = Column("day", DataType.parse("STRING NOT NULL"))


@pytest.fixture
def rescaled(fluss_cluster: FlussCluster) -> Rescaled:
    return Rescaled(fluss_cluster.bootstrap)


@pytest.fixture
def storage(fluss_cluster: FlussCluster, rescaled: Rescaled) -> Iterator[FlussStorage]:
    opened = FlussStorage.open(ClusterLink(fluss_cluster.bootstrap, None, rescaled), within=20)
    yield opened
    opened.close()


def make(fluss_cluster: FlussCluster, num_buckets: int, *, primary_key: bool, partitioned: bool = True) -> TablePath:
    """Create a table as it is before it is rescaled."""
    link = ClusterLink(fluss_cluster.bootstrap, None, FlussClient(fluss_cluster.bootstrap))
    storage = FlussStorage.open(link, within=20)
    day = ("day",) if partitioned else ()
    made = storage.create_table(
        new_path(),
        TableDescriptor(
            (*COLUMNS, DAY),
            primary_key=("id", *day) if primary_key else (),
            bucket_keys=("id",) if primary_key else (),
            partition_keys=day,
            num_buckets=num_buckets,
            properties={"table.datalake.format": "iceberg"} if primary_key else {},
        ),
    )
    storage.close()
    return made.path


def write(storage: FlussStorage, path: TablePath, day: str, ids: range) -> dict[int, int]:
    """Write rows, and return bucket -> log end offset."""
    kind = WriteKind.UPSERT if storage.table(path).has_primary_key else WriteKind.APPEND
    rows = pa.table([list(ids), ["row"] * len(ids), [day] * len(ids)], schema=arrow_schema((*COLUMNS, DAY)))
    return {bucket.bucket: end for bucket, end in storage.write(path, kind, rows).items()}


@pytest.mark.parametrize("primary_key", [False, True], ids=["log", "keyed"])
def test_each_partition_is_read_and_written_with_its_own_number(
    storage: FlussStorage, rescaled: Rescaled, fluss_cluster: FlussCluster, primary_key: bool
) -> None:
    path = make(fluss_cluster, 4, primary_key=primary_key)
    rescaled.of_table, rescaled.of_partition = 1, {"old": 2, "new": 4}
    ends = {day: write(storage, path, day, range(100)) for day in ("old", "new")}

    assert storage.table(path).bucket_count_epoch == 1
    if primary_key:
        for day, count in rescaled.of_partition.items():
            expected = assign_buckets(pa.array(range(100), pa.int64()), COLUMNS[0].data_type, count).tolist()
            assert ends[day] == {bucket: expected.count(bucket) for bucket in range(count)}
    assert set(rescaled.placed) == {2, 4}
    found = {
        day: {
            info.bucket.bucket: info.log_end_offset for info in storage.buckets(path) if info.partition_values == (day,)
        }
        for day in ("old", "new")
    }
    assert found == {
        day: {bucket: ends[day].get(bucket, 0) for bucket in range(count)}
        for day, count in rescaled.of_partition.items()
    }


def test_a_table_without_partitions_has_the_buckets_that_the_cluster_knows(
    storage: FlussStorage, rescaled: Rescaled, fluss_cluster: FlussCluster
) -> None:
    path = make(fluss_cluster, 3, primary_key=True, partitioned=False)
    assert sum(write(storage, path, "any", range(50)).values()) == 50
    assert [info.bucket.bucket for info in storage.buckets(path)] == [0, 1, 2]
    assert sum(info.log_end_offset for info in storage.buckets(path)) == 50
    assert set(rescaled.placed) == {3}


def test_the_number_of_the_table_is_not_taken_for_a_partition_that_was_rescaled(
    storage: FlussStorage, rescaled: Rescaled, fluss_cluster: FlussCluster
) -> None:
    path = make(fluss_cluster, 2, primary_key=False)
    other = make(fluss_cluster, 2, primary_key=False, partitioned=False)
    rescaled.of_table = 2
    for use in (lambda: write(storage, path, "monday", range(5)), lambda: storage.buckets(path)):
        with refused(ErrorCode.INVALID_TABLE, str(path), "epoch 1", "'monday'", "upgrade all servers"):
            use()
    assert rescaled.placed == []
    # Another table goes on.
    assert sum(write(storage, other, "any", range(5)).values()) == 5

    rescaled.epoch = 0
    storage.listed.invalidate(path)
    assert sum(write(storage, path, "monday", range(5)).values()) == 5
    assert rescaled.placed[-1] is None


def test_after_a_write_that_was_placed_wrongly_the_partitions_are_asked_for_again(
    storage: FlussStorage, rescaled: Rescaled, fluss_cluster: FlussCluster
) -> None:
    path = make(fluss_cluster, 4, primary_key=True)
    rescaled.of_partition = {"monday": 2}
    write(storage, path, "monday", range(20))
    rescaled.of_partition, rescaled.refuse = {"monday": 4}, FlussError.INVALID_BUCKET_ROUTING
    with refused(ErrorCode.UNAVAILABLE, "INVALID_BUCKET_ROUTING", "try again"):
        write(storage, path, "monday", range(20, 40))
    rescaled.refuse = None
    assert set(write(storage, path, "monday", range(20, 40))) == {0, 1, 2, 3}
    assert rescaled.placed[-1] == 4
