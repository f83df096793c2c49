"""Reading a KV snapshot, which is a RocksDB checkpoint, in bounded chunks and without writing into its folder.

Several readers, also in several processes, may read one snapshot at once. rocksdict writes a file into each folder that
it opens, so each reader opens a temporary folder with links to the snapshot's files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.embedded.layout import SNAPSHOT_FILE
from fluss_tiering.storage.files import corrupt
from fluss_tiering.storage.rocksdb_files import SNAPSHOT_FILES, entries
from fluss_tiering.storage.scratch import temporary_folder

_OWN_FILES: Final = frozenset({SNAPSHOT_FILE, "rocksdict-config.json"})


def read_checkpoint(
    folder: Path, from_key: bytes | None, to_key: bytes | None, chunk_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the entries of the key range [from_key, to_key), ordered by key, in the `ENTRY_SCHEMA`.

    Args:
        folder: The folder of the snapshot.
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
