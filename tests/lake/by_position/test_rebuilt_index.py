"""Rounds that delete by position beside a key index that is missing, damaged, or cannot be kept.

What the index does not know is read from the data files, so that the rows are those of a plain model in any case.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written_rounds import SCHEMA, WrittenRounds, path_of, write

from fluss_tiering.lake.files import FileContent, LiveDataFile
from fluss_tiering.lake.iceberg import parquet
from fluss_tiering.lake.iceberg.by_position import data_file_keys
from fluss_tiering.lake.key_index import hash_keys
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let row groups, and the batches in which keys are read, have a few rows."""
    monkeypatch.setattr(parquet, "_MAX_BUFFERED_ROWS", 3)
    monkeypatch.setattr(data_file_keys, "_BATCH_ROWS", 2)


@pytest.fixture(params=[2, 3], ids=["position delete files", "deletion vectors"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> WrittenRounds:
    """Return a table with two data files of twenty rows."""
    table = WrittenRounds(tmp_path, request.param)
    table.round({key: f"first {key}" for key in range(20)})
    table.round({key: f"second {key}" for key in range(20, 40)})
    return table


def index_of(table: WrittenRounds) -> Path:
    return table.folder / "_key_index"


def files_of(table: WrittenRounds) -> set[Path]:
    return {path for path in index_of(table).rglob("*") if path.is_file()}


def change(table: WrittenRounds, *, in_pieces: bool = False) -> None:
    """Change rows at the beginning, in the middle and at the end of each data file, and delete some others."""
    changed = {key: f"changed {key}" for key in (0, 7, 19, 20, 33, 39, 50)} | dict.fromkeys((1, 18, 21, 38, 60))
    if in_pieces:
        table.round_of_pieces([changed], [{7: "again", 50: None}])
    else:
        table.round(changed)
    assert table.read() == table.rows


@pytest.mark.parametrize("in_pieces", [False, True])
def test_an_index_that_is_gone_is_made_again(table: WrittenRounds, in_pieces: bool) -> None:
    shutil.rmtree(index_of(table))
    change(table, in_pieces=in_pieces)
    # The index is kept: no data file is read by the next round.
    with table.data_files_away():
        table.round({5: None, 25: "later", 50: None})
    assert table.read() == table.rows


def test_only_the_data_files_that_the_index_does_not_know_are_read(table: WrittenRounds) -> None:
    known, unknown = table.live
    shutil.rmtree(index_of(table))
    table.live.pop(unknown)
    table.round({3: None})
    table.live[unknown] = LiveDataFile(unknown, (0,), 20)
    Path(path_of(known)).rename(f"{path_of(known)}.away")
    table.round({4: None, 24: None})
    Path(f"{path_of(known)}.away").rename(path_of(known))
    assert table.read() == table.rows


@pytest.mark.parametrize("damage", ["no bytes", "other bytes", "cut off"])
@pytest.mark.parametrize("which", ["state", "run"])
def test_a_damaged_index_is_made_again(
    table: WrittenRounds, caplog: pytest.LogCaptureFixture, which: str, damage: str
) -> None:
    for path in files_of(table):
        if path.name.startswith("state-") == (which == "state"):
            content = path.read_bytes()
            damaged = {"no bytes": b"", "other bytes": bytes(len(content)), "cut off": content[: len(content) // 2]}
            path.write_bytes(damaged[damage])
    change(table)
    assert any("cannot be used: " in each for each in caplog.messages)


@pytest.mark.parametrize("in_pieces", [False, True])
def test_an_index_whose_damage_shows_only_when_keys_are_looked_up_is_made_again(
    table: WrittenRounds, caplog: pytest.LogCaptureFixture, in_pieces: bool
) -> None:
    for path in files_of(table):
        if path.name.startswith("run-"):
            content = path.read_bytes()
            path.write_bytes(bytes(len(content) // 4) + content[len(content) // 4 :])
    change(table, in_pieces=in_pieces)
    assert any("is made again from the data files: " in each for each in caplog.messages)


def low_keys(table: WrittenRounds, first: int) -> list[int]:
    """Return keys from this one on whose hashes are in the lowest quarter of all hashes."""
    keys = np.arange(first, first + 800)
    hashes = hash_keys([pa.array(keys, pa.int64())], table.table_uuid)
    return [int(key) for key in keys[hashes.high < np.uint64(1 << 62)]][:96]


@pytest.mark.parametrize("in_pieces", [False, True])
def test_an_index_whose_damage_shows_only_in_a_merge_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, in_pieces: bool
) -> None:
    table = WrittenRounds(tmp_path, 2)
    for number in range(4):
        table.round(dict.fromkeys(range(number * 96, number * 96 + 96), "first"))
    damaged = max(files_of(table), key=lambda path: (path.name.startswith("run-"), path.stat().st_mtime_ns))
    content = bytearray(damaged.read_bytes())
    # This is in the last of three blocks. The rounds below look up no hash in it.
    content[2000] ^= 1
    damaged.write_bytes(content)

    def change(first: int) -> None:
        caplog.clear()
        changed = dict.fromkeys(low_keys(table, first), "later")
        if in_pieces:
            table.round_of_pieces([changed], [dict.fromkeys(changed, "last")])
        else:
            table.round(changed)

    # The fifth run is merged with the others. Nothing is left of the damage then, and the rest of the index is kept.
    change(1000)
    assert any("is made again from the data files: " in each for each in caplog.messages)
    assert not any("is not kept: " in each for each in caplog.messages)
    for first in (2000, 3000, 1000):
        change(first)
        assert caplog.messages == []
    assert table.read() == table.rows


def test_an_index_that_cannot_be_kept_is_made_for_each_round(
    table: WrittenRounds, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(index_of(table))
    index_of(table).write_text("a plain file")
    change(table)
    assert any("is kept on the local disk: " in each for each in caplog.messages)
    assert any("is not kept: " in each for each in caplog.messages)
    # The index is asked more than once in a round with pieces.
    with pytest.raises(FlussTieringError) as refused:
        change(table, in_pieces=True)
    assert refused.value.code is ErrorCode.STORAGE
    table.round({7: None, 50: "at last"})
    assert table.read() == table.rows
    assert index_of(table).read_text() == "a plain file"


def test_keys_are_found_by_the_ids_of_their_columns(tmp_path: Path) -> None:
    """Columns can be renamed and come in any order, and other writers keep the ids alone."""
    table = WrittenRounds(tmp_path, 2)
    table.round({0: "ours"})
    location = table.location()
    fields = [SCHEMA.field("name").with_name("id"), SCHEMA.field("id").with_name("renamed")]
    pq.write_table(pa.table([["theirs", "theirs"], [4, 5]], schema=pa.schema(fields)), path_of(location))
    table.live[location] = LiveDataFile(location, (0,), 2)
    (deletes,) = [file for file in table.round({5: None}) if file.content is not FileContent.DATA]
    assert pq.read_table(path_of(deletes.location)).to_pylist() == [{"file_path": location, "pos": 1}]


def lose(path: Path) -> str:
    path.unlink()
    return "data file missing: {location}: "


def spoil_footer(path: Path) -> str:
    path.write_bytes(b"PAR1" + bytes(60) + b"PAR1")
    return "data file damaged: {location}: "


def spoil_pages(path: Path) -> str:
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(20) + content[24:])
    return "data file damaged: {location}: "


def write_text(path: Path) -> str:
    path.write_text("no Parquet")
    return "data file damaged: {location}: "


def leave_out_key(path: Path) -> str:
    pq.write_table(pa.table({"name": ["a"]}, schema=pa.schema([SCHEMA.field("name")])), path)
    return "data file unusable: {location} lacks the key columns id"


@pytest.mark.parametrize("spoil", [lose, spoil_footer, spoil_pages, write_text, leave_out_key])
def test_a_data_file_whose_keys_cannot_be_read_fails_the_round(
    table: WrittenRounds, spoil: Callable[[Path], str]
) -> None:
    shutil.rmtree(index_of(table))
    location = next(iter(table.live))
    said = spoil(Path(path_of(location)))
    with pytest.raises(FlussTieringError) as refused:
        table.round({1: None})
    assert refused.value.code is ErrorCode.CORRUPT_DATA
    assert refused.value.message.startswith(said.format(location=location))
    assert refused.value.message.endswith("or from an older version if its store keeps versions")


def test_a_data_file_without_field_ids_names_what_writes_its_rows_anew(table: WrittenRounds) -> None:
    shutil.rmtree(index_of(table))
    location = next(iter(table.live))
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), path_of(location))
    with pytest.raises(FlussTieringError) as refused:
        table.round({1: None})
    assert refused.value.code is ErrorCode.CORRUPT_DATA
    assert refused.value.message.startswith(f"the data file {location} has columns without Iceberg's field ids")
    assert "`fluss-tiering compact TABLE --min-input-files 2`" in refused.value.message
    assert "backup" not in refused.value.message


def test_tables_in_one_folder_have_an_index_each(table: WrittenRounds, caplog: pytest.LogCaptureFixture) -> None:
    """A table that was renamed keeps its folder, which a new table with its old name then shares."""
    other = WrittenRounds(table.folder, table.version)
    other.round({key: f"other {key}" for key in range(20)})
    with table.data_files_away():
        table.round({3: None, 4: "changed"})
    other.round({3: None, 4: "changed"})
    assert (table.read(), other.read()) == (table.rows, other.rows)
    assert caplog.messages == []


def test_without_the_live_data_files_a_piece_deletes_by_key(tmp_path: Path) -> None:
    table = WrittenRounds(tmp_path, 2)
    location = table.location()
    piece = table.writer().open_piece(3, location, 7, ("mon",))
    write(piece, {1: "one", 2: None})
    data, deletes = piece.close()
    assert (data.content, deletes.content) == (FileContent.DATA, FileContent.EQUALITY_DELETES)
    assert (data.location, deletes.location) == (f"{location}-7-00000.parquet", f"{location}-7-deletes-00000.parquet")
    for file in (data, deletes):
        assert (file.bucket, file.partition_values) == (3, ("mon",))
    assert pq.read_table(path_of(data.location)).to_pylist() == [{"id": 1, "name": "one"}]
    assert pq.read_table(path_of(deletes.location)).to_pylist() == [{"id": 1}, {"id": 2}]
    assert not index_of(table).exists()


@pytest.mark.parametrize("is_noting", [False, True])
def test_rows_have_their_bucket_offset_and_time(tmp_path: Path, is_noting: bool) -> None:
    table = WrittenRounds(tmp_path, 2)
    names = {"__bucket": pa.int32(), "__offset": pa.int64(), "__timestamp": pa.timestamp("us", "UTC")}
    writer = replace(table.writer(), schema=pa.schema([*SCHEMA, *(pa.field(*each) for each in names.items())]))
    location = table.location()
    piece = writer.open_noting_piece(3, location, 0) if is_noting else writer.open_piece(3, location, 0, (), live=[])
    rows = pa.record_batch([pa.array([1, 2], pa.int64()), ["one", "two"]], SCHEMA)
    piece.write(rows, np.array([70, 71]), np.array([1000, 2000]))
    (file,) = piece.close()
    written = pq.read_table(path_of(file.location))
    assert written.column("__bucket").to_pylist() == [3, 3]
    assert written.column("__offset").to_pylist() == [70, 71]
    assert written.column("__timestamp").cast(pa.int64()).to_pylist() == [1_000_000, 2_000_000]
