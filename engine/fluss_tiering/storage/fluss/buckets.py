"""The buckets of a cluster's tables: their log ranges and their latest KV snapshots."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket, TableInfo, TablePath
from fluss_tiering.storage.fluss.partitions import bucket_count
from fluss_tiering.storage.fluss.reading.log_chunks import LogChunk
from fluss_tiering.storage.fluss.rpc.call import ServerKind
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.kv import kv_snapshot_files, latest_kv_snapshots
from fluss_tiering.storage.fluss.rpc.calls.log import FetchedLog, OffsetType, fetch_log, log_offset, log_offsets_of
from fluss_tiering.storage.fluss.rpc.calls.tables import Partition, list_partitions
from fluss_tiering.storage.fluss.rpc.client import FlussClient, ParallelCalls
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from fluss_tiering.storage.fluss.rpc.routing import without_leader

UNKNOWN_ROW_COUNT: Final = -1
"""The row count of a cluster's KV snapshot, which only a reader learns."""
_PART_BYTES: Final = 64 << 10
"""The size of a part of a log that is fetched to learn the size of a row."""
_PARTS_AT: Final = (0.5, 0.9)
"""The places of the parts in the log. The first batches of a table are often those of a trial."""
_OUTDATED_SHARE: Final = 0.1
"""Rows are measured again when the log has grown or shrunk by this share."""
_MAX_MEASURED_TABLES: Final = 10_000
_PARTITIONS_PER_CALL: Final = 500
_GONE: Final = frozenset({FlussError.PARTITION_NOT_EXISTS, FlussError.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION})


@dataclass(frozen=True, slots=True)
class _Measured:
    """The size of a row of a table's log, and how many rows its log had when this was measured."""

    row_bytes: float
    rows: int


class ClusterBuckets:
    """Asks the cluster for buckets at each call, and measures the size of a table's rows now and then.

    It allows concurrent calls.
    """

    def __init__(self, client: FlussClient, calls: ParallelCalls) -> None:
        self._client = client
        self._calls = calls
        self._lock = threading.Lock()
        self._measured: dict[int, _Measured] = {}

    def infos(self, table: TableInfo, *, wait_for_leaders: bool = True) -> list[BucketInfo]:
        """Return every bucket of every partition with its log range and its latest KV snapshot.

        Partitions that are dropped in the meantime are left out.

        Args:
            wait_for_leaders: As in `TableStorage.buckets`.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TABLE as in `bucket_count`;
                NOT_LEADER_OR_FOLLOWER if a bucket has no leader.
        """
        partitions = self.partitions(table)
        # The snapshots are asked for before the ends of the logs, so that no snapshot is ahead of its log.
        found = self._calls.each(lambda partition: self._snapshots(table, partition), partitions)
        snapshots = {bucket: snapshot for of_partition in found for bucket, snapshot in of_partition.items()}
        values = {
            TableBucket(table.table_id, number, None if partition is None else partition.partition_id): ()
            if partition is None
            else tuple(partition.values.values())
            for partition in partitions
            for number in range(bucket_count(self._client, table, partition))
        }
        ranges = log_offsets(self._client, self._calls, table.path, values, wait_for_leaders=wait_for_leaders)
        row_bytes = self._measure(table, ranges)
        return [
            BucketInfo(bucket, start, end, round((end - start) * row_bytes), snapshots.get(bucket), values[bucket])
            for bucket, (start, end) in sorted(ranges.items(), key=_order)
        ]

    def partitions(self, table: TableInfo) -> Sequence[Partition | None]:
        """Return the partitions. A table without partitions has one element, None.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table.
        """
        if not table.descriptor.partition_keys:
            return [None]
        return self._client.call(list_partitions(table.path))

    def latest_kv_snapshots(self, table: TableInfo, partition: Partition | None) -> dict[TableBucket, KvSnapshot]:
        """Return the latest KV snapshot of each bucket that has one.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; TABLE_WITHOUT_PRIMARY_KEY if it has no primary
                key.
        """
        latest = self._client.call(latest_kv_snapshots(table.path, None if partition is None else partition.name))
        return {
            bucket: _kv_snapshot(bucket, snapshot.snapshot_id, snapshot.log_offset)
            for bucket, snapshot in latest.items()
            if snapshot is not None and bucket.table_id == table.table_id
        }

    def latest_kv_snapshot(self, table: TableInfo, bucket: TableBucket) -> KvSnapshot | None:
        """Return the latest KV snapshot of one bucket, if it has one.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_REQUEST if it has no such bucket.
        """
        for partition in self.partitions(table):
            if bucket.partition_id == (None if partition is None else partition.partition_id):
                return self.latest_kv_snapshots(table, partition).get(bucket)
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{bucket} does not exist any more, or never did: expected a bucket of {table.path}",
        )

    def kv_snapshot(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        """Return the KV snapshot that has this id, or None if it does not exist or exists no more."""
        try:
            files = self._client.call(kv_snapshot_files(bucket, snapshot_id))
        except FlussTieringError as error:
            if error.code is ErrorCode.KV_SNAPSHOT_NOT_EXIST:
                return None
            raise
        return _kv_snapshot(bucket, snapshot_id, files.log_offset)

    def _snapshots(self, table: TableInfo, partition: Partition | None) -> dict[TableBucket, KvSnapshot]:
        if not table.has_primary_key:
            return {}
        try:
            return self.latest_kv_snapshots(table, partition)
        except FlussServerError as error:
            if partition is not None and error.fluss_error is FlussError.PARTITION_NOT_EXISTS:
                return {}
            raise

    def _measure(self, table: TableInfo, ranges: Mapping[TableBucket, tuple[int, int]]) -> float:
        """Return about how many bytes a row of the log takes; 0 while no bucket has rows."""
        rows = sum(end - start for start, end in ranges.values())
        measured = self._measured.get(table.table_id)
        if measured is not None and abs(rows - measured.rows) <= _OUTDATED_SHARE * measured.rows:
            return measured.row_bytes
        longest = max(ranges, key=lambda bucket: ranges[bucket][1] - ranges[bucket][0], default=None)
        start, end = (0, 0) if longest is None else ranges[longest]
        if longest is None or start >= end:
            return 0.0
        try:
            sizes = [
                self._client.call(
                    fetch_log(table.path, longest, start + int((end - start) * place), max_bytes=_PART_BYTES)
                )
                for place in _PARTS_AT
            ]
        except FlussServerError as error:
            # The leader moves this part to the remote folder, or deletes it, at this very moment.
            if error.fluss_error is not FlussError.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION:
                raise
            return 0.0 if measured is None else measured.row_bytes
        source = f"the log of {longest} ({table.path})"
        row_bytes = sum(_row_bytes(fetched, source) for fetched in sizes) / len(sizes)
        with self._lock:
            if len(self._measured) >= _MAX_MEASURED_TABLES:
                self._measured.clear()
            self._measured[table.table_id] = _Measured(row_bytes, rows)
        return row_bytes


def _order(item: tuple[TableBucket, tuple[int, int]]) -> tuple[int, int]:
    return item[0].partition_id or 0, item[0].bucket


def _kv_snapshot(bucket: TableBucket, snapshot_id: int, log_offset: int) -> KvSnapshot:
    return KvSnapshot(bucket, snapshot_id, log_offset, UNKNOWN_ROW_COUNT, size_bytes=0, path="")


def _row_bytes(fetched: FetchedLog, source: str) -> float:
    segments = fetched.remote_segments
    if segments:
        rows = sum(segment.end_offset - segment.start_offset for segment in segments)
        return sum(segment.size_bytes for segment in segments) / max(rows, 1)
    size = rows = 0
    for _, header in LogChunk(memoryview(fetched.records), 0, source).batches():
        size += header.size
        rows += header.next_offset - header.base_offset
    return size / max(rows, 1)


def log_offsets(
    client: FlussClient,
    calls: ParallelCalls,
    path: TablePath,
    buckets: Iterable[TableBucket],
    *,
    wait_for_leaders: bool = True,
) -> dict[TableBucket, tuple[int, int]]:
    """Return the log range [start, end) of each of the buckets of a table.

    Buckets of partitions that do not exist, or exist no more, are left out.

    Args:
        calls: Makes calls at the same time.
        wait_for_leaders: Whether to wait for the leader of a bucket that has none, as long as the client waits.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; UNAVAILABLE if the cluster cannot be reached;
            NOT_LEADER_OR_FOLLOWER if a bucket has no leader, or has none for too long.
    """
    wanted = list(buckets)
    leaders = _leaders(client, calls, path, {bucket.partition_id for bucket in wanted})
    if not wait_for_leaders and (alone := [each for each in wanted if each in leaders and leaders[each] is None]):
        ids = {bucket.partition_id for bucket in alone}
        leaders = {**leaders, **_leaders(client, calls, path, ids, ServerKind.COORDINATOR)}
        for bucket in alone:
            if leaders.get(bucket) is None:
                raise without_leader(path, bucket)
    groups: dict[tuple[int | None, int | None], list[TableBucket]] = {}
    for bucket in wanted:
        if bucket in leaders:
            groups.setdefault((leaders[bucket], bucket.partition_id), []).append(bucket)
    found = calls.each(lambda group: _group_offsets(client, path, group), groups.values())
    return {bucket: offsets for of_group in found for bucket, offsets in of_group.items()}


def _leaders(
    client: FlussClient,
    calls: ParallelCalls,
    path: TablePath,
    partition_ids: set[int | None],
    asked: ServerKind = ServerKind.ANY,
) -> Mapping[TableBucket, int | None]:
    ids = sorted(each for each in partition_ids if each is not None)
    if not ids:
        return _known_leaders(client, path, (), asked)
    parts = [ids[at : at + _PARTITIONS_PER_CALL] for at in range(0, len(ids), _PARTITIONS_PER_CALL)]
    found = calls.each(lambda part: _leaders_of_partitions(client, path, part, asked), parts)
    return {bucket: leader for leaders in found for bucket, leader in leaders.items()}


def _known_leaders(
    client: FlussClient, path: TablePath, ids: Sequence[int], asked: ServerKind
) -> Mapping[TableBucket, int | None]:
    known = client.call(metadata([path], ids, asked=asked))
    # A server that is not alive any more stays the leader of a bucket that no other server has.
    return {bucket: leader if leader in known.tablet_servers else None for bucket, leader in known.leaders.items()}


def _leaders_of_partitions(
    client: FlussClient, path: TablePath, ids: Sequence[int], asked: ServerKind
) -> dict[TableBucket, int | None]:
    try:
        return dict(_known_leaders(client, path, ids, asked))
    except FlussServerError as error:
        if error.fluss_error not in _GONE:
            raise
    if len(ids) == 1:
        return {}
    # One dropped partition fails the whole call, so each half is asked for, until only that partition fails.
    half = len(ids) // 2
    return {
        **_leaders_of_partitions(client, path, ids[:half], asked),
        **_leaders_of_partitions(client, path, ids[half:], asked),
    }


def _group_offsets(
    client: FlussClient, path: TablePath, buckets: Sequence[TableBucket]
) -> dict[TableBucket, tuple[int, int]]:
    """Return the log ranges of buckets of one partition that one server leads, or led a moment ago."""
    try:
        ends = _offsets(client, path, buckets, OffsetType.LATEST)
        starts = _offsets(client, path, buckets, OffsetType.EARLIEST)
    except FlussServerError as error:
        if error.fluss_error in _GONE and buckets[0].partition_id is not None:
            return {}
        raise
    return {bucket: (min(starts[bucket], ends[bucket]), ends[bucket]) for bucket in buckets}


def _offsets(
    client: FlussClient, path: TablePath, buckets: Sequence[TableBucket], which: OffsetType
) -> dict[TableBucket, int]:
    found = client.call(log_offsets_of(path, buckets, which))
    # A bucket whose leader has moved gets a call of its own.
    rest = {bucket: client.call(log_offset(path, bucket, which)) for bucket in buckets if bucket not in found}
    return {**found, **rest}
