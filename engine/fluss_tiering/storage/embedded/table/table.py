"""One table: its buckets, and writes that change several buckets together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.grouping import PartitionValues, rows_by_partition
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket, TableInfo, WriteKind, partition_name
from fluss_tiering.storage.embedded.kv_scan import EmbeddedKvScan
from fluss_tiering.storage.embedded.table.bucket import KvBucket, LogBucket
from fluss_tiering.storage.embedded.table.bucket_groups import BucketGroup, BucketGroups, write_log_ends
from fluss_tiering.storage.embedded.table.lake_offsets import OldOffsetsFiles
from fluss_tiering.storage.embedded.validation import MAX_PARTITIONS, check_partition_values
from fluss_tiering.storage.files import delete_folder, sync_each
from fluss_tiering.storage.protocol import without_primary_key
from fluss_tiering.storage.writes import conform_write, place_by_key, place_evenly

_MANY_BUCKETS: Final = 64


class EmbeddedTable:
    """A table of the embedded storage.

    Its buckets are opened when they are first needed, so that a start with thousands of tables is quick.

    Attributes:
        info: The table's definition, whose options and columns may change.
        old_offsets: The offsets files that nobody needs any more.
    """

    def __init__(self, info: TableInfo, folder: Path, groups: BucketGroups) -> None:
        self.info = info
        self.folder = folder
        self.old_offsets = OldOffsetsFiles(folder)
        self._source = groups
        self._changing = threading.Lock()
        # The mapping is replaced as a whole, so that it may be read without the lock. It is None until it is needed.
        self._groups: Mapping[PartitionValues, BucketGroup] | None = None
        self._refusal: FlussTieringError | None = None

    @property
    def groups(self) -> Mapping[PartitionValues, BucketGroup]:
        """The group of buckets for the values of each partition. A table without partitions has one, for no values."""
        groups = self._groups
        if groups is None:
            with self._changing:
                self._refuse_dropped()
                groups = self._found_groups()
        return groups

    @property
    def buckets(self) -> Sequence[LogBucket]:
        """All buckets, ordered by partition and number.

        Raises:
            FlussTieringError: CORRUPT_DATA if a file is damaged; STORAGE if a file cannot be used.
        """
        return [bucket for group in self.groups.values() for bucket in group.buckets]

    @property
    def _kv_buckets(self) -> list[KvBucket]:
        return [bucket for bucket in self.buckets if isinstance(bucket, KvBucket)]

    def infos(self) -> list[BucketInfo]:
        """Return for every bucket what a reader may plan with."""
        return [
            replace(bucket.info(), partition_values=group.values)
            for group in self.groups.values()
            for bucket in group.buckets
        ]

    def bucket(self, bucket: TableBucket) -> LogBucket:
        """Return the bucket that has this id.

        Raises:
            FlussTieringError: PARTITION_NOT_EXIST if the table has no such partition; INVALID_REQUEST if it has no such
                bucket.
        """
        partitioned = bool(self.info.descriptor.partition_keys)
        num_buckets = self.info.descriptor.num_buckets
        if (bucket.partition_id is not None) != partitioned or not 0 <= bucket.bucket < num_buckets:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{bucket} does not exist: expected buckets 0 to {num_buckets - 1} of "
                f"{'a partition of ' if partitioned else ''}{self.info.path}",
            )
        return self._group(bucket).buckets[bucket.bucket]

    def drop_partition(self, values: PartitionValues) -> int:
        """Drop a partition with its files, after the writes to it that are under way, and return its id.

        Raises:
            FlussTieringError: PARTITION_NOT_EXIST if there is no such partition; STORAGE if the disk refuses.
        """
        with self._changing:
            self._refuse_dropped()
            groups = self._found_groups()
            group = groups.get(values)
            if group is None or group.partition_id is None:
                raise FlussTieringError(
                    ErrorCode.PARTITION_NOT_EXIST,
                    f"table {self.info.path} has no partition {partition_name(values)!r}: expected one of those that "
                    "exist, which `fluss-tiering tables describe` shows",
                )
            with group.exclusively():
                for bucket in group.opened:
                    bucket.close()
                doomed = self._source.set_aside(group)
                self._groups = {key: kept for key, kept in groups.items() if kept is not group}
        delete_folder(doomed)
        return group.partition_id

    def write(self, kind: WriteKind, rows: pa.Table, commit_timestamp: int) -> Mapping[TableBucket, int]:
        """Write rows durably, and return the log end offset of each bucket that got some.

        A write that fails is taken back.

        Raises:
            FlussTieringError: INVALID_ROWS if the rows do not fit the table; PARTITION_NOT_EXIST if a partition is
                dropped in the meantime; STORAGE if the disk refuses; CORRUPT_DATA if stored rows are damaged.
        """
        while True:
            info = self.info
            placed = dict(self._place(kind, conform_write(info, kind, rows)))
            with self._locked(placed) as buckets:
                if self.info.schema_id == info.schema_id:
                    return self._write(kind, placed, buckets, commit_timestamp)
            # The columns were altered meanwhile.

    def _write(
        self,
        kind: WriteKind,
        placed: Mapping[LogBucket, pa.RecordBatch],
        buckets: Sequence[LogBucket],
        commit_timestamp: int,
    ) -> Mapping[TableBucket, int]:
        """Write the rows of each bucket; the caller holds the buckets' locks."""
        try:
            for bucket in buckets:
                bucket.stage(kind, placed[bucket], commit_timestamp, opens_new=len(buckets) <= _MANY_BUCKETS)
            sync_each(LogBucket.sync, buckets)
        except BaseException:
            for bucket in buckets:
                bucket.rollback()
            raise
        for bucket in buckets:
            bucket.publish()
        for bucket in buckets:
            bucket.apply()
        return {bucket.bucket: bucket.log_end_offset for bucket in buckets}

    def take_snapshots(self, buckets: Collection[TableBucket] | None = None) -> list[KvSnapshot]:
        """Return a KV snapshot of each bucket that was ever written to.

        Args:
            buckets: The buckets that are wanted; None for all of them.

        Raises:
            FlussTieringError: TABLE_WITHOUT_PRIMARY_KEY if the table has no primary key; STORAGE if a snapshot cannot
                be written; CORRUPT_DATA if stored rows are damaged.
        """
        if not self.info.has_primary_key:
            raise without_primary_key(self.info.path, "KV snapshots")
        taken = []
        for bucket in self._kv_buckets:
            if buckets is not None and bucket.bucket not in buckets:
                continue
            with ignoring_dropped_partitions(), self._locked([bucket]):
                snapshot = bucket.take_snapshot()
                if snapshot is not None:
                    taken.append(snapshot)
        return taken

    def snapshot(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        """Return the KV snapshot, if it exists."""
        try:
            chosen = self.bucket(bucket)
        except FlussTieringError as error:
            if error.code not in {ErrorCode.INVALID_REQUEST, ErrorCode.PARTITION_NOT_EXIST}:
                raise
            return None
        return chosen.snapshots.get(snapshot_id) if isinstance(chosen, KvBucket) else None

    def collectable_snapshots(self, keep_newest: int) -> list[tuple[TableBucket, int]]:
        """Return the KV snapshots that are not among the newest of their bucket, by bucket and id."""
        found: list[tuple[TableBucket, int]] = []
        for bucket in self._kv_buckets if self.info.has_primary_key else ():
            found += [(bucket.bucket, snapshot_id) for snapshot_id in bucket.snapshots.old(keep_newest)]
        return found

    def delete_snapshot(self, bucket: TableBucket, snapshot_id: int) -> bool:
        """Delete a KV snapshot, and return whether there was one.

        Raises:
            FlussTieringError: STORAGE if the disk refuses; PARTITION_NOT_EXIST if the bucket's partition was dropped.
        """
        chosen = self.bucket(bucket)
        if not isinstance(chosen, KvBucket):
            return False
        with self._locked([chosen]):
            return chosen.snapshots.delete(snapshot_id)

    def open_scan(
        self, bucket: TableBucket, *, admit: Callable[[], None], on_lost: Callable[[], None]
    ) -> tuple[int, EmbeddedKvScan | None]:
        """Return a bucket's log end and a scan of its rows, both as of now; see `TableStorage.open_kv_scan`."""
        chosen = self.bucket(bucket)
        if not isinstance(chosen, KvBucket):
            raise without_primary_key(self.info.path, "scans by key")
        with self._locked([chosen]):
            return chosen.open_scan(admit=admit, on_lost=on_lost)

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Let nobody else open, write or snapshot the table during the block. This works for a damaged table too."""
        with ExitStack() as held:
            held.enter_context(self._changing)
            for group in self._open_groups():
                held.enter_context(group.exclusively())
            self._refuse_dropped()
            yield

    def use(self, info: TableInfo) -> None:
        """Be the table of this definition from now on, within a block of `exclusively`."""
        self.info = info
        self._source.use(info)
        for group in self._open_groups():
            for bucket in group.opened:
                bucket.use(info)

    def release_files(self) -> None:
        """Close all files, within a block of `exclusively`. They are opened again when they are needed.

        Raises:
            FlussTieringError: STORAGE if the disk refuses. All files are closed nevertheless.
        """
        with ExitStack() as closing:
            for group in self._open_groups():
                for bucket in group.opened:
                    closing.callback(bucket.close)

    def write_log_ends(self) -> None:
        """Write down where the logs end. The caller sees to it that no partition is dropped meanwhile.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        for group in self._open_groups():
            write_log_ends(group)

    def note_log_ends(self) -> None:
        """Write down where the logs end, beside writes. Errors are those of `write_log_ends`."""
        with self._changing:
            self._refuse_dropped()
            self.write_log_ends()

    def refuse_from_now_on(self, refusal: FlussTieringError) -> None:
        """Refuse all later calls, and those that still wait for a lock, with this error.

        The caller is within a block of `exclusively`.
        """
        self._refusal = refusal

    @contextmanager
    def _locked(self, buckets: Iterable[LogBucket]) -> Iterator[list[LogBucket]]:
        """Hold the locks of these buckets. They are taken in order, so that no two callers wait for each other."""
        chosen = sorted(buckets, key=lambda bucket: (bucket.bucket.partition_id or 0, bucket.bucket.bucket))
        with ExitStack() as locks:
            for bucket in chosen:
                locks.enter_context(bucket.lock)
            self._refuse_dropped()
            partitions = {group.partition_id for group in self.groups.values()}
            for bucket in chosen:
                if bucket.bucket.partition_id not in partitions:
                    raise _no_partition(bucket.bucket, self.info)
            yield chosen

    def _open_groups(self) -> Iterable[BucketGroup]:
        return () if self._groups is None else self._groups.values()

    def _found_groups(self) -> Mapping[PartitionValues, BucketGroup]:
        """Return the groups; the caller holds the lock."""
        if self._groups is None:
            self._groups = {group.values: group for group in self._source.find()}
        return self._groups

    def _group(self, bucket: TableBucket) -> BucketGroup:
        for group in self.groups.values():
            if group.partition_id == bucket.partition_id:
                return group
        raise _no_partition(bucket, self.info)

    def _make_partitions(self, wanted: Sequence[PartitionValues]) -> None:
        """Make the partitions that are missing, all at once."""
        if all(values in self.groups for values in wanted):
            return
        with self._changing:
            self._refuse_dropped()
            groups = self._found_groups()
            missing = [values for values in wanted if values not in groups]
            room = max(0, MAX_PARTITIONS - len(groups))
            if len(missing) > room:
                raise FlussTieringError(
                    ErrorCode.INVALID_ROWS,
                    f"table {self.info.path} may have {MAX_PARTITIONS} partitions and has {len(groups)}, and of the "
                    f"{len(missing)} more that the rows need there is no room for {partition_name(missing[room])!r}: "
                    "expected rows for fewer new partitions; drop some first",
                )
            self._groups = {**groups, **{group.values: group for group in self._source.make(missing)}}

    def _refuse_dropped(self) -> None:
        if self._refusal is not None:
            raise FlussTieringError(self._refusal.code, self._refusal.message)

    def _place(self, kind: WriteKind, records: pa.RecordBatch) -> Iterator[tuple[LogBucket, pa.RecordBatch]]:
        """Yield each bucket with its rows. All rows are checked before a partition is made for the first one."""
        if records.num_rows == 0:
            return
        parts = [(values, rows, self._by_key(rows)) for values, rows in rows_by_partition(self.info, records)]
        makes = kind is not WriteKind.DELETE
        if makes:
            for values, _, _ in parts:
                check_partition_values(self.info, values)
            self._make_partitions([values for values, _, _ in parts])
        groups = self.groups
        for values, rows, by_key in parts:
            group = groups.get(values)
            if group is not None:
                buckets = group.buckets
                placed = by_key or place_evenly(rows, [bucket.log_end_offset for bucket in buckets])
                yield from ((buckets[number], part) for number, part in placed.items())

    def _by_key(self, records: pa.RecordBatch) -> Mapping[int, pa.RecordBatch] | None:
        descriptor = self.info.descriptor
        if not descriptor.bucket_keys:
            return None
        return place_by_key(records, descriptor, descriptor.num_buckets)


def _no_partition(bucket: TableBucket, info: TableInfo) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.PARTITION_NOT_EXIST,
        f"{bucket} of {info.path} does not exist: expected a partition that was not dropped",
    )


@contextmanager
def ignoring_dropped_partitions() -> Iterator[None]:
    """End the block without an error if the partition that it works on is dropped in the meantime."""
    try:
        yield
    except FlussTieringError as error:
        if error.code is not ErrorCode.PARTITION_NOT_EXIST:
            raise
