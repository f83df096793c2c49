"""The KV snapshots of one bucket: folders with a checkpoint of its RocksDB and a description of the checkpoint.

Several readers, also in several processes, may read one snapshot at once. rocksdict writes a file into each folder that
it opens, so each reader opens a temporary folder with links to the snapshot's files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket
from fluss_tiering.storage.embedded.layout import ROCKSDB_FOLDER, SNAPSHOT_FILE, snapshot_folder, snapshot_id_of
from fluss_tiering.storage.embedded.rocksdb import LiveFile
from fluss_tiering.storage.files import (
    DELETED_SUFFIX,
    TEMPORARY_SUFFIX,
    corrupt,
    delete_folder,
    read_json,
    rename_durably,
    reporting_os_errors,
    temporary_folder,
    write_json,
)
from fluss_tiering.storage.rocksdb_files import SNAPSHOT_FILES, entries

_FIRST_SNAPSHOT_ID: Final = 0
_PIECE_BYTES: Final = 64 << 20
_REMEDY: Final = "stop the server and move the snapshot's folder away; the table's next round takes a new snapshot"
_OWN_FILES: Final = frozenset({SNAPSHOT_FILE, "rocksdict-config.json"})


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """The state of the store that a checkpoint holds."""

    log_offset: int
    row_count: int
    table_files: Sequence[LiveFile]


class KvSnapshots:
    """The snapshots in a bucket's folder. Whoever changes them holds the bucket's lock."""

    def __init__(self, data_dir: Path, folder: Path, bucket: TableBucket) -> None:
        """Load the snapshots and delete the folders that a crash left half made or half deleted.

        Raises:
            FlussTieringError: CORRUPT_DATA if a file is torn or foreign.
        """
        self._data_dir = data_dir
        self._folder = folder
        self._bucket = bucket
        # The tuple is replaced as a whole, so that it may be read without the lock.
        self._snapshots: tuple[KvSnapshot, ...] = ()
        found = []
        for name in os.listdir(folder):  # noqa: PTH208 - names alone, as in `open_table`
            snapshot_id = snapshot_id_of(name)
            if name.endswith((TEMPORARY_SUFFIX, DELETED_SUFFIX)):
                delete_folder(folder / name)
            elif snapshot_id is not None:
                found.append(self._load(snapshot_id))
            elif name != ROCKSDB_FOLDER:
                raise corrupt(folder / name, "is foreign", "only a RocksDB and its snapshots here", "move it away")
        self._snapshots = tuple(sorted(found, key=lambda snapshot: snapshot.snapshot_id))

    @property
    def latest(self) -> KvSnapshot | None:
        """The newest snapshot."""
        snapshots = self._snapshots
        return snapshots[-1] if snapshots else None

    def get(self, snapshot_id: int) -> KvSnapshot | None:
        """Return the snapshot that has this id, if it exists."""
        return next((snapshot for snapshot in self._snapshots if snapshot.snapshot_id == snapshot_id), None)

    def add(self, write_checkpoint: Callable[[Path], CheckpointContent]) -> KvSnapshot:
        """Make a new snapshot, which exists as soon as its checkpoint is complete and durable.

        Args:
            write_checkpoint: A function that makes the checkpoint in the given folder, which does not exist yet.
        """
        snapshot_id = self.latest.snapshot_id + 1 if self.latest else _FIRST_SNAPSHOT_ID
        folder = snapshot_folder(self._folder, snapshot_id)
        temporary = folder.with_name(folder.name + TEMPORARY_SUFFIX)
        with reporting_os_errors("make the KV snapshot", folder):
            try:
                content = write_checkpoint(temporary)
                write_json(
                    temporary / SNAPSHOT_FILE,
                    {
                        "snapshot_id": snapshot_id,
                        "log_offset": content.log_offset,
                        "row_count": content.row_count,
                        "size_bytes": sum(file.size_bytes for file in content.table_files),
                        "split_keys": [key.hex() for key in split_keys(content.table_files)],
                    },
                )
                rename_durably(temporary, folder)
            except BaseException:
                delete_folder(temporary)
                raise
        snapshot = self._load(snapshot_id)
        self._snapshots = (*self._snapshots, snapshot)
        return snapshot

    def old(self, keep_newest: int) -> list[int]:
        """Return the ids of all snapshots but the newest ones. Any thread may call this."""
        return [snapshot.snapshot_id for snapshot in self._snapshots[:-keep_newest]]

    def delete(self, snapshot_id: int) -> bool:
        """Delete a snapshot, and return whether there was one."""
        snapshot = self.get(snapshot_id)
        if snapshot is None:
            return False
        folder = self._data_dir / snapshot.path
        with reporting_os_errors("delete the KV snapshot", folder):
            delete_folder(folder)
        self._snapshots = tuple(kept for kept in self._snapshots if kept is not snapshot)
        return True

    def _load(self, snapshot_id: int) -> KvSnapshot:
        folder = snapshot_folder(self._folder, snapshot_id)
        path = folder / SNAPSHOT_FILE
        content: dict[str, Any] = read_json(path, _REMEDY)
        try:
            return KvSnapshot(
                bucket=self._bucket,
                snapshot_id=snapshot_id,
                log_offset=int(content["log_offset"]),
                row_count=int(content["row_count"]),
                size_bytes=int(content["size_bytes"]),
                path=str(folder.relative_to(self._data_dir)),
                split_keys=tuple(bytes.fromhex(key) for key in content["split_keys"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise corrupt(path, f"describes no KV snapshot ({error!r})", "what was written", _REMEDY) from error


def split_keys(files: Sequence[LiveFile], piece_bytes: int = _PIECE_BYTES) -> list[bytes]:
    """Return keys that split a store into ranges of about `piece_bytes`, ascending; none if it is not much larger.

    A range begins where a file of the largest level begins, since the files of a level do not overlap. The rows of the
    other levels are assumed to be spread evenly. A store that is mostly on level 0 is small and is not split.
    """
    size_of_level: dict[int, int] = {}
    for file in files:
        size_of_level[file.level] = size_of_level.get(file.level, 0) + file.size_bytes
    if not size_of_level:
        return []
    largest = max(size_of_level, key=size_of_level.__getitem__)
    if largest == 0:
        return []
    total = sum(size_of_level.values())
    scale = total / size_of_level[largest]
    pieces = max(1, round(total / piece_bytes))
    keys: list[bytes] = []
    before = 0.0
    for file in sorted((file for file in files if file.level == largest), key=lambda file: file.first_key):
        size = file.size_bytes * scale
        next_cut = (len(keys) + 1) * total / pieces
        if before > 0 and len(keys) < pieces - 1 and before + size / 2 >= next_cut:
            keys.append(file.first_key)
        before += size
    return keys


def read_checkpoint(
    folder: Path, from_key: bytes | None, to_key: bytes | None, chunk_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the entries of the key range [from_key, to_key), ordered by key, in the `ENTRY_SCHEMA`.

    Args:
        from_key: The first key; None to begin with the first entry.
        to_key: The key after the last one; None to end with the last entry.
        chunk_bytes: The approximate size of a batch.

    Raises:
        FlussTieringError: KV_SNAPSHOT_NOT_EXIST if there is no such snapshot; CORRUPT_DATA if it is damaged.
    """
    with temporary_folder(SNAPSHOT_FILES) as links:
        _link_files(folder, links)
        try:
            yield from entries(links, from_key, to_key, chunk_bytes)
        except FlussTieringError:
            raise
        except Exception as error:
            _refuse_missing(folder)
            remedy = "take a new KV snapshot and let the round start again"
            raise corrupt(folder, f"cannot be read ({error})", "a whole RocksDB checkpoint", remedy) from error


def _link_files(folder: Path, links: Path) -> None:
    _refuse_missing(folder)
    for file in folder.iterdir():
        if file.name not in _OWN_FILES:
            (links / file.name).symlink_to(file.absolute())


def _refuse_missing(folder: Path) -> None:
    if not (folder / SNAPSHOT_FILE).exists():
        raise FlussTieringError(
            ErrorCode.KV_SNAPSHOT_NOT_EXIST,
            f"the KV snapshot in {folder} does not exist: expected one that a lease protects; "
            "start the round again with the bucket's latest snapshot",
        )
