"""Files of a place that become fewer ones, and a round's deletes that are written anew for rewritten files."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from written_rounds import SCHEMA, Changes, WrittenRounds, path_of, positions_in, write

from fluss_tiering.lake.files import FileContent, LakeFile, LiveDataFile, RebasedPlace
from fluss_tiering.lake.iceberg.by_position.place_index import PlaceIndex
from fluss_tiering.lake.iceberg.maintenance import place_rewriter
from fluss_tiering.lake.iceberg.maintenance.file_rows import Lineage, read_rows
from fluss_tiering.lake.iceberg.maintenance.place_rewriter import NewFiles, PlaceRewriter, PlaceWork
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.lake.key_index import IndexStore, KeyIndex, Place, read_state, stored_states
from fluss_tiering.lake.object_store import ExpiredCredentialsError
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

FORMATS = pytest.mark.parametrize("version", [2, 3], ids=["position delete files", "deletion vectors"])
LOG = pa.schema(
    [
        pa.field("name", pa.string(), metadata={"PARQUET:field_id": "1"}),
        pa.field("__offset", pa.int64(), metadata={"PARQUET:field_id": "2"}),
    ]
)
Groups = Sequence[tuple[int, ...]]


def rows_after(table: WrittenRounds, rounds: int) -> None:
    """Write rounds, of which each has a data file and, but for the first one, deletes."""
    chance = random.Random(rounds)
    for number in range(rounds):
        keys = chance.sample(range(60), 20)
        table.round({key: None if number and chance.random() < 0.2 else f"round {number}, {key}" for key in keys})


def rewritten(table: WrittenRounds, groups: Groups, **changes: Any) -> list[LakeFile]:
    """Rewrite groups of the live files, commit, and return the new files."""
    live = list(table.live.values())
    work = PlaceWork(0, (), table.location(), tuple(live), tuple(groups))
    done = PlaceRewriter(replace(table.writer(), sorted_by=("id",)))(replace(work, **changes))
    assert done.unknown_layout is None
    for group in groups:
        for each in group:
            del table.live[live[each].location]
    return table.commit(done.files, {})


def rows_of(file: LakeFile) -> list[dict[str, Any]]:
    return list(pq.read_table(path_of(file.location)).to_pylist())


def on_disk(folder: Path) -> list[Path]:
    return sorted(folder.glob("data/*"))


def saved_index(table: WrittenRounds) -> tuple[int, KeyIndex]:
    """Return the newest state of the key index and its number."""
    store = IndexStore(f"file://{table.folder}/_key_index")
    place = Place(table.table_uuid, 0, ())
    newest = stored_states(store, place)[0].snapshot_id
    return newest, KeyIndex(store, place, read_state(store, place, newest) or ())


@FORMATS
def test_files_of_a_group_become_one_sorted_file(tmp_path: Path, version: int) -> None:
    table = WrittenRounds(tmp_path, version)
    rows_after(table, 5)
    expected = dict(table.rows)
    assert any(each.deletes for each in table.live.values())

    (file,) = rewritten(table, [(0, 1, 2, 3, 4)])

    assert (file.content, file.bucket, file.partition_values) == (FileContent.DATA, 0, ())
    assert file.metrics.record_count == len(expected)
    assert rows_of(file) == [{"id": key, "name": value} for key, value in sorted(expected.items())]
    assert table.read() == table.rows == expected


@FORMATS
def test_each_group_has_files_of_its_own_and_other_files_stay(tmp_path: Path, version: int) -> None:
    table = WrittenRounds(tmp_path, version)
    rows_after(table, 6)
    expected, before = dict(table.rows), list(table.live)

    files = rewritten(table, [(1, 3), (4, 0)])

    assert len(files) == len({each.location for each in files}) == 2
    assert list(table.live)[:2] == [before[2], before[5]]
    assert table.read() == expected
    assert [each.location.rpartition("/")[2].split("-", 5)[-1] for each in files] == [
        "0-000-00000.parquet",
        "0-001-00000.parquet",
    ]


@FORMATS
def test_the_next_round_knows_where_the_rows_are_without_reading_them(tmp_path: Path, version: int) -> None:
    table = WrittenRounds(tmp_path, version, target_file_bytes=1)
    rows_after(table, 5)
    base = table.number
    rewritten(table, [(0, 2), (3, 4)])

    saved, index = saved_index(table)
    assert saved == base
    assert index.unknown_files(list(table.live)) == []
    with table.data_files_away():
        table.round(dict.fromkeys(range(0, 60, 2)))
    assert table.read() == table.rows
    assert all(key % 2 for key in table.rows)


@FORMATS
def test_rows_that_are_all_deleted_leave_no_file(tmp_path: Path, version: int) -> None:
    table = WrittenRounds(tmp_path, version)
    table.round(dict.fromkeys(range(10), "first"))
    table.round(dict.fromkeys(range(10)))
    assert rewritten(table, [(0,)]) == []
    table.round({3: "again"})
    assert table.read() == table.rows == {3: "again"}


def test_the_attempt_of_the_task_is_in_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two attempts at a task may run at the same time."""
    table = WrittenRounds(tmp_path, 2)
    rows_after(table, 2)
    # There is one context in a process.
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    TaskContext()._taskAttemptId = 17
    location = table.location()
    (file,) = rewritten(table, [(0, 1)], location=location)
    assert file.location == f"{location}-17-000-00000.parquet"


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "log"])
def test_rows_keep_their_lineage(tmp_path: Path, *, keyed: bool) -> None:
    table = WrittenRounds(tmp_path, 3)
    table.round({1: "a", 2: "b", 3: "c"})
    table.round({2: None, 0: "d"})
    live = list(table.live.values())
    writer = replace(table.writer(), sorted_by=("id",)) if keyed else plain(SCHEMA)
    lineage = {live[0].location: Lineage(100, 1), live[1].location: Lineage(200, 2)}
    work = PlaceWork(0, (), table.location(), tuple(live), ((0, 1),), lineage)
    (file,) = PlaceRewriter(writer)(work).files
    # A row keeps the place that it had in its file.
    expected = [(0, "d", 200, 2), (1, "a", 100, 1), (3, "c", 102, 1)]
    found = [tuple(row.values()) for row in rows_of(file)]
    assert (found if keyed else sorted(found)) == expected
    written = pq.read_schema(path_of(file.location))
    assert [each.name for each in written][2:] == ["_row_id", "_last_updated_sequence_number"]
    ids = [each.metadata[b"PARQUET:field_id"] for each in written]
    assert ids == [b"1", b"2", b"2147483540", b"2147483539"]


def plain(schema: pa.Schema, **settings: Any) -> ParquetFileWriter:
    """Return the writer of a log table."""
    return ParquetFileWriter(schema, None, ("zstd", None), 1 << 20, {}, **settings)


def of_offsets(folder: Path, number: int, offsets: Sequence[int]) -> LiveDataFile:
    path = folder / f"{number}.parquet"
    pq.write_table(pa.table([[f"row {each}" for each in offsets], pa.array(offsets, pa.int64())], LOG), path)
    return LiveDataFile(f"file://{path}", ("mon", 3), len(offsets))


def test_rows_of_a_log_come_in_its_order(tmp_path: Path) -> None:
    live = [of_offsets(tmp_path, number, each) for number, each in enumerate([[7, 8], [0, 1, 2], [], [3, 4, 5, 6]])]
    work = PlaceWork(3, ("mon",), f"file://{tmp_path}/data/new", tuple(live), ((0, 1, 2, 3),))
    (file,) = PlaceRewriter(plain(LOG))(work).files
    assert [each["__offset"] for each in rows_of(file)] == list(range(9))
    assert rows_of(file)[4]["name"] == "row 4"
    assert (file.bucket, file.partition_values) == (3, ("mon",))


def test_files_without_offsets_stay_in_their_order(tmp_path: Path) -> None:
    live = []
    for number in (2, 1, 3):
        pq.write_table(pa.table([[number] * 2], pa.schema([SCHEMA.field("id")])), tmp_path / f"{number}.parquet")
        live.append(LiveDataFile(f"file://{tmp_path}/{number}.parquet", (0,), 2))
    work = PlaceWork(0, (), f"file://{tmp_path}/data/new", tuple(live), ((0, 1, 2),))
    (file,) = PlaceRewriter(plain(pa.schema([SCHEMA.field("id")])))(work).files
    assert [each["id"] for each in rows_of(file)] == [2, 2, 1, 1, 3, 3]


@pytest.fixture
def two_groups(tmp_path: Path) -> Iterator[tuple[WrittenRounds, PlaceWork]]:
    """Return a place with two groups, whose files are all there at the end, and no other ones."""
    table = WrittenRounds(tmp_path, 2)
    rows_after(table, 4)
    before = on_disk(tmp_path)
    work = PlaceWork(0, (), table.location(), tuple(table.live.values()), ((0, 1), (2, 3)))
    yield table, work
    assert on_disk(tmp_path) == before


def damage(file: LiveDataFile, content: bytes) -> bytes:
    path = Path(path_of(file.location))
    before = path.read_bytes()
    path.write_bytes(content)
    return before


def test_files_of_an_unknown_layout_change_nothing(two_groups: tuple[WrittenRounds, PlaceWork]) -> None:
    table, work = two_groups
    path = Path(path_of(work.live[3].location))
    rows = pq.read_table(path)
    pq.write_table(rows.replace_schema_metadata().cast(pa.schema([("id", pa.int64()), ("name", pa.string())])), path)
    done = PlaceRewriter(table.writer())(work)
    assert done == NewFiles((), f"the data file {work.live[3].location} has columns without ids")
    assert saved_index(table)[1].unknown_files([each.location for each in work.live]) == []


@pytest.mark.parametrize("number", range(4))
def test_a_damaged_file_leaves_nothing_behind(two_groups: tuple[WrittenRounds, PlaceWork], number: int) -> None:
    table, work = two_groups
    content = damage(work.live[number], b"PAR1 nonsense PAR1")
    with pytest.raises(FlussTieringError, match=f"data file damaged: {work.live[number].location}") as error:
        PlaceRewriter(table.writer())(work)
    assert error.value.code is ErrorCode.CORRUPT_DATA
    damage(work.live[number], content)
    assert table.read() == table.rows


@pytest.mark.parametrize("gone", ["the new file", "the folder of the lake"])
def test_the_first_error_is_told_if_new_files_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    table = WrittenRounds(tmp_path, 2)
    rows_after(table, 2)
    live = tuple(table.live.values())
    seen = tmp_path / "seen"
    seen.mkdir()
    before = on_disk(tmp_path)

    def fail(filesystem: Any, file: LiveDataFile, *arguments: Any) -> Iterator[Any]:
        if file == live[0]:
            return read_rows(filesystem, file, *arguments)
        if gone == "the new file":
            (new,) = set(on_disk(tmp_path)) - set(before)
            new.unlink()
        else:
            seen.rmdir()
        raise OSError("the disk is gone")

    monkeypatch.setattr(place_rewriter, "read_rows", fail)
    writer = replace(table.writer(), shared_folder=f"file://{seen}")
    with pytest.raises(OSError, match="the disk is gone"):
        PlaceRewriter(writer)(PlaceWork(0, (), table.location(), live, ((0,), (1,))))


def test_deletes_of_rows_that_do_not_exist_are_refused(two_groups: tuple[WrittenRounds, PlaceWork]) -> None:
    table, work = two_groups
    other = WrittenRounds(table.folder.parent / "other", 2)
    other.round(dict.fromkeys(range(90), "row"))
    (deletes,) = [each for each in other.round({88: None}) if each.content is FileContent.POSITION_DELETES]
    path = Path(path_of(deletes.location))
    columns = pq.read_table(path)
    paths = pa.array([work.live[2].location] * columns.num_rows)
    pq.write_table(columns.set_column(0, columns.schema.field(0), paths), path)
    wrong = replace(deletes, referenced=(work.live[2].location,))
    live = list(work.live)
    live[2] = replace(live[2], deletes=(*live[2].deletes, wrong))
    left = sum(each.rows - len({*positions(each)}) for each in live)
    with pytest.raises(FlussTieringError) as error:
        PlaceRewriter(table.writer())(replace(work, live=tuple(live), groups=((0, 1, 2, 3),)))
    assert error.value.code is ErrorCode.CORRUPT_DATA
    named = ", ".join(each.location for each in live[:3])
    assert error.value.message == (
        f"the data files {named} have {left + 1} rows that are not deleted, expected "
        f"{left}: a delete file names rows that do not exist; nothing was changed"
    )


def positions(file: LiveDataFile) -> list[int]:
    """Return the deleted positions of a data file, as PyArrow reads them."""
    tables = [pq.read_table(path_of(each.location)).to_pylist() for each in file.deletes]
    return [row["pos"] for rows in tables for row in rows if row["file_path"] == file.location]


def test_an_executor_that_does_not_see_the_lake_or_has_no_credentials_says_so(
    two_groups: tuple[WrittenRounds, PlaceWork],
) -> None:
    table, work = two_groups

    def rewrite(**settings: Any) -> None:
        PlaceRewriter(replace(table.writer(), **settings))(work)

    with pytest.raises(FlussTieringError, match="this executor does not see the lake table's folder"):
        rewrite(shared_folder=f"file://{table.folder}/nowhere")
    with pytest.raises(ExpiredCredentialsError, match="they expired at"):
        rewrite(io_properties={"s3.session-token-expires-at-ms": "1"})
    # Another error of the store stays as it is.
    plain_file = path_of(work.live[0].location)
    with pytest.raises(NotADirectoryError):
        PlaceRewriter(table.writer())(replace(work, location=f"file://{plain_file}/folder/new"))


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
        {file.location: None for file in data},
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
