"""The folder of a table: it is made in one step, and all files in it are checked when it is opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.embedded.kv.rocksdb import RocksDbMemory
from fluss_tiering.storage.embedded.layout import (
    LOG_ENDS_FILE,
    METADATA_FOLDER,
    TABLE_FILE,
    bucket_folder_names,
    partition_id_of,
)
from fluss_tiering.storage.embedded.table.bucket_groups import REMEDY, BucketGroups
from fluss_tiering.storage.embedded.table.definition_file import write_table_file
from fluss_tiering.storage.embedded.table.table import EmbeddedTable
from fluss_tiering.storage.files import (
    DELETED_SUFFIX,
    TEMPORARY_SUFFIX,
    corrupt,
    delete_folder,
    rename_durably,
    sync_directory,
)


def make_table_folder(folder: Path, info: TableInfo) -> None:
    """Make the folder of a new, empty table. After a crash it is there as a whole or not at all."""
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
    info: TableInfo,
    *,
    data_dir: Path,
    folder: Path,
    memory: RocksDbMemory,
    segment_bytes: int,
    allocate_partition_ids: Callable[[int], range],
) -> EmbeddedTable:
    """Open the table in a folder. Its logs are recovered when it is first used, or by `EmbeddedTable.buckets`.

    Raises:
        FlussTieringError: CORRUPT_DATA if a file is missing or foreign. A damaged file is found later.
    """
    _account_for_all(folder, info)
    groups = BucketGroups(
        info,
        data_dir=data_dir,
        folder=folder,
        memory=memory,
        segment_bytes=segment_bytes,
        allocate_partition_ids=allocate_partition_ids,
    )
    return EmbeddedTable(info, folder, groups)


def _account_for_all(folder: Path, info: TableInfo) -> None:
    expected = {TABLE_FILE, *_folder_names(info)}
    optional = set() if info.descriptor.partition_keys else {LOG_ENDS_FILE}
    # Only the names are listed: making paths would take most of the time of a start with many tables.
    found = {name for name in os.listdir(folder) if not name.endswith(TEMPORARY_SUFFIX)}  # noqa: PTH208
    if info.descriptor.partition_keys:
        found = {name for name in found if partition_id_of(name.removesuffix(DELETED_SUFFIX)) is None}
    for name in sorted(expected - found):
        raise corrupt(folder / name, "is missing", "it beside the table's other files", REMEDY)
    for name in sorted(found - expected - optional):
        raise corrupt(folder / name, "is foreign", "only the files of a table here", "move it away")


def _folder_names(info: TableInfo) -> set[str]:
    return {METADATA_FOLDER} if info.descriptor.partition_keys else {METADATA_FOLDER, *bucket_folder_names(info)}
