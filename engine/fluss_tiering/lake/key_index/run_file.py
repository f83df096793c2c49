"""Writes the file of a run from entries that are sorted already."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.compiled import Int64s
from fluss_tiering.lake.key_index.hashes import Hashes
from fluss_tiering.lake.key_index.place import Place
from fluss_tiering.lake.key_index.run import (
    BLOCK_ENTRIES,
    DIGEST_BYTES,
    PAGE_FENCES,
    PAGE_TYPE,
    RUN_PREFIX,
    Blocks,
    Run,
    SortedEntries,
    UInt32s,
    block_type,
    checksum_key,
    fences_of,
)
from fluss_tiering.lake.key_index.siphash import checksums
from fluss_tiering.lake.key_index.store import IndexStore

_NO_FENCE: Final = 0xFFFFFFFF
_ENTRIES_AT_ONCE: Final = 1 << 16


def write_sorted(
    store: IndexStore,
    place: Place,
    paths: Sequence[str],
    largest_position: int,
    parts: Iterable[SortedEntries],
    *,
    prefix: str = RUN_PREFIX,
) -> Run:
    """Write a run, in memory for one part and for four bytes a block.

    Args:
        store: Where the run is written.
        place: The place whose keys it has.
        paths: The data files, by their numbers.
        largest_position: The largest position of an entry, or a larger one.
        parts: All entries. No hash of a part is smaller than one of a part before it.
        prefix: What the name of its file begins with.

    Raises:
        FlussTieringError: STORAGE if the store refuses.
    """
    name = f"{place.folder}/{prefix}{uuid.uuid4().hex}"
    with store.writing(name) as stream:
        file = _RunFile(stream, place, name, paths, largest_position)
        for part in parts:
            for start in range(0, len(part), _ENTRIES_AT_ONCE):
                file.add(part.take(slice(start, start + _ENTRIES_AT_ONCE)))
        return file.finish()


class _RunFile:
    """The file of one run, as it is being written."""

    def __init__(
        self, stream: pa.NativeFile, place: Place, name: str, paths: Sequence[str], largest_position: int
    ) -> None:
        self._stream = stream
        self._place = place
        self._name = name
        self._paths = paths
        self._largest_position = largest_position
        self._block_type = block_type(len(paths), largest_position)
        self._rows = np.zeros(len(paths), np.int64)
        self._rest = SortedEntries(Hashes.empty(), np.empty(0, np.int64), np.empty(0, np.int64))
        self._fences: list[UInt32s] = []
        self._blocks = 0
        self._entries = 0

    def add(self, part: SortedEntries) -> None:
        """Add entries. Those that fill no block wait for more."""
        self._entries += len(part)
        self._rows += np.bincount(part.files, minlength=len(self._rows))
        joined = _joined(self._rest, part)
        whole = len(joined) // BLOCK_ENTRIES * BLOCK_ENTRIES
        self._write_blocks(joined.take(slice(0, whole)))
        self._rest = joined.take(slice(whole, None))

    def finish(self) -> Run:
        """Write what waits, the fence pages and the footer."""
        if len(self._rest):
            self._write_blocks(_filled_up(self._rest))
        fences = np.concatenate(self._fences) if self._fences else np.empty(0, np.uint32)
        pages = self._write_pages(fences)
        run = Run(
            self._name,
            self._place,
            self._entries,
            dict(zip(self._paths, self._rows.tolist(), strict=True)),
            self._largest_position,
            pages,
        )
        footer = run.footer()
        self._stream.write(footer)
        return replace(run, footer_bytes=len(footer), digest=footer[-DIGEST_BYTES:])

    def _write_blocks(self, entries: SortedEntries) -> None:
        count = len(entries) // BLOCK_ENTRIES
        if not count:
            return
        blocks = np.empty(count, self._block_type)
        for field, values in (
            ("high", entries.hashes.high),
            ("low", entries.hashes.low),
            ("file", entries.files),
            ("position", entries.positions),
        ):
            blocks[field] = values.reshape(count, BLOCK_ENTRIES)
        self._write(blocks, np.arange(self._blocks, self._blocks + count))
        self._fences.append(fences_of(entries.hashes.high[::BLOCK_ENTRIES]))
        self._blocks += count

    def _write_pages(self, fences: UInt32s) -> UInt32s:
        """Write the fence pages, and return the first fence of each."""
        count = -(-len(fences) // PAGE_FENCES)
        pages = np.empty(count, PAGE_TYPE)
        pages["fence"] = _NO_FENCE
        filled = pages["fence"].reshape(-1)
        filled[: len(fences)] = fences
        pages["fence"] = filled.reshape(count, PAGE_FENCES)
        self._write(pages, np.arange(self._blocks, self._blocks + count))
        return fences[::PAGE_FENCES].copy()

    def _write(self, items: Blocks, numbers: Int64s) -> None:
        """Write items after putting their checksums into them."""
        words = items.view(np.int64) if len(items) else np.empty(0, np.int64)
        sums = np.empty(len(items), np.int64)
        checksums(words, items.dtype.itemsize // 8, numbers, *checksum_key(self._place, self._name), sums)
        items["checksum"] = sums
        self._stream.write(pa.py_buffer(items.view(np.uint8)))


def _joined(one: SortedEntries, other: SortedEntries) -> SortedEntries:
    if not len(one):
        return other
    return SortedEntries(
        Hashes.concat([one.hashes, other.hashes]),
        np.concatenate([one.files, other.files]),
        np.concatenate([one.positions, other.positions]),
    )


def _filled_up(entries: SortedEntries) -> SortedEntries:
    """Return the entries of the last block with copies of the last one, which are beyond the number of entries."""
    indexes = np.minimum(np.arange(BLOCK_ENTRIES), len(entries) - 1)
    return entries.take(indexes)
