"""The size of a KV snapshot and the keys at which it can be split, from the indexes of its table files alone.

A table file ends with a footer that says where the file's index is. The index has an entry for each block of rows, with
a key that is not less than the block's last key (RocksDB's block-based format, versions 4 and 5, which RocksDB 6
writes). rocksdict has no call for this.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa

from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles, reporting_storage_errors

_PIECE_BYTES: Final = 8 << 20
_MAX_PIECES: Final = 256
_STEPS_OF_PIECE: Final = 4
"""The number of parts that each piece is measured in."""
_THREADS: Final = 4
_FOOTER_BYTES: Final = 53
_HANDLES_AT: Final = 1
_VERSION_AND_MAGIC: Final = struct.Struct("<IQ")
_MAGIC: Final = 0x88E241B785F4CFF7
_VERSIONS: Final = frozenset({4, 5})
"""Older versions have other index entries, and newer versions have another footer."""
_TRAILER_BYTES: Final = 5
"""The size of what follows a block: its compression and a checksum."""
_CODECS: Final = {1: "snappy", 4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}
_MAX_INDEX_BYTES: Final = 256 << 20
"""This is more than the index of any file that is written."""
_UNCOMPRESSED: Final = 0
_SNAPPY: Final = 1
_RESTART: Final = struct.Struct("<I")


def measure_files(files: RemoteFiles, paths: Sequence[str]) -> tuple[int, tuple[bytes, ...]]:
    """Return the size of table files, and the keys that split their rows into ranges of similar size, ascending.

    Args:
        files: The files of the cluster's remote folder.
        paths: The paths of the table files, whose key ranges may overlap.

    Raises:
        FileNotFoundError: A file is missing.
        FlussTieringError: STORAGE if a file cannot be read.
    """
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="fluss-kv-snapshot") as threads:
        sizes = list(threads.map(files.size, paths))
        total = sum(sizes)
        pieces = min(_MAX_PIECES, total // _PIECE_BYTES)
        if pieces < 2:
            return total, ()
        step = total / pieces / _STEPS_OF_PIECE
        parts = threads.map(lambda path, size: _parts(files, path, size, step), paths, sizes)
        return total, split_keys([part for of_file in parts for part in of_file], pieces)


def split_keys(parts: Sequence[tuple[bytes, float]], pieces: int) -> tuple[bytes, ...]:
    """Return keys that split parts into at most this many pieces of similar size.

    Args:
        parts: The parts, each with the key after it and its size.
        pieces: The greatest number of pieces.
    """
    keys: list[bytes] = []
    total, before = sum(size for _, size in parts), 0.0
    for key, size in sorted(parts):
        before += size
        if before >= (len(keys) + 1) * total / pieces and len(keys) < pieces - 1 and key not in keys[-1:]:
            keys.append(key)
    return tuple(keys)


def _parts(files: RemoteFiles, path: str, size: int, step: float) -> list[tuple[bytes, float]]:
    """Return a file in parts of about `step` bytes. Rows after the last key count as part of the last part."""
    count = int(size / step)
    if count == 0:
        return []
    with files.open(path) as file, reporting_storage_errors(path):
        keys = keys_within(file, count)
    return [(key, size / len(keys)) for key in keys]


def keys_within(file: pa.NativeFile, count: int) -> list[bytes]:
    """Return keys that split the rows of a table file into `count` + 1 parts of similar size, or fewer, ascending.

    Args:
        file: A file that can be read at any position.
        count: The number of keys, 1 or more.

    Returns:
        The keys; an empty list if the file has an unknown format.

    Raises:
        OSError: The file cannot be read.
    """
    try:
        return _spread(_index(file), count)
    except (IndexError, ValueError, struct.error, pa.ArrowException):
        return []


def _index(file: pa.NativeFile) -> bytes:
    """Return the decompressed bytes of the index block."""
    size = file.size()
    file.seek(max(0, size - _FOOTER_BYTES))
    footer = file.read(_FOOTER_BYTES)
    version, magic = _VERSION_AND_MAGIC.unpack(footer[-_VERSION_AND_MAGIC.size :])
    if magic != _MAGIC or version not in _VERSIONS:
        raise ValueError("another format")
    position = _HANDLES_AT
    handle = []
    for _ in range(4):  # Offset and size of the index of other blocks, then offset and size of this index.
        number, position = _varint(footer, position)
        handle.append(number)
    start, length = handle[2:]
    if start + length + _TRAILER_BYTES > size:
        raise ValueError("no index block")
    file.seek(start)
    block = file.read(length + _TRAILER_BYTES)
    return _decompressed(block[:length], block[length])


def _decompressed(block: bytes, kind: int) -> bytes:
    if kind == _UNCOMPRESSED:
        return block
    codec = _CODECS.get(kind)
    if codec is None:
        raise ValueError("another compression")
    size, start = _varint(block, 0)
    if size > _MAX_INDEX_BYTES:
        raise ValueError("no index block")
    # Snappy's own format begins with the size too.
    body = block if kind == _SNAPPY else block[start:]
    try:
        data: bytes = pa.decompress(body, size, codec, asbytes=True)
    except OSError as error:
        raise ValueError("no index block") from error
    return data


def _spread(index: bytes, count: int) -> list[bytes]:
    """Return the keys of evenly spread entries of the index. They are restart points, which have whole keys."""
    (restarts,) = _RESTART.unpack_from(index, len(index) - _RESTART.size)
    table = len(index) - _RESTART.size * (restarts + 1)
    if table < 0:
        raise ValueError("no index block")
    keys: list[bytes] = []
    for number in range(1, count + 1):
        # The key of the last entry is after all rows.
        chosen = restarts * number // (count + 1) - 1
        if chosen < 0:
            continue
        (position,) = _RESTART.unpack_from(index, table + _RESTART.size * chosen)
        shared, position = _varint(index, position)
        length, position = _varint(index, position)
        key = index[position : position + length]
        if shared or len(key) != length or position + length > table:
            raise ValueError("no index block")
        if not keys or key > keys[-1]:
            keys.append(key)
    return keys


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
