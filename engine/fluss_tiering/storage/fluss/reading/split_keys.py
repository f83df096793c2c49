"""The size of a KV snapshot and the keys at which it can be split, from the indexes of its table files alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles, reporting_storage_errors
from fluss_tiering.storage.fluss.reading.table_file_index import keys_within

_PIECE_BYTES: Final = 8 << 20
_MAX_PIECES: Final = 256
_STEPS_OF_PIECE: Final = 4
"""The number of parts that each piece is measured in."""
_AT_ONCE: Final = 4


def measure_files(files: RemoteFiles, paths: Sequence[str]) -> tuple[int, tuple[bytes, ...]]:
    """Return the size of table files, and the keys that split their rows into ranges of similar size, ascending.

    Args:
        files: The files of the cluster's remote folder.
        paths: The paths of the table files, whose key ranges may overlap.

    Raises:
        FileNotFoundError: A file is missing.
        FlussTieringError: STORAGE if a file cannot be read.
    """
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fluss-kv-snapshot") as threads:
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
