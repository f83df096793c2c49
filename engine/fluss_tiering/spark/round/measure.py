"""The driver measures KV snapshots whose size the server does not know, such as those of a Fluss cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.storage.protocol import SplitReader

_AT_ONCE: Final = 8


def measured(
    open_reader: Callable[[], SplitReader], table: TableInfo, snapshots: Mapping[TableBucket, KvSnapshot]
) -> dict[TableBucket, KvSnapshot]:
    """Return the snapshots, each with its size and with the keys at which it may be split.

    Args:
        open_reader: Opens a reader. It is called only if a snapshot has to be measured.
        table: The table of the snapshots.
        snapshots: The snapshots by bucket.

    Raises:
        FlussTieringError: KV_SNAPSHOT_NOT_EXIST if a snapshot is gone; CORRUPT_DATA if it cannot be decoded; STORAGE
            if its files cannot be read; UNAVAILABLE if the cluster cannot be reached.
    """
    if all(snapshot.row_count >= 0 for snapshot in snapshots.values()):
        return dict(snapshots)
    reader = open_reader()
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fluss-tiering-measure") as threads:
        sized = threads.map(lambda snapshot: reader.measure_kv_snapshot(table, snapshot), snapshots.values())
        return dict(zip(snapshots, sized, strict=True))
