"""The keys of a piece: its rows are found by its run, and the keys that it deletes come back in order."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from key_index_support import PLACE, assert_finds, hashes_of

from fluss_tiering.lake.key_index import Hashes, IndexStore, KeyIndex
from fluss_tiering.lake.key_index.writing import PieceKeys, PieceKeysWriter, deleted_keys

ROWS = {"a": [(7, 1), (3, 2), (5, 0)], "b": [(4, 4)]}
DELETED = [(9, 1), (2**64 - 1, 5), (0, 0), (9, 0)]


@pytest.fixture
def store(tmp_path: Path) -> IndexStore:
    return IndexStore(f"file://{tmp_path}/keys")


def deleted_of(store: IndexStore, keys: PieceKeys) -> list[tuple[int, int]]:
    parts = list(deleted_keys(store, keys))
    return [key for part in parts for key in zip(part.high.tolist(), part.low.tolist(), strict=True)]


@pytest.mark.parametrize("with_rows", [True, False])
@pytest.mark.parametrize("with_deletes", [True, False])
def test_a_piece_is_read_as_it_was_written(store: IndexStore, with_rows: bool, with_deletes: bool) -> None:
    with PieceKeysWriter(store, PLACE) as writer:
        if with_rows:
            for location, rows in ROWS.items():
                writer.add(location, hashes_of(rows), np.arange(len(rows)))
        if with_deletes:
            writer.delete(hashes_of(DELETED[:3]))
            writer.delete(hashes_of(DELETED[3:]))
        # The driver sends it to the task that looks the keys up.
        keys: PieceKeys = pickle.loads(pickle.dumps(writer.close()))

    assert (keys.rows is not None, keys.deleted is not None) == (with_rows, with_deletes)
    deleted = deleted_of(store, keys)
    assert sorted(deleted) == (sorted(DELETED) if with_deletes else [])
    assert [high for high, _ in deleted] == sorted(high for high, _ in deleted)
    if keys.rows is not None:
        assert keys.rows.place == PLACE
        every = [key for rows in ROWS.values() for key in rows]
        assert_finds(KeyIndex(store, PLACE, [keys.rows]), ROWS, set(ROWS), [*every, (1, 1)])
    if keys.deleted is not None:
        assert keys.deleted.place == PLACE
        assert keys.deleted.name.startswith(PLACE.folder)


def test_no_hashes_are_of_the_type_of_all_others() -> None:
    joined = Hashes.concat([Hashes.empty(), hashes_of([(2**64 - 1, 2**64 - 3)])])
    assert (joined.high.tolist(), joined.low.tolist()) == ([2**64 - 1], [2**64 - 3])
    assert {Hashes.empty().high.dtype, Hashes.empty().low.dtype} == {np.dtype(np.uint64)}
