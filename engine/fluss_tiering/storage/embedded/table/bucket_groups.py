"""The groups of buckets in a table's folder: one for the table or, if it is partitioned, one for each partition."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from fluss_tiering.formats.grouping import PartitionValues
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.storage.embedded.kv_snapshots import KvSnapshots
from fluss_tiering.storage.embedded.layout import (
    LOG_ENDS_FILE,
    PARTITION_FILE,
    bucket_folder_names,
    kv_folder,
    log_folder,
    partition_folder,
    partition_id_of,
)
from fluss_tiering.storage.embedded.rocksdb import RocksDbMemory
from fluss_tiering.storage.embedded.segments import SegmentedLog
from fluss_tiering.storage.embedded.table.bucket import KvBucket, LogBucket
from fluss_tiering.storage.files import (
    DELETED_SUFFIX,
    TEMPORARY_SUFFIX,
    corrupt,
    delete_folder,
    read_json,
    rename_durably,
    reporting_os_errors,
    sync_directory,
    sync_each,
    write_json,
)

REMEDY: Final = "restore it from a backup, or drop the table and load it again"


class BucketGroup:
    """Buckets that are made and deleted together. They are opened when they are first needed.

    Attributes:
        folder: The folder of their files.
        partition_id: The id of the partition; None for a table without partitions.
        values: The values of the partition keys.
        noted_ends: The ends of the logs that are written down; None until the buckets are opened.
    """

    def __init__(
        self,
        folder: Path,
        open_buckets: Callable[[BucketGroup], Sequence[LogBucket]],
        partition_id: int | None = None,
        values: PartitionValues = (),
    ) -> None:
        self.folder = folder
        self.partition_id = partition_id
        self.values = values
        self.noted_ends: list[int] | None = None
        self._open_buckets = open_buckets
        self._opening = threading.Lock()
        self._opened: Sequence[LogBucket] | None = None

    @property
    def buckets(self) -> Sequence[LogBucket]:
        """The buckets, each at the index that is its id.

        Raises:
            FlussTieringError: CORRUPT_DATA if a file is damaged; STORAGE if a file cannot be used.
        """
        if self._opened is None:
            with self._opening:
                if self._opened is None:
                    self._opened = self._open_buckets(self)
        return self._opened

    @property
    def opened(self) -> Sequence[LogBucket]:
        """The buckets if they are open; otherwise none."""
        return self._opened or ()

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Let nobody else open, write or snapshot the buckets during the block. This works for damaged buckets too."""
        with ExitStack() as held:
            held.enter_context(self._opening)
            for bucket in self.opened:
                held.enter_context(bucket.lock)
            yield


class BucketGroups:
    """Finds, makes and deletes the groups in a table's folder."""

    def __init__(
        self,
        info: TableInfo,
        *,
        data_dir: Path,
        folder: Path,
        memory: RocksDbMemory,
        segment_bytes: int,
        allocate_partition_ids: Callable[[int], range],
    ) -> None:
        self._info = info
        self._data_dir = data_dir
        self._folder = folder
        self._memory = memory
        self._segment_bytes = segment_bytes
        self._allocate_partition_ids = allocate_partition_ids

    def use(self, info: TableInfo) -> None:
        """Open buckets by this definition of the table from now on."""
        self._info = info

    def find(self) -> list[BucketGroup]:
        """Return the groups, ordered by partition id. Delete folders that a crash left half made or half dropped.

        Raises:
            FlussTieringError: CORRUPT_DATA if a file is missing or foreign.
        """
        if not self._info.descriptor.partition_keys:
            return [BucketGroup(self._folder, self._open)]
        found = []
        for name in os.listdir(self._folder):  # noqa: PTH208 - names alone, as in `open_table`
            partition_id = partition_id_of(name)
            if partition_id is not None:
                found.append(self._partition(partition_id))
            elif Path(name).suffix in {TEMPORARY_SUFFIX, DELETED_SUFFIX} and (self._folder / name).is_dir():
                delete_folder(self._folder / name)
        return sorted(found, key=lambda group: group.partition_id or 0)

    def make(self, partitions: Sequence[PartitionValues]) -> list[BucketGroup]:
        """Make partitions. After a crash each is there as a whole or not at all, and after an error none is there.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        made = [
            BucketGroup(partition_folder(self._folder, partition_id), self._open, partition_id, values)
            for partition_id, values in zip(self._allocate_partition_ids(len(partitions)), partitions, strict=True)
        ]
        with reporting_os_errors("make the partitions' folders in", self._folder):
            try:
                sync_each(self._fill, made)
                for group in made:
                    _unfinished(group).rename(group.folder)
                sync_directory(self._folder)
            except BaseException:
                for group in made:
                    for folder in (_unfinished(group), group.folder):
                        if folder.exists():
                            delete_folder(folder)
                raise
        return made

    def _fill(self, group: BucketGroup) -> None:
        """Make the folder of a partition under the name of an unfinished one."""
        folder = _unfinished(group)
        folder.mkdir()
        for name in bucket_folder_names(self._info):
            (folder / name).mkdir()
        write_json(folder / PARTITION_FILE, {"partition_id": group.partition_id, "values": list(group.values)})

    def set_aside(self, group: BucketGroup) -> Path:
        """Rename the folder of a partition, whose files are closed, so that it can be deleted. Return the new path."""
        doomed = group.folder.with_name(group.folder.name + DELETED_SUFFIX)
        with reporting_os_errors("delete the partition's folder", group.folder):
            rename_durably(group.folder, doomed)
        return doomed

    def _partition(self, partition_id: int) -> BucketGroup:
        folder = partition_folder(self._folder, partition_id)
        expected = {PARTITION_FILE, *bucket_folder_names(self._info)}
        found = {name for name in os.listdir(folder) if not name.endswith(TEMPORARY_SUFFIX)}  # noqa: PTH208
        for name in sorted(expected - found):
            raise corrupt(folder / name, "is missing", "it beside the partition's other files", REMEDY)
        for name in sorted(found - expected - {LOG_ENDS_FILE}):
            raise corrupt(folder / name, "is foreign", "only the files of a partition here", "move it away")
        path = folder / PARTITION_FILE
        content = read_json(path, REMEDY)
        values = content.get("values")
        if (
            content.get("partition_id") != partition_id
            or not isinstance(values, list)
            or len(values) != len(self._info.descriptor.partition_keys)
            or not all(isinstance(value, str) for value in values)
        ):
            raise corrupt(path, "describes no partition of this table", "what was written", REMEDY)
        return BucketGroup(folder, self._open, partition_id, tuple(values))

    def _open(self, group: BucketGroup) -> list[LogBucket]:
        info, folder = self._info, group.folder
        group.noted_ends = least_ends = _read_log_ends(folder, info)
        buckets: list[LogBucket] = []
        for number in range(info.descriptor.num_buckets):
            bucket = TableBucket(info.table_id, number, group.partition_id)
            logs, kvs = log_folder(folder, number), kv_folder(folder, number)
            snapshots, least_end = None, least_ends[number]
            if info.has_primary_key:
                snapshots = KvSnapshots(self._data_dir, kvs, bucket)
                least_end = max(least_end, snapshots.latest.log_offset if snapshots.latest else 0)
            log = SegmentedLog.recover(logs, segment_bytes=self._segment_bytes, least_end_offset=least_end)
            buckets.append(
                LogBucket(info, bucket, logs, log)
                if snapshots is None
                else KvBucket(info, bucket, logs, log, kv_folder=kvs, snapshots=snapshots, memory=self._memory)
            )
        return buckets


def _unfinished(group: BucketGroup) -> Path:
    return group.folder.with_name(group.folder.name + TEMPORARY_SUFFIX)


def write_log_ends(group: BucketGroup) -> None:
    """Write down where the logs end. If rows before these ends are missing at the next start, data were lost."""
    if not group.opened:
        return
    ends = [bucket.log_end_offset for bucket in group.opened]
    if ends != group.noted_ends:
        with reporting_os_errors("write", group.folder / LOG_ENDS_FILE):
            write_json(group.folder / LOG_ENDS_FILE, {"log_end_offsets": ends})
        group.noted_ends = ends


def _read_log_ends(folder: Path, info: TableInfo) -> list[int]:
    path = folder / LOG_ENDS_FILE
    num_buckets = info.descriptor.num_buckets
    if not path.exists():
        return [0] * num_buckets
    ends = read_json(path, REMEDY).get("log_end_offsets")
    if not isinstance(ends, list) or len(ends) != num_buckets or not all(isinstance(end, int) for end in ends):
        raise corrupt(path, "does not hold the ends of the table's logs", f"{num_buckets} offsets", REMEDY)
    return ends
