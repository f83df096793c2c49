"""A model of the storage in memory: what `TableStorage` and split readers need, with rows to count.

It is the disk: a crash of the server loses nothing of it. A KV snapshot that nothing pins is really deleted, and a
later reader sees that it is gone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket, TableDescriptor, TableInfo, TablePath
from fluss_tiering.storage.embedded.storage import LogListener
from simulation.scheduler import Scheduler

ROW_BYTES = 4 << 20
"""A size with which a few rows make several pieces."""


@dataclass(frozen=True, slots=True)
class Change:
    """A record of a bucket's log. `value` is None for a delete. In a log table, key and value are equal."""

    key: int
    value: int | None


@dataclass(slots=True)
class Bucket:
    """A bucket: its log, and in a primary-key table its present rows and snapshots."""

    log: list[Change] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    snapshots: dict[int, tuple[KvSnapshot, dict[int, int]]] = field(default_factory=dict)
    next_snapshot_id: int = 0


class ModelStorage:
    """The part of `TableStorage` that the simulated servicers call."""

    def __init__(self, scheduler: Scheduler, retained_snapshots: int) -> None:
        self._scheduler = scheduler
        self._retained = retained_snapshots
        self._numbers = itertools.count(1)
        self._tables: dict[int, TableInfo] = {}
        self._buckets: dict[TableBucket, Bucket] = {}
        self._offsets_files: dict[str, tuple[int, Mapping[TableBucket, int]]] = {}
        self.listener: LogListener | None = None
        self.on_collect: Callable[[TableBucket, int], None] = lambda bucket, snapshot_id: None

    # Tables

    def create_table(self, path: TablePath, descriptor: TableDescriptor) -> TableInfo:
        info = TableInfo(next(self._numbers), path, 1, descriptor, self._scheduler.now)
        self._tables[info.table_id] = info
        for number in range(descriptor.num_buckets):
            self._buckets[TableBucket(info.table_id, number)] = Bucket()
        if self.listener is not None:
            self.listener.created(info.table_id)
        return info

    def drop_table(self, path: TablePath) -> TableInfo:
        info = self.table(path)
        del self._tables[info.table_id]
        for number in range(info.descriptor.num_buckets):
            del self._buckets[TableBucket(info.table_id, number)]
        return info

    def set_property(self, path: TablePath, key: str, value: str) -> None:
        """Alter an option of a table."""
        info = self.table(path)
        properties = {**info.descriptor.properties, key: value}
        self._tables[info.table_id] = replace(info, descriptor=replace(info.descriptor, properties=properties))

    def table(self, path: TablePath) -> TableInfo:
        for info in self._tables.values():
            if info.path == path:
                return info
        raise FlussTieringError(ErrorCode.TABLE_NOT_EXIST, f"table {path} does not exist")

    def table_by_id(self, table_id: int) -> TableInfo:
        if table_id not in self._tables:
            raise FlussTieringError(ErrorCode.TABLE_NOT_EXIST, f"table {table_id} does not exist")
        return self._tables[table_id]

    def has_table(self, table_id: int) -> bool:
        return table_id in self._tables

    def tables(self) -> Sequence[TableInfo]:
        return sorted(self._tables.values(), key=lambda info: (info.path.database, info.path.table))

    def unusable_tables(self, known: Collection[TablePath] = ()) -> Sequence[TablePath]:
        del known
        return ()

    # Rows

    def append(self, bucket: TableBucket, changes: Sequence[Change]) -> None:
        """Write records, which are durable at once."""
        content = self._buckets[bucket]
        content.log += changes
        for change in changes:
            if change.value is None:
                content.rows.pop(change.key, None)
            else:
                content.rows[change.key] = change.value
        if self.listener is not None:
            self.listener.written({bucket: len(content.log)})

    def log(self, bucket: TableBucket) -> list[Change]:
        """Return the whole log of a bucket that exists."""
        return self._bucket(bucket).log

    def buckets(self, path: TablePath, *, wait_for_leaders: bool = True) -> Sequence[BucketInfo]:
        info = self.table(path)
        found = []
        for number in range(info.descriptor.num_buckets):
            bucket = TableBucket(info.table_id, number)
            content = self._buckets[bucket]
            latest = max(content.snapshots, default=None)
            length = len(content.log)
            snapshot = None if latest is None else content.snapshots[latest][0]
            found.append(BucketInfo(bucket, 0, length, length * ROW_BYTES, snapshot))
        return found

    # KV snapshots

    def take_kv_snapshots(
        self, path: TablePath, buckets: Collection[TableBucket] | None = None
    ) -> Sequence[KvSnapshot]:
        info = self.table(path)
        all_of_them = [TableBucket(info.table_id, number) for number in range(info.descriptor.num_buckets)]
        return [self._take(bucket) for bucket in all_of_them if buckets is None or bucket in buckets]

    def kv_snapshot(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        content = self._buckets.get(bucket)
        if content is None or snapshot_id not in content.snapshots:
            return None
        return content.snapshots[snapshot_id][0]

    def collectable_kv_snapshots(self, path: TablePath) -> Sequence[tuple[TableBucket, int]]:
        info = self.table(path)
        buckets = [TableBucket(info.table_id, number) for number in range(info.descriptor.num_buckets)]
        return [(each, id_) for each in buckets for id_ in sorted(self._buckets[each].snapshots)[: -self._retained]]

    def delete_kv_snapshots(self, snapshots: Collection[tuple[TableBucket, int]]) -> int:
        deleted = 0
        for bucket, snapshot_id in snapshots:
            content = self._buckets.get(bucket)
            if content is not None and snapshot_id in content.snapshots:
                self.on_collect(bucket, snapshot_id)
                del content.snapshots[snapshot_id]
                deleted += 1
        return deleted

    # Lake offsets

    def write_lake_offsets(self, table_id: int, log_end_offsets: Mapping[TableBucket, int]) -> str:
        path = f"offsets/{table_id}/{len(self._offsets_files)}"
        self._offsets_files[path] = table_id, dict(log_end_offsets)
        return path

    def has_lake_offsets(self, table_id: int, path: str) -> bool:
        return path in self._offsets_files and self._offsets_files[path][0] == table_id

    def lake_offsets(self, path: str) -> Mapping[TableBucket, int]:
        """Return what an offsets file holds. A bucket with nothing in the lake is left out."""
        return {bucket: offset for bucket, offset in self._offsets_files[path][1].items() if offset >= 0}

    def delete_lake_offsets(self, table_id: int, registered: str, kept: Collection[str]) -> int:
        # Only files of a day ago are deleted, and no round takes so long.
        del table_id, registered, kept
        return 0

    # Readers of splits

    def read_log(self, bucket: TableBucket, start: int, end: int) -> Sequence[Change]:
        log = self._bucket(bucket).log
        if end > len(log):
            raise FlussTieringError(ErrorCode.LOG_OFFSET_OUT_OF_RANGE, f"{bucket}: {end} is past the end, {len(log)}")
        return log[start:end]

    def read_kv_snapshot(
        self, snapshot: KvSnapshot, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[tuple[int, int]]:
        present = self._bucket(snapshot.bucket).snapshots.get(snapshot.snapshot_id)
        if present is None:
            raise FlussTieringError(
                ErrorCode.KV_SNAPSHOT_NOT_EXIST, f"snapshot {snapshot.snapshot_id} of {snapshot.bucket} is gone"
            )
        for key, value in present[1].items():
            encoded = _encoded(key)
            if (from_key is None or encoded >= from_key) and (to_key is None or encoded < to_key):
                yield key, value

    def _bucket(self, bucket: TableBucket) -> Bucket:
        if bucket not in self._buckets:
            raise FlussTieringError(ErrorCode.TABLE_NOT_EXIST, f"table {bucket.table_id} does not exist")
        return self._buckets[bucket]

    def _take(self, bucket: TableBucket) -> KvSnapshot:
        content = self._buckets[bucket]
        latest = max(content.snapshots, default=None)
        if latest is not None and content.snapshots[latest][0].log_offset == len(content.log):
            return content.snapshots[latest][0]
        snapshot_id = content.next_snapshot_id
        content.next_snapshot_id += 1
        snapshot = KvSnapshot(
            bucket=bucket,
            snapshot_id=snapshot_id,
            log_offset=len(content.log),
            row_count=len(content.rows),
            size_bytes=len(content.rows) * ROW_BYTES,
            path=f"{bucket.table_id}/{bucket.bucket}/{snapshot_id}",
            split_keys=tuple(_encoded(key) for key in sorted(content.rows)[1::3]),
        )
        content.snapshots[snapshot_id] = (snapshot, dict(content.rows))
        return snapshot


def _encoded(key: int) -> bytes:
    return key.to_bytes(8, "big")
