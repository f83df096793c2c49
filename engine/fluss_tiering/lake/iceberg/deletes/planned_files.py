"""The driver's side: the live data files of a snapshot, each with its live delete files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, LiveDataFile, VectorPlace
from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.library import JavaTable, ask

_LEVEL: Final = 1
"""The level of the compression, the fastest."""


def live_data_files(
    table: JavaTable,
    snapshot_id: int | None,
    *,
    keys: Sequence[Sequence[str]] | None = None,
    leading: int = 0,
    **where: object,
) -> Iterator[LiveDataFile]:
    """Yield the data files of a snapshot.

    Args:
        snapshot_id: The id of the snapshot; None for a table without snapshots.
        keys: The values of the partition keys of each partition that is looked at; None for all of them.
        leading: How many fields of the partition spec have these values, from the first one on.
        where: `partitions` instead, with the values of all fields of the partition spec.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    if snapshot_id is None:
        return
    with lake_errors(f"list the data files of the lake table {table.name()}"):
        found = ask(table, "liveFiles", {"snapshot": snapshot_id, "keys": keys, "leading": leading, **where})
    deletes = [None if each is None else _delete_file(*each) for each in found["deletes"]]
    for location, partition, rows, numbers, spec_id, file_format in found["files"]:
        files = [deletes[number] for number in numbers]
        by_position = tuple(each for each in files if each is not None)
        yield LiveDataFile(
            location, tuple(partition), rows, by_position, len(by_position) < len(files), spec_id, file_format
        )


def _delete_file(description: str, referenced: str | None) -> LakeFile:
    """Return a live delete file. What Iceberg says of it is kept, since a commit removes it by this description."""
    described: dict[str, Any] = json.loads(description)
    vector = None
    if described["file-format"].upper() == "PUFFIN":
        vector = VectorPlace(described["content-offset"], described["content-size-in-bytes"])
    return LakeFile(
        FileContent.POSITION_DELETES,
        0,
        described["file-path"],
        described["file-size-in-bytes"],
        FileMetrics(described["record-count"]),
        packed=zlib.compress(description.encode(), _LEVEL),
        referenced=() if referenced is None else (referenced,),
        vector=vector,
    )
