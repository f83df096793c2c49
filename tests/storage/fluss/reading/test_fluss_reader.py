"""Reading a real cluster's logs and KV snapshots."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from fluss_reading import bucket_of, ids_of, moved_log, read, snapshot_of
from fluss_tables import append, descriptor, new_table, rows, upsert

from fluss_support import FlussCluster
from fluss_tiering.formats.log.batch import ChangeType
from fluss_tiering.model.table import StorageDescription, TableBucket, TablePath
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.open import open_split_reader
from waiting import wait_until


def test_ranges_of_a_log_are_cut_exactly(fluss: FlussClient) -> None:
    made = new_table(fluss, descriptor())
    for start, compression in ((0, "NONE"), (5, "ZSTD"), (10, "LZ4_FRAME")):
        append(fluss, made, rows(start, start + 5), compression=compression)
    reader = FlussSplitReader(fluss)
    for start, end in ((0, 15), (0, 1), (3, 12), (5, 10), (7, 8), (14, 15), (4, 4)):
        assert ids_of(read(reader, made, start, end)) == list(range(start, end))
    (batch,) = read(reader, made, 6, 8)
    assert batch.records.to_pylist() == rows(6, 8).to_pylist()
    assert batch.change_types is None
    assert batch.commit_timestamp > 1_700_000_000_000


def test_a_log_is_read_from_the_remote_folder_and_on_from_the_leader(fluss: FlussClient) -> None:
    made = moved_log(fluss)
    reader = FlussSplitReader(fluss)
    for start, end in ((0, 10_000), (2_500, 9_999), (1_999, 2_001), (9_999, 10_000)):
        assert ids_of(read(reader, made, start, end)) == list(range(start, end))


def test_changes_and_a_snapshot_of_a_primary_key_table(fluss: FlussClient, fluss_cluster) -> None:
    made = new_table(fluss, descriptor(primary_key=True, tiered=True, table__datalake__freshness="1h"))
    upsert(fluss, made, rows(0, 100))
    end = upsert(fluss, made, rows(1, 2), deleted=[2])
    description = StorageDescription("fluss", "", "", "", fluss_cluster.bootstrap)
    reader = open_split_reader(description, "localhost:1")
    batches = read(reader, made, 99, end)
    assert [ChangeType(kind) for batch in batches for kind in batch.change_types] == [
        *(ChangeType.INSERT, ChangeType.UPDATE_BEFORE, ChangeType.UPDATE_AFTER, ChangeType.DELETE),
    ]
    assert ids_of(batches) == [99, 1, 1, 2]
    snapshot = snapshot_of(fluss, made, end)
    found = pa.Table.from_batches(reader.read_kv_snapshot(made, snapshot, None, None))
    expected = [row for row in rows(0, 100).to_pylist() if row["id"] != 2]
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == expected


@pytest.mark.system
def test_a_log_is_read_on_after_its_leader_was_killed(fluss: FlussClient, fluss_cluster: FlussCluster) -> None:
    made = new_table(fluss, descriptor(**{"table.replication.factor": "2", "table.log.tiered.local-segments": "100"}))
    for start in range(0, 20_000, 2_000):
        append(fluss, made, rows(start, start + 2_000), compression="NONE")
    bucket = bucket_of(made)
    leader = fluss.call(metadata([made.path])).leaders[bucket]
    reading = FlussSplitReader(fluss).read_log(made, bucket, 0, 20_000)
    batches = [next(reading)]
    killed = fluss_cluster.tablet_servers[leader]
    killed.kill()
    with ThreadPoolExecutor(1) as threads:
        rest = threads.submit(list, reading)
        try:
            wait_until(lambda: leader_of(fluss, made.path, bucket) != leader)
            # On a busy machine the follower may not be in sync, so that nobody but the killed server can lead again.
            has_moved = leader_of(fluss, made.path, bucket) is not None
            if has_moved:
                batches += rest.result()
        finally:
            killed.start()
            fluss_cluster.wait_until_ready()
        if not has_moved:
            batches += rest.result()
    assert ids_of(batches) == list(range(20_000))
    assert not has_moved or leader_of(fluss, made.path, bucket) != leader


def leader_of(fluss: FlussClient, path: TablePath, bucket: TableBucket) -> int | None:
    return fluss.call(metadata([path])).leaders[bucket]
