"""The folder of a table: made in one step, and opened with all that is in it accounted for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.storage.embedded.bucket import KvBucket, LogBucket
from fluss_tiering.storage.embedded.files import (
    TEMPORARY_SUFFIX,
    corrupt,
    delete_folder,
    read_json,
    rename_durably,
    sync_directory,
    write_json,
)
from fluss_tiering.storage.embedded.kv_snapshots import KvSnapshots
from fluss_tiering.storage.embedded.layout import (
    LOG_ENDS_FILE,
    METADATA_FOLDER,
    TABLE_FILE,
    kv_folder,
    kv_folder_name,
    log_folder,
    log_folder_name,
)
from fluss_tiering.storage.embedded.rocksdb import RocksDbMemory
from fluss_tiering.storage.embedded.segments import SegmentedLog
from fluss_tiering.storage.embedded.table import EmbeddedTable
from fluss_tiering.storage.embedded.table_file import write_table_file

_REMEDY: Final = "restore it from a backup, or drop the table and load it again"


def make_table_folder(folder: Path, info: TableInfo) -> None:
    """The folder of a new, empty table; it is there as a whole or not at all."""
    temporary = folder.with_name(folder.name + TEMPORARY_SUFFIX)
    folder.parent.mkdir(exist_ok=True)
    sync_directory(folder.parent.parent)
    try:
        temporary.mkdir()
        for name in _folder_names(info):
            (temporary / name).mkdir()
        write_table_file(temporary, info)
        rename_durably(temporary, folder)
    except BaseException:
        delete_folder(temporary)
        raise


def open_table(
    info: TableInfo, *, data_dir: Path, folder: Path, memory: RocksDbMemory, segment_bytes: int
) -> EmbeddedTable:
    """The table in a folder; its logs are recovered when it is first used, or by `EmbeddedTable.buckets`.

    Raises:
        FlussTieringError: CORRUPT_DATA naming the file that is missing or foreign; later, one that is damaged.
    """
    has_log_ends = LOG_ENDS_FILE in _account_for_all(folder, info)

    def open_buckets() -> list[LogBucket]:
        least_ends = _read_log_ends(folder, info) if has_log_ends else [0] * info.descriptor.num_buckets
        buckets: list[LogBucket] = []
        for bucket in range(info.descriptor.num_buckets):
            logs, kvs = log_folder(folder, bucket), kv_folder(folder, bucket)
            snapshots, least_end = None, least_ends[bucket]
            if info.has_primary_key:
                snapshots = KvSnapshots(data_dir, kvs, TableBucket(info.table_id, bucket))
                least_end = max(least_end, snapshots.latest.log_offset if snapshots.latest else 0)
            log = SegmentedLog.recover(logs, segment_bytes=segment_bytes, least_end_offset=least_end)
            buckets.append(
                LogBucket(info, bucket, logs, log)
                if snapshots is None
                else KvBucket(info, bucket, logs, log, kv_folder=kvs, snapshots=snapshots, memory=memory)
            )
        return buckets

    return EmbeddedTable(info, folder, open_buckets)


def write_log_ends(table: EmbeddedTable) -> None:
    """Notes where the logs end: whatever is then missing at the next start is no torn batch but a loss."""
    if not table.is_open:
        return
    ends = [bucket.log_end_offset for bucket in table.buckets]
    if ends != _read_log_ends(table.folder, table.info):
        write_json(table.folder / LOG_ENDS_FILE, {"log_end_offsets": ends})


def _read_log_ends(folder: Path, info: TableInfo) -> list[int]:
    path = folder / LOG_ENDS_FILE
    num_buckets = info.descriptor.num_buckets
    if not path.exists():
        return [0] * num_buckets
    ends = read_json(path, _REMEDY).get("log_end_offsets")
    if not isinstance(ends, list) or len(ends) != num_buckets or not all(isinstance(end, int) for end in ends):
        raise corrupt(path, "does not hold the ends of the table's logs", f"{num_buckets} offsets", _REMEDY)
    return ends


def _account_for_all(folder: Path, info: TableInfo) -> set[str]:
    expected = {TABLE_FILE, *_folder_names(info)}
    # Names alone: paths would be most of what a start with many tables takes.
    found = {name for name in os.listdir(folder) if not name.endswith(TEMPORARY_SUFFIX)}  # noqa: PTH208
    for name in sorted(expected - found):
        raise corrupt(folder / name, "is missing", "it beside the table's other files", _REMEDY)
    for name in sorted(found - expected - {LOG_ENDS_FILE}):
        raise corrupt(folder / name, "is foreign", "only the files of a table here", "move it away")
    return found


def _folder_names(info: TableInfo) -> set[str]:
    names = {METADATA_FOLDER}
    for bucket in range(info.descriptor.num_buckets):
        names.add(log_folder_name(bucket))
        if info.has_primary_key:
            names.add(kv_folder_name(bucket))
    return names
