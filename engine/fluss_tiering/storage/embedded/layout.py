"""Where things are in a data folder; the storage and readers on the same machine both go by this.

    data-dir.json, data-dir.lock
    tables/<database>/<table>-<table id>/
        table.json, log-ends.json
        log-<bucket>/<base offset, 20 digits>.log
        kv-<bucket>/db/                  RocksDB
        kv-<bucket>/snap-<snapshot id>/  a checkpoint of it, with snapshot.json
        metadata/<uuid>.offsets          of lake snapshots

Names are those of Fluss's `FlussPaths`. Tables stand in a folder of their own because a server keeps its database and,
by default, its lake beside them, and a Fluss database may have any name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fluss_tiering.model.table import TablePath

IDENTITY_FILE: Final = "data-dir.json"
LOCK_FILE: Final = "data-dir.lock"
TABLES_FOLDER: Final = "tables"
TABLE_FILE: Final = "table.json"
LOG_ENDS_FILE: Final = "log-ends.json"
METADATA_FOLDER: Final = "metadata"
OFFSETS_SUFFIX: Final = ".offsets"
ROCKSDB_FOLDER: Final = "db"
SNAPSHOT_FILE: Final = "snapshot.json"

_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.log")
_SNAPSHOT_NAME: Final = re.compile(r"snap-(\d+)")


def table_folder(data_dir: Path, path: TablePath, table_id: int) -> Path:
    """The folder of a table."""
    return data_dir.joinpath(TABLES_FOLDER, path.database, table_folder_name(path, table_id))


def table_folder_name(path: TablePath, table_id: int) -> str:
    """Its name, in the folder of its database."""
    return f"{path.table}-{table_id}"


def log_folder(table: Path, bucket: int) -> Path:
    """The folder of a bucket's log segments."""
    return table / log_folder_name(bucket)


def log_folder_name(bucket: int) -> str:
    """Its name."""
    return f"log-{bucket}"


def kv_folder(table: Path, bucket: int) -> Path:
    """The folder of a bucket's RocksDB and its snapshots."""
    return table / kv_folder_name(bucket)


def kv_folder_name(bucket: int) -> str:
    """Its name."""
    return f"kv-{bucket}"


def snapshot_folder(kv: Path, snapshot_id: int) -> Path:
    """The folder of a KV snapshot."""
    return kv / f"snap-{snapshot_id}"


def snapshot_id_of(name: str) -> int | None:
    """The snapshot whose folder has this name, or None when it is no snapshot's."""
    match = _SNAPSHOT_NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def segment_file(log: Path, base_offset: int) -> Path:
    """The segment that starts at an offset."""
    return log / f"{base_offset:020d}.log"


def base_offset_of(name: str) -> int | None:
    """The offset at which the segment of this name starts, or None when it is no segment's name."""
    match = _SEGMENT_NAME.fullmatch(name)
    return int(match.group(1)) if match else None
