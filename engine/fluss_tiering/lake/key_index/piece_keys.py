"""The keys of a piece of a round, which a later task looks up when all pieces of the place are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from fluss_tiering.formats.compiled import Int64s
from fluss_tiering.lake.key_index.hashes import Hashes
from fluss_tiering.lake.key_index.place import Place
from fluss_tiering.lake.key_index.run import NOTED_PREFIX, Run
from fluss_tiering.lake.key_index.sorted_streams import in_order
from fluss_tiering.lake.key_index.store import IndexStore
from fluss_tiering.lake.key_index.writing import DEFAULT_BUFFER_BYTES, RunWriter

_NO_FILE: Final = ""
"""Keys that are deleted have no data file. A run has a name for it all the same."""


@dataclass(frozen=True, slots=True, eq=False)
class PieceKeys:
    """Where the keys of one piece are. It can be pickled, and takes a few bytes for each 32,768 keys.

    Attributes:
        rows: The run with the rows that the piece has written; None if it has none.
        deleted: The run with the keys whose earlier rows the piece deletes; None if it has none.
    """

    rows: Run | None = None
    deleted: Run | None = None


class PieceKeysWriter:
    """Writes the keys of one piece, in memory of bounded size. It is a context manager.

    Args:
        store: Where the runs are written.
        place: The place of the piece.
    """

    def __init__(self, store: IndexStore, place: Place) -> None:
        self._rows = RunWriter(store, place, DEFAULT_BUFFER_BYTES // 2, prefix=NOTED_PREFIX)
        self._deleted = RunWriter(store, place, DEFAULT_BUFFER_BYTES // 2, prefix=NOTED_PREFIX)
        self._row_count = 0
        self._deleted_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.abort()

    def abort(self) -> None:
        """Let go of what is on the local disk."""
        for each in (self._rows, self._deleted):
            each.__exit__()

    def add(self, location: str, hashes: Hashes, positions: Int64s) -> None:
        """Add rows of a data file, all of them until the end: see `RunWriter.add`."""
        self._rows.add(location, hashes, positions)
        self._row_count += len(hashes)

    def delete(self, hashes: Hashes) -> None:
        """Add keys whose earlier rows are deleted."""
        self._deleted.add(_NO_FILE, hashes, np.zeros(len(hashes), np.int64))
        self._deleted_count += len(hashes)

    def close(self) -> PieceKeys:
        """Write the runs.

        Raises:
            FlussTieringError: STORAGE if the store or the local disk refuses.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        return PieceKeys(
            self._rows.close() if self._row_count else None, self._deleted.close() if self._deleted_count else None
        )


def deleted_keys(store: IndexStore, keys: PieceKeys) -> Iterator[Hashes]:
    """Yield the hashes of the keys whose earlier rows a piece deletes, sorted, in parts.

    Args:
        store: Where the runs are.
        keys: The keys of the piece.

    Raises:
        UnusableIndexError: if the run is missing or damaged.
    """
    if keys.deleted is not None:
        for part in in_order(store, [keys.deleted], [np.zeros(1, np.int64)], DEFAULT_BUFFER_BYTES):
            yield part.hashes
