"""The layout of a data folder, for the storage and for readers on the same machine.

    data-dir.json, data-dir.lock
    tables/<database>/<table>-<table id>/
        table.json, log-ends.json
        log-<bucket>/<base offset, 20 digits>.log
        kv-<bucket>/db/                  RocksDB
        kv-<bucket>/snap-<snapshot id>/  a checkpoint of it, with snapshot.json
        metadata/<uuid>.offsets          of lake snapshots
        partition-<partition id>/        of a partitioned table: partition.json, log-ends.json, log-…, kv-…

The names are those of Fluss's `FlussPaths`. Tables have a folder of their own because a server keeps its database and,
by default, its lake beside them, and a Fluss database may have any name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.storage.data_dir import TABLES_FOLDER

TABLE_FILE: Final = "table.json"
LOG_ENDS_FILE: Final = "log-ends.json"
METADATA_FOLDER: Final = "metadata"
OFFSETS_SUFFIX: Final = ".offsets"
ROCKSDB_FOLDER: Final = "db"
SNAPSHOT_FILE: Final = "snapshot.json"
PARTITION_FILE: Final = "partition.json"

_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.log")
_PARTITION_NAME: Final = re.compile(r"partition-(\d+)")
_SNAPSHOT_NAME: Final = re.compile(r"snap-(\d+)")


def table_folder(data_dir: Path, path: TablePath, table_id: int) -> Path:
    """Return the folder of a table."""
    return data_dir.joinpath(TABLES_FOLDER, path.database, table_folder_name(path, table_id))


def table_folder_name(path: TablePath, table_id: int) -> str:
    """Return the name of a table's folder, which is in the folder of its database."""
    return f"{path.table}-{table_id}"


def partition_folder(table: Path, partition_id: int | None) -> Path:
    """Return the folder of a partition's buckets; for None, the table's own folder."""
    return table if partition_id is None else table / f"partition-{partition_id}"


def partition_id_of(name: str) -> int | None:
    """Return the id of the partition whose folder has this name, or None if it is no partition's."""
    match = _PARTITION_NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def bucket_folder_names(info: TableInfo) -> set[str]:
    """Return the names of the folders of a table's buckets, or of the buckets of one of its partitions."""
    buckets = range(info.descriptor.num_buckets)
    names = {log_folder_name(bucket) for bucket in buckets}
    return names | {kv_folder_name(bucket) for bucket in buckets} if info.has_primary_key else names


def log_folder(parent: Path, bucket: int) -> Path:
    """Return the folder of a bucket's log segments, which is in its table's or its partition's folder."""
    return parent / log_folder_name(bucket)


def log_folder_name(bucket: int) -> str:
    """Return the name of the folder of a bucket's log segments."""
    return f"log-{bucket}"


def kv_folder(parent: Path, bucket: int) -> Path:
    """Return the folder of a bucket's RocksDB and its snapshots, which is in its table's or its partition's folder."""
    return parent / kv_folder_name(bucket)


def kv_folder_name(bucket: int) -> str:
    """Return the name of the folder of a bucket's RocksDB and its snapshots."""
    return f"kv-{bucket}"


def snapshot_folder(kv: Path, snapshot_id: int) -> Path:
    """Return the folder of a KV snapshot."""
    return kv / f"snap-{snapshot_id}"


def snapshot_id_of(name: str) -> int | None:
    """Return the id of the snapshot whose folder has this name, or None if it is no snapshot's."""
    match = _SNAPSHOT_NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def segment_file(log: Path, base_offset: int) -> Path:
    """Return the path of the segment that starts at an offset."""
    return log / f"{base_offset:020d}.log"


def base_offset_of(name: str) -> int | None:
    """Return the offset at which the segment with this name starts, or None if it is no segment's name."""
    match = _SEGMENT_NAME.fullmatch(name)
    return int(match.group(1)) if match else None
