"""Deletes of a round that are written anew, since somebody has rewritten data files after the round's base."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written_rounds import SCHEMA, Changes, WrittenRounds, path_of, positions_in, write

from fluss_tiering.lake.iceberg.by_position.place_index import PlaceIndex
from fluss_tiering.lake.protocol import FileContent, LakeFile, LiveDataFile, RebasedPlace

FORMATS = pytest.mark.parametrize("version", [2, 3])


def rewrite(table: WrittenRounds, locations: list[str]) -> None:
    """Write the rows of data files that are not deleted into one new data file, as a compaction does."""
    rows: list[dict[str, object]] = []
    for location in locations:
        data = table.live.pop(location)
        deleted = {position for file in data.deletes for position in positions_in(file, location)}
        found = pq.read_table(path_of(location)).to_pylist()
        rows += [row for position, row in enumerate(found) if position not in deleted]
    location = f"{table.location()}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path_of(location))
    table.live[location] = LiveDataFile(location, (0,), len(rows))


def rebased(table: WrittenRounds, files: list[LakeFile], before: list[LiveDataFile]) -> list[LakeFile]:
    """Write the deletes of a round anew, and return all files of the round."""
    data = [file for file in files if file.content is FileContent.DATA]
    deletes = tuple(file for file in files if file.content is not FileContent.DATA)
    place = RebasedPlace(
        0,
        table.location(),
        (),
        tuple(table.live.values()),
        deletes,
        tuple(file for file in before if any(file.location in each.referenced for each in deletes)),
        tuple(file.location for file in data),
    )
    return [*data, *replace(table.writer(), base=table.number + 1000).rebase_deletes(place, 1)]


@FORMATS
@pytest.mark.parametrize("seed", range(6))
def test_the_same_rows_are_deleted_wherever_a_rewrite_has_put_them(tmp_path: Path, version: int, seed: int) -> None:
    # E3
    chance = random.Random(seed)
    table = WrittenRounds(tmp_path, version)

    def changes(name: str) -> Changes:
        keys = chance.sample(range(40), chance.randint(1, 12))
        return {key: None if chance.random() < 0.3 else f"{name} {key}" for key in keys}

    for number in range(8):
        table.round(changes(f"round {number}"))
    for number in range(4):
        before = list(table.live.values())
        new = changes(f"rewritten {number}")
        piece = table.writer().open_piece(0, table.location(), 0, (), before)
        write(piece, new)
        files = list(piece.close())
        for _ in range(chance.randint(1, 3)):
            rewrite(table, chance.sample(sorted(table.live), chance.randint(1, len(table.live))))
            files = rebased(table, files, before)
            before = list(table.live.values())
        table.commit(files, new)
        assert table.read() == table.rows, number


@FORMATS
def test_pieces_that_delete_rows_of_each_other_still_do(tmp_path: Path, version: int) -> None:  # E3
    table = WrittenRounds(tmp_path, version)
    for number in range(3):
        table.round(dict.fromkeys(range(9), f"first {number}"))
    before = list(table.live.values())

    def commit_after_rewrite(files: list[LakeFile], changed: Changes) -> list[LakeFile]:
        rewrite(table, sorted(table.live))
        files = rebased(table, files, before)
        return WrittenRounds.commit(table, files, changed)

    table.commit = commit_after_rewrite  # type: ignore[assignment,method-assign]
    table.round_of_pieces([{1: "one", 2: None}], [{1: "two", 3: "three", 30: "new"}], [{30: None, 1: "newest"}])
    assert table.read() == table.rows


def test_the_next_round_reads_no_data_file_for_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = WrittenRounds(tmp_path, 3)
    table.round(dict.fromkeys(range(9), "first"))
    before = list(table.live.values())
    piece = table.writer().open_piece(0, table.location(), 0, (), before)
    write(piece, {1: "second"})
    files = list(piece.close())
    rewrite(table, sorted(table.live))
    table.commit(rebased(table, files, before), {1: "second"})

    read: list[object] = []
    monkeypatch.setattr(PlaceIndex, "_run_of", lambda *arguments: read.append(arguments))
    table.number += 2000
    table.round({1: "third", 2: "second"})
    assert table.read() == table.rows
    assert read == []
