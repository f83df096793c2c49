"""Pieces that delete by position: the rows that remain are those of a plain model."""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from written_rounds import Changes, WrittenRounds, write

from fluss_tiering.lake.files import FileContent, LakeFile, NotedPlace
from fluss_tiering.lake.iceberg import parquet
from fluss_tiering.lake.iceberg.by_position import look_at_folder
from fluss_tiering.lake.iceberg.by_position.found_rows import FoundRows
from fluss_tiering.lake.iceberg.deletes import DeletePlace
from fluss_tiering.lake.key_index import Matches

FORMATS = pytest.mark.parametrize("version", [2, 3], ids=["position delete files", "deletion vectors"])


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let row groups have three rows."""
    monkeypatch.setattr(parquet, "_MAX_BUFFERED_ROWS", 3)


def some(chance: random.Random, name: str, count: int = 20) -> Changes:
    keys = chance.sample(range(60), count)
    return {key: None if chance.random() < 0.2 else f"{name} {key}" for key in keys}


def deletes_of(files: list[LakeFile]) -> list[LakeFile]:
    return [file for file in files if file.content is not FileContent.DATA]


@FORMATS
@pytest.mark.parametrize("target", [1, 1 << 20], ids=["many files", "one file"])
@pytest.mark.usefixtures("small_groups")
def test_rows_in_any_row_group_are_found(tmp_path: Path, version: int, target: int) -> None:
    table = WrittenRounds(tmp_path, version, target)
    chance = random.Random(target)
    for number in range(6):
        table.round(some(chance, f"round {number}"))
        assert table.read() == table.rows


@FORMATS
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("small_groups")
@pytest.mark.slow
def test_pieces_that_are_written_at_the_same_time_delete_rows_of_each_other(
    tmp_path: Path, version: int, seed: int
) -> None:
    table = WrittenRounds(tmp_path, version, random.Random(seed).choice((1, 1 << 20)))
    chance = random.Random(seed)
    for number in range(4):
        if chance.random() < 0.3:
            table.round(some(chance, f"alone {number}"))
        pieces = [[some(chance, f"round {number}, piece {piece}")] for piece in range(chance.choice((2, 3, 7)))]
        table.round_of_pieces(*pieces)
        assert table.read() == table.rows


@FORMATS
def test_pieces_of_one_ordinal_do_not_delete_rows_of_each_other(tmp_path: Path, version: int) -> None:
    """As the parts of a KV snapshot, which have no key in common."""
    table = WrittenRounds(tmp_path, version)
    table.round({1: "old", 2: "old"})
    table.round_of_pieces([{1: "one", 3: "one"}, {2: "two", 4: "two"}], [{3: None, 4: "after"}])
    assert table.read() == table.rows == {1: "one", 2: "two", 4: "after"}


@FORMATS
def test_rows_that_are_deleted_already_are_not_deleted_again(tmp_path: Path, version: int) -> None:
    table = WrittenRounds(tmp_path, version)
    table.round(dict.fromkeys(range(10), "first"))
    assert len(deletes_of(table.round({3: None}))) == 1
    assert table.round({3: None}) == []
    assert table.round_of_pieces([{3: None}], [{3: None}]) == []
    # A key that comes back is deleted where it is now, and not where it was.
    table.round({3: "back"})
    (file,) = deletes_of(table.round({3: None}))
    assert file.metrics.record_count == 1
    assert table.read() == table.rows


@FORMATS
def test_deletes_of_a_data_file_take_the_place_of_those_before(tmp_path: Path, version: int) -> None:
    table = WrittenRounds(tmp_path, version)
    table.round(dict.fromkeys(range(10), "first"))
    for key in range(4):
        (file,) = deletes_of(table.round({key: None}))
        assert file.metrics.record_count == key + 1
    (data,) = table.live.values()
    assert len(data.deletes) == 1
    assert table.read() == table.rows


@FORMATS
def test_the_index_knows_rows_of_pieces_without_their_files(tmp_path: Path, version: int) -> None:
    table = WrittenRounds(tmp_path, version)
    table.round_of_pieces([dict.fromkeys(range(10), "first")], [{1: "second", 20: "second"}])
    for location in table.live:
        Path(location.removeprefix("file://")).rename(location.removeprefix("file://") + ".away")
    assert len(deletes_of(table.round({5: None, 20: None}))) == 2
    for location in table.live:
        Path(location.removeprefix("file://") + ".away").rename(location.removeprefix("file://"))
    assert table.read() == table.rows


@FORMATS
def test_a_piece_that_is_given_up_leaves_no_files(tmp_path: Path, version: int) -> None:
    table = WrittenRounds(tmp_path, version)
    table.round({1: "first"})
    before = sorted(tmp_path.glob("data/*"))
    for piece in (
        table.writer().open_piece(0, table.location(), 0, (), list(table.live.values())),
        table.writer().open_noting_piece(0, table.location(), 0),
    ):
        write(piece, {1: "again", 2: "again"})
        piece.abort()
        assert sorted(tmp_path.glob("data/*")) == before


def test_keys_are_only_there_when_the_piece_is_closed(tmp_path: Path) -> None:
    piece = WrittenRounds(tmp_path, 2).writer().open_noting_piece(0, "file:///dev/null/x", 0)
    with pytest.raises(RuntimeError, match="not closed"):
        piece.keys()
    piece.abort()


def test_a_plain_file_where_the_index_should_be_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "_key_index"
    look_at_folder(f"file://{folder}")
    folder.mkdir()
    look_at_folder(f"file://{folder}")
    assert caplog.messages == []

    folder.rmdir()
    folder.touch()
    for _ in range(2):
        look_at_folder(f"file:{folder}")
    assert [
        each.startswith(f"{folder} is no folder, so that the key index is not kept") for each in caplog.messages
    ] == [True]


def test_what_pieces_have_noted_outlives_a_compaction_beside_a_round_of_hours(tmp_path: Path) -> None:
    table = WrittenRounds(tmp_path, 2)
    for number in range(9):
        table.round({number: "first"})
    pieces: list[Changes] = [{0: "changed", 4: None, 20: "new"}, {20: "newer", 8: None}]
    files: list[LakeFile] = []
    noted = []
    for changes in pieces:
        piece = table.writer().open_noting_piece(0, table.location(), 0)
        write(piece, changes)
        files += piece.close()
        noted.append((piece.keys(),))
    hours_ago = time.time() - 5 * 3600
    of_index = [path for path in (tmp_path / "_key_index").rglob("*") if path.is_file()]
    for path in of_index:
        os.utime(path, (hours_ago, hours_ago))

    live = list(table.live.values())
    with table.writer().index_of(DeletePlace(table.writer(), 0, table.location(), 0), live) as index:
        index.save(1000)

    # Other files of that age are gone.
    assert not all(path.exists() for path in of_index)
    files += table.writer().write_deletes(NotedPlace(0, table.location(), (), tuple(live), tuple(noted)), 0)
    table.commit(files, {key: value for changes in pieces for key, value in changes.items()})
    assert table.read() == table.rows


@FORMATS
def test_many_deletes_are_written_in_the_memory_of_bitmaps(tmp_path: Path, version: int) -> None:
    table = WrittenRounds(tmp_path, version)
    (tmp_path / "data").mkdir()
    paths = tuple(sorted(table.location() for _ in range(16)))
    found = FoundRows(version, DeletePlace(table.writer(), 0, table.location(), 0), [])
    rows = np.arange(100_000)
    for number in range(len(paths)):
        found.add(Matches(rows, np.full(len(rows), number), 2 * rows, paths))
    tracemalloc.start()
    try:
        files = found.write()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(file.metrics.record_count for file in files) == 1_600_000
    # As numbers of eight bytes, the positions alone would take 12.8 MB.
    assert peak < 8 << 20
