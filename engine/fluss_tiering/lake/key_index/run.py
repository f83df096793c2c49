"""Runs, the files that hold an index: their entries in the order of the hashes, and how they are laid out.

A run never changes. Its file has three parts:

- *Blocks* of 32 entries each. The last block is filled up with entries that do not count.
- *Fence pages* of 1,024 fences each. A fence is the upper 32 bits of the first hash of a block. With the fences, a
  lookup finds the blocks that may have a hash.
- The *footer*: what the run is, its data files, and the first fence of each page.

Each block and each page ends with a checksum under a key that the table, the place and the name of the run make, and
its own number. The footer ends with a digest. So nothing that is read goes without a check, and what belongs to another
run, or to another part of this run, is as wrong as what is damaged.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fluss_tiering.formats.compiled import Int64s, UInt8s
from fluss_tiering.lake.key_index.hashes import Hashes, UInt64s
from fluss_tiering.lake.key_index.kernels import checksums
from fluss_tiering.lake.key_index.place import Place, unusable
from fluss_tiering.lake.key_index.store import IndexStore

UInt32s = npt.NDArray[np.uint32]
Blocks = npt.NDArray[np.void]

BLOCK_ENTRIES: Final = 32
"""Larger blocks make each lookup read more, smaller ones make more fences."""
PAGE_FENCES: Final = 1024
FENCE_SHIFT: Final = np.uint64(32)
PAGE_TYPE: Final = np.dtype([("fence", "<u4", (PAGE_FENCES,)), ("checksum", "<i8")])
RUN_PREFIX: Final = "run-"
NOTED_PREFIX: Final = "noted-"
"""How the names of runs begin with which the pieces of a round tell a later task of their keys."""
DIGEST_BYTES: Final = 16

_MAGIC: Final = b"FLUSSKEYRUN"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<11sHI")
_MAX_UINT32: Final = 0xFFFFFFFF
_BYTES_PER_BLOCK: Final = 4 << 10
"""What a block takes in memory when it is read, unpacked and sorted."""
_MIN_BLOCKS: Final = 16
_MAX_BLOCKS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class RunReference:
    """What one has to know of a run to open it.

    Attributes:
        name: The name of its file in the store.
        footer_start: Where its footer begins in the file.
        footer_bytes: The size of the footer.
        digest: The digest of the footer.
    """

    name: str
    footer_start: int
    footer_bytes: int
    digest: bytes


@dataclass(frozen=True, eq=False)
class Run:
    """A run.

    Attributes:
        name: The name of its file in the store.
        place: The place whose keys it has.
        entries: The number of entries.
        files: The data files whose rows it has, all of them, with their number of rows. The number of a data file in an
            entry is its index here.
        largest_position: The largest position of an entry; 0 without entries.
        tops: The first fence of each fence page.
        footer_bytes: The size of the footer.
        digest: The digest of the footer.
    """

    name: str
    place: Place
    entries: int
    files: Mapping[str, int]
    largest_position: int
    tops: UInt32s
    footer_bytes: int = 0
    digest: bytes = b""

    @cached_property
    def block_type(self) -> np.dtype[np.void]:
        """What a block is: its hashes, file numbers and positions, and its checksum."""
        return block_type(len(self.files), self.largest_position)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.entries // BLOCK_ENTRIES)

    @property
    def pages(self) -> int:
        """The number of fence pages."""
        return -(-self.blocks // PAGE_FENCES)

    @property
    def pages_start(self) -> int:
        """Where the fence pages begin in the file."""
        return self.blocks * self.block_type.itemsize

    @property
    def footer_start(self) -> int:
        """Where the footer begins in the file."""
        return self.pages_start + self.pages * PAGE_TYPE.itemsize

    @property
    def size(self) -> int:
        """The size of the file, in bytes."""
        return self.footer_start + self.footer_bytes

    @property
    def reference(self) -> RunReference:
        """What one has to know to open the run."""
        return RunReference(self.name, self.footer_start, self.footer_bytes, self.digest)

    def read_blocks(self, store: IndexStore, numbers: Int64s) -> Blocks:
        """Read blocks.

        Args:
            store: Where the run is.
            numbers: The numbers of the blocks, ascending and distinct.

        Raises:
            UnusableIndexError: if the file cannot be read, or if its content is not what was written.
        """
        content = store.read(self.name, numbers * self.block_type.itemsize, self.block_type.itemsize)
        self._check(store, content, numbers, self.block_type.itemsize, "block")
        return content.view(self.block_type)

    def read_pages(self, store: IndexStore, numbers: Int64s) -> UInt32s:
        """Read fence pages, and return the fences of each in a row.

        Args:
            store: Where the run is.
            numbers: The numbers of the pages, ascending and distinct.

        Raises:
            UnusableIndexError: if the file cannot be read, or if its content is not what was written.
        """
        size = PAGE_TYPE.itemsize
        content = store.read(self.name, self.pages_start + numbers * size, size)
        self._check(store, content, numbers, size, "fence page")
        fences: UInt32s = content.view(PAGE_TYPE)["fence"]
        return fences

    def _check(self, store: IndexStore, content: UInt8s, numbers: Int64s, size: int, what: str) -> None:
        words = content.view(np.int64)
        sums = np.empty(len(numbers), np.int64)
        # A page has another number than each block.
        shift = 0 if what == "block" else self.blocks
        checksums(words, size // 8, numbers + shift, *checksum_key(self.place, self.name), sums)
        wrong = np.flatnonzero(sums != words[size // 8 - 1 :: size // 8])
        if wrong.size:
            raise unusable(
                store.full_name(self.name),
                f"has a wrong checksum at {what} {numbers[wrong[0]]}",
                "the content that was written",
            )

    def footer(self) -> bytes:
        """Return the footer, with its digest at the end."""
        head = {
            "place": place_to_json(self.place),
            "name": self.name,
            "entries": self.entries,
            "largest_position": self.largest_position,
            "files": self.files,
        }
        described = zlib.compress(json.dumps(head, ensure_ascii=False).encode())
        content = _HEAD.pack(_MAGIC, _VERSION, len(described)) + described + self.tops.astype("<u4").tobytes()
        return content + digest_of(content)


def open_run(store: IndexStore, place: Place, reference: RunReference) -> Run:
    """Read the footer of a run.

    Args:
        store: Where the run is.
        place: The place that the run must be of.
        reference: What a state knows of the run.

    Raises:
        UnusableIndexError: if the run is missing, damaged, of another place or of another version.
    """
    name, digest = reference.name, reference.digest
    content = store.read(name, np.array([reference.footer_start]), reference.footer_bytes).tobytes()
    location = store.full_name(name)
    if content[-DIGEST_BYTES:] != digest or digest_of(content[:-DIGEST_BYTES]) != digest:
        raise unusable(location, "has a footer with a wrong digest", "the footer that was written")
    magic, version, size = _HEAD.unpack_from(content)
    if (magic, version) != (_MAGIC, _VERSION):
        raise unusable(location, f"begins its footer with {magic!r}, version {version}", f"version {_VERSION}")
    head: dict[str, Any] = json.loads(zlib.decompress(content[_HEAD.size : _HEAD.size + size]))
    found = place_of_json(head["place"])
    if (found, head["name"]) != (place, name):
        raise unusable(location, f"is the run {head['name']} of {found}", f"a run of {place}")
    tops = np.frombuffer(content[_HEAD.size + size : -DIGEST_BYTES], "<u4")
    return Run(name, place, head["entries"], head["files"], head["largest_position"], tops, len(content), digest)


def block_type(files: int, largest_position: int) -> np.dtype[np.void]:
    """Return what a block is, with numbers of files and positions as narrow as they may be."""
    file = "<u1" if files <= 1 << 8 else "<u2" if files <= 1 << 16 else "<u4"
    position = "<u4" if largest_position <= _MAX_UINT32 else "<u8"
    entries = (BLOCK_ENTRIES,)
    return np.dtype(
        [
            ("high", "<u8", entries),
            ("low", "<u8", entries),
            ("file", file, entries),
            ("position", position, entries),
            ("checksum", "<i8"),
        ]
    )


def checksum_key(place: Place, name: str) -> tuple[int, int]:
    """Return the key of a run's checksums."""
    text = json.dumps([place.table_uuid, place.folder, name]).encode()
    k0, k1 = np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), "<i8")
    return int(k0), int(k1)


def digest_of(content: bytes) -> bytes:
    """Return the digest of a footer or of a state."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def place_to_json(place: Place) -> dict[str, Any]:
    """Return the place as footers and states name it."""
    return {"table": place.table_uuid, "bucket": place.bucket, "partition": list(place.partition_values)}


def place_of_json(described: Mapping[str, Any]) -> Place:
    """Return the place that a footer or a state names."""
    return Place(described["table"], described["bucket"], tuple(described["partition"]))


@dataclass(frozen=True, slots=True, eq=False)
class SortedEntries:
    """Some entries of a run, in the order of the upper halves of their hashes.

    Attributes:
        files: The numbers of the data files.
        positions: The positions in them, counted from 0.
    """

    hashes: Hashes
    files: Int64s
    positions: Int64s

    def __len__(self) -> int:
        return len(self.files)

    def take(self, indexes: Int64s | slice) -> SortedEntries:
        """Return the entries with these indexes, which keep the order."""
        hashes = Hashes(self.hashes.high[indexes], self.hashes.low[indexes])
        return SortedEntries(hashes, self.files[indexes], self.positions[indexes])

    @staticmethod
    def sorted(hashes: Hashes, files: Int64s, positions: Int64s) -> SortedEntries:
        """Return entries in their order."""
        order = np.argsort(hashes.high)
        return SortedEntries(hashes.take(order), files[order], positions[order])


def fences_of(high: UInt64s) -> UInt32s:
    """Return the upper 32 bits of the upper halves of hashes."""
    return (high >> FENCE_SHIFT).astype(np.uint32)


def in_order(
    store: IndexStore, runs: Sequence[Run], mapped: Sequence[Int64s], buffer_bytes: int
) -> Iterator[SortedEntries]:
    """Yield the entries of runs in their common order, in parts.

    Args:
        store: Where the runs are.
        mapped: For each run, and each of its files, the number that its entries get; -1 if they are left out.
        buffer_bytes: About how much memory it takes.

    Raises:
        UnusableIndexError: if a run is missing or damaged.
    """
    blocks = buffer_bytes // _BYTES_PER_BLOCK // max(1, len(runs))
    at_once = min(max(blocks, _MIN_BLOCKS), _MAX_BLOCKS)
    return _merged([_entries_of(store, *each, at_once) for each in zip(runs, mapped, strict=True)])


def _entries_of(store: IndexStore, run: Run, mapped: Int64s, at_once: int) -> Iterator[SortedEntries]:
    for start in range(0, run.blocks, at_once):
        blocks = run.read_blocks(store, np.arange(start, min(start + at_once, run.blocks)))
        count = min(len(blocks) * BLOCK_ENTRIES, run.entries - start * BLOCK_ENTRIES)
        files = mapped[blocks["file"].reshape(-1)[:count]]
        high, low = blocks["high"].reshape(-1)[:count], blocks["low"].reshape(-1)[:count]
        positions = blocks["position"].reshape(-1)[:count].astype(np.int64)
        entries = SortedEntries(Hashes(high, low), files, positions)
        yield entries if (files >= 0).all() else entries.take(np.flatnonzero(files >= 0))


def _merged(streams: Sequence[Iterator[SortedEntries]]) -> Iterator[SortedEntries]:
    """Yield the entries of sorted streams in their common order, in parts."""
    held: list[tuple[SortedEntries, Iterator[SortedEntries]]] = []
    for stream in streams:
        first = _next(stream)
        if first is not None:
            held.append((first, stream))
    while held:
        # What is not larger than the last of each part is followed by nothing smaller.
        bound = min(part.hashes.high[-1] for part, _ in held)
        taken: list[SortedEntries] = []
        remaining: list[tuple[SortedEntries, Iterator[SortedEntries]]] = []
        for part, stream in held:
            count = int(np.searchsorted(part.hashes.high, bound, "right"))
            if count:
                taken.append(part.take(slice(0, count)))
            rest = part.take(slice(count, None)) if count < len(part) else _next(stream)
            if rest is not None:
                remaining.append((rest, stream))
        held = remaining
        yield _sorted(taken)


def _next(stream: Iterator[SortedEntries]) -> SortedEntries | None:
    """Return the next part that has entries."""
    return next((part for part in stream if len(part)), None)


def _sorted(parts: Sequence[SortedEntries]) -> SortedEntries:
    if len(parts) == 1:
        return parts[0]
    return SortedEntries.sorted(
        Hashes.concat([each.hashes for each in parts]),
        np.concatenate([each.files for each in parts]),
        np.concatenate([each.positions for each in parts]),
    )
