"""KV snapshots that the server cannot size, as a cluster's are, are measured by the driver before they are cut."""

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
    """The snapshots, each with its size and the keys at which it may be cut.

    Args:
        open_reader: called when one of them is to be measured.
        table: of the snapshots.
        snapshots: by bucket.

    Raises:
        FlussTieringError: KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA, STORAGE, UNAVAILABLE.
    """
    if all(snapshot.row_count >= 0 for snapshot in snapshots.values()):
        return dict(snapshots)
    reader = open_reader()
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fluss-tiering-measure") as threads:
        sized = threads.map(lambda snapshot: reader.measure_kv_snapshot(table, snapshot), snapshots.values())
        return dict(zip(snapshots, sized, strict=True))
