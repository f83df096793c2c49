"""What a store reads, and by how many requests."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fluss_tiering.lake.key_index import IndexStore, UnusableIndexError

MIB = 1 << 20
SIZE = 12 * MIB
CONTENT = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    (path / "file").write_bytes(CONTENT.tobytes())
    return path


def store_in(folder: Path, *, remote: bool = False) -> IndexStore:
    store = IndexStore(str(folder))
    # A folder that is read as an object store is.
    store.is_local = not remote
    return store


@pytest.mark.parametrize(
    ("remote", "starts", "length", "requests", "size"),
    [
        (False, [0], 100, 1, 100),
        (False, [SIZE - 100], 100, 1, 100),
        (False, [0, 100, 200], 100, 1, 300),
        # Small gaps are read as well, and larger ones are not.
        (False, [7, 7 + 100 + 1024], 100, 1, 1224),
        (False, [7, 7 + 100 + 1025], 100, 2, 200),
        (True, [7, 7 + 100 + 1025], 100, 1, 1225),
        (True, [0, 100 + 256 * 1024], 100, 1, 200 + 256 * 1024),
        (True, [0, 101 + 256 * 1024], 100, 2, 200),
        # Of gaps, a MiB is read: five of 200,000 bytes, or first of all those that are smaller.
        (True, [n * 200_100 for n in range(8)], 100, 3, 800 + 5 * 200_000),
        (True, [0, 200_100, 400_200, 600_300, 800_400, 1_000_500, 1_040_600, 1_080_700], 100, 2, 880_800),
        # As much as was asked for may be read besides.
        (True, [n * 450_000 for n in range(10)], 200_000, 2, 4_000_000),
        # Nothing that is asked for at once is longer than 4 MiB.
        (False, [n * 65_536 for n in range(192)], 65_536, 3, 12 * MIB),
    ],
)
def test_ranges_that_are_close_are_read_together(
    folder: Path, remote: bool, starts: list[int], length: int, requests: int, size: int
):
    store = store_in(folder, remote=remote)
    content = store.read("file", np.array(starts), length)
    assert np.array_equal(content, np.concatenate([CONTENT[start : start + length] for start in starts]))
    assert store.counts.requests == requests
    assert store.counts.bytes == size
    assert store.counts.bytes <= len(starts) * length + max(MIB, len(starts) * length)


@pytest.mark.parametrize("remote", [False, True])
def test_many_ranges_are_read_in_threads(folder: Path, remote: bool):
    store = store_in(folder, remote=remote)
    starts = np.arange(3000) * 4000 + np.random.default_rng(2).integers(0, 3900, 3000)
    for times in (1, 2):
        content = store.read("file", starts, 100)
        assert np.array_equal(content.reshape(3000, 100), CONTENT[starts[:, None] + np.arange(100)])
        assert store.counts.bytes % times == 0
    assert 2 * 300_000 <= store.counts.bytes <= 2 * (300_000 + MIB)
    assert store.map(lambda number: number + 1, range(100)) == list(range(1, 101))


@pytest.mark.parametrize("remote", [False, True])
def test_a_file_that_is_too_short(folder: Path, remote: bool):
    store = store_in(folder, remote=remote)
    said = re.escape(f"{folder}/file ends before byte {SIZE + 1}")
    with pytest.raises(UnusableIndexError, match=said):
        store.read("file", np.array([0, MIB, 2 * MIB, SIZE - 99]), 100)
    with pytest.raises(UnusableIndexError, match=re.escape(f"{folder}/other is missing")):
        store.read("other", np.array([0]), 100)
    assert store.read_file("other") is None


def test_whole_files(folder: Path):
    store = store_in(folder)
    assert store.read_file("file") == CONTENT.tobytes()
    assert (store.counts.requests, store.counts.bytes) == (1, SIZE)
    assert not len(store.read("file", np.empty(0, np.int64), 100))
    (found,) = store.files(".")
    assert (found.name, found.size) == ("./file", SIZE)
    assert store.files("none") == []
    # Somebody else deletes, too.
    store.delete("none")


def test_a_file_that_is_not_finished_is_deleted(tmp_path: Path):
    store = store_in(tmp_path)

    def write() -> None:
        with store.writing("new") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert not list(tmp_path.iterdir())
