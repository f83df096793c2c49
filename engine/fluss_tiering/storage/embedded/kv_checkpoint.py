"""Reads a KV snapshot, which is a RocksDB checkpoint, in bounded chunks and without writing into its folder.

Several readers, also on behalf of several processes, may read one snapshot at once. rocksdict writes a file of its own
into each folder that it opens, so a reader opens a folder of its own that links to the snapshot's files.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
from rocksdict import AccessType, Options, Rdict, ReadOptions

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.embedded.files import corrupt
from fluss_tiering.storage.embedded.layout import SNAPSHOT_FILE

ENTRY_SCHEMA: Final = pa.schema([pa.field("key", pa.binary(), False), pa.field("value", pa.binary(), False)])

_OWN_FILES: Final = frozenset({SNAPSHOT_FILE, "rocksdict-config.json"})
_ENTRIES_AT_ONCE: Final = 512
"""Few enough that large values do not overshoot the size of a chunk by much."""
_READ_AHEAD_BYTES: Final = 2 << 20


def read_checkpoint(
    folder: Path, from_key: bytes | None, to_key: bytes | None, chunk_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The entries of the key range [from_key, to_key), by key, in the `ENTRY_SCHEMA`.

    Args:
        folder: of the snapshot.
        from_key: None for the first.
        to_key: None for behind the last.
        chunk_bytes: about how large a batch may be.

    Raises:
        FlussTieringError: KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA.
    """
    with TemporaryDirectory(prefix="fluss-kv-snapshot-") as links:
        _link_files(folder, Path(links))
        options = ReadOptions()
        options.fill_cache(False)
        options.set_readahead_size(_READ_AHEAD_BYTES)
        if to_key is not None:
            options.set_iterate_upper_bound(to_key)
        try:
            with Rdict(links, Options(raw_mode=True), access_type=AccessType.read_only()) as db:
                yield from _entries(db, options, from_key, chunk_bytes)
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


def _entries(db: Rdict, options: ReadOptions, from_key: bytes | None, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    items = db.items(from_key=from_key, read_opt=options)
    last_key = from_key
    pending: list[pa.RecordBatch] = []
    pending_bytes = 0
    while entries := list(islice(items, _ENTRIES_AT_ONCE)):
        last_key = entries[-1][0]
        arrays = [pa.array(list(map(itemgetter(column), entries)), pa.binary()) for column in (0, 1)]
        pending.append(pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA))
        pending_bytes += pending[-1].nbytes
        if pending_bytes >= chunk_bytes:
            yield pa.concat_batches(pending)
            pending, pending_bytes = [], 0
    _check_reached_end(db, options, last_key)
    if pending:
        yield pa.concat_batches(pending)


def _check_reached_end(db: Rdict, options: ReadOptions, last_key: bytes | None) -> None:
    """Raises where damage ended the iteration: rocksdict's iterators end there as if it were the end."""
    probe = db.iter(options)
    if last_key is None:
        probe.seek_to_first()
    else:
        probe.seek(last_key)
        if probe.valid():
            probe.next()
    probe.status()
