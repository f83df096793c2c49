"""States of an index, and what is deleted of it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from key_index_support import PLACE, TABLE, assert_finds, entries_of, hashes_of, random_hashes

from fluss_tiering.lake.key_index import (
    IndexStore,
    KeyIndex,
    Place,
    RunWriter,
    read_state,
    remove_unreferenced,
    stored_states,
    write_run,
    write_state,
)
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> IndexStore:
    return IndexStore(f"file://{tmp_path}/a folder")


def folder_of(store: IndexStore, place: Place = PLACE) -> Path:
    return Path(store.location.removeprefix("file://")) / place.folder


def made(store: IndexStore, name: str, days_ago: float) -> None:
    moment = (NOW - timedelta(days=days_ago)).timestamp()
    os.utime(folder_of(store) / name, (moment, moment))


def run_of(store: IndexStore, days_ago: float = 0, place: Place = PLACE):
    run = write_run(store, place, entries_of({"a": [(1, 1), (2, 2)]}))
    if place == PLACE:
        made(store, run.name.rpartition("/")[2], days_ago)
    return run


def test_a_state_names_its_runs(store: IndexStore):
    assert read_state(store, PLACE, 5) is None
    assert [each.snapshot_id for each in stored_states(store, PLACE)] == []
    place = Place(TABLE, 3, ("ä/b", "2026"))
    runs = [run_of(store, place=place) for _ in range(3)]
    write_state(store, place, 5, runs)
    read = read_state(store, place, 5)
    assert read is not None
    assert [run.reference for run in read] == [run.reference for run in runs]
    assert [(run.entries, dict(run.files), run.largest_position) for run in read] == [(2, {"a": 2}, 1)] * 3
    assert_finds(KeyIndex(store, place, read), {"a": [(1, 1), (2, 2)]}, {"a"}, [(2, 2), (3, 3)])
    assert [each.snapshot_id for each in stored_states(store, place)] == [5]
    assert read_state(store, place, 6) is None
    assert read_state(store, PLACE, 5) is None


def test_a_state_is_replaced_in_one_step(store: IndexStore):
    first, second = run_of(store), run_of(store)
    write_state(store, PLACE, 5, [first])
    write_state(store, PLACE, 5, [second])
    assert [run.name for run in read_state(store, PLACE, 5) or ()] == [second.name]
    assert not list(folder_of(store).glob("*.tmp"))


def test_a_state_without_runs(store: IndexStore):
    write_state(store, PLACE, 5, [])
    assert read_state(store, PLACE, 5) == ()


def test_a_run_without_rows_can_be_opened(store: IndexStore):
    write_state(store, PLACE, 5, [write_run(store, PLACE, entries_of({"empty": []}))])
    (run,) = read_state(store, PLACE, 5) or ()
    assert (run.entries, run.files, len(run.tops)) == (0, {"empty": 0}, 0)


def test_the_newest_state_comes_first(store: IndexStore):
    for snapshot, days_ago in ((9, 2), (3, 0), (7, 1)):
        write_state(store, PLACE, snapshot, [])
        made(store, f"state-{snapshot}", days_ago)
    run_of(store)
    (folder_of(store) / "state-8.0123.tmp").touch()
    assert [each.snapshot_id for each in stored_states(store, PLACE)] == [3, 7, 9]


def test_what_no_state_names_is_deleted_when_it_is_old(store: IndexStore):
    shared, old, young, named = run_of(store, 9), run_of(store, 9), run_of(store, 1), run_of(store, 9)
    for snapshot, runs, days_ago in ((1, [shared, old], 9), (2, [shared], 9), (3, [named], 1)):
        write_state(store, PLACE, snapshot, runs)
        made(store, f"state-{snapshot}", days_ago)
    for name, days_ago in (("state-9.0123.tmp", 9), ("state-9.4567.tmp", 1)):
        (folder_of(store) / name).touch()
        made(store, name, days_ago)
    before = {path.name for path in folder_of(store).iterdir()}
    deleted = remove_unreferenced(store, PLACE, {2}, NOW - timedelta(days=3))
    # The state 3 is too young, and so its run is named. The young run may be in a state that is not written yet.
    expected = {"state-1", "state-9.0123.tmp", old.name.rpartition("/")[2]}
    assert deleted == sorted(f"{PLACE.folder}/{name}" for name in expected)
    assert {path.name for path in folder_of(store).iterdir()} == before - expected
    assert young.name.rpartition("/")[2] in before - expected
    assert remove_unreferenced(store, PLACE, {2}, NOW - timedelta(days=3)) == []


def test_what_pieces_have_noted_is_kept_for_a_day_longer(store: IndexStore):
    with RunWriter(store, PLACE, prefix="noted-") as writer:
        writer.add("a", hashes_of([(1, 1)]), np.arange(1))
        noted = writer.close()
    made(store, noted.name.rpartition("/")[2], 4)
    assert remove_unreferenced(store, PLACE, set(), NOW - timedelta(days=3.5)) == []
    assert remove_unreferenced(store, PLACE, set(), NOW - timedelta(days=2.5)) == [noted.name]


def test_no_run_is_deleted_while_a_state_cannot_be_read(store: IndexStore):
    run_of(store, 9)
    write_state(store, PLACE, 2, [])
    (folder_of(store) / "state-2").write_bytes(b"damaged")
    assert remove_unreferenced(store, PLACE, {2}, NOW) == []
    assert len(remove_unreferenced(store, PLACE, set(), datetime.now(UTC) + timedelta(days=1))) == 2


def test_nothing_is_deleted_of_other_places(store: IndexStore):
    other = Place(TABLE, 3, ("a",))
    run_of(store, place=other)
    assert remove_unreferenced(store, PLACE, set(), datetime.now(UTC) + timedelta(days=1)) == []
    assert len(list(folder_of(store, other).iterdir())) == 1


def test_a_store_that_refuses_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    store = IndexStore(str(tmp_path / "file"))
    entries = entries_of({"a": [(1, 1)]})
    for work in (lambda: write_state(store, PLACE, 1, []), lambda: write_run(store, PLACE, entries)):
        with pytest.raises(
            FlussTieringError, match=f"could not write, list or delete .*/file/{PLACE.folder}"
        ) as refused:
            work()
        assert refused.value.code is ErrorCode.STORAGE


def test_a_writer_leaves_nothing_on_the_local_disk(store: IndexStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(scratch))
    hashes = random_hashes(1000)
    positions = entries_of({"a": [(0, 0)] * 1000}).positions
    with RunWriter(store, PLACE, buffer_bytes=100 * 32) as writer:
        writer.add("a", hashes, positions)
        assert list(scratch.rglob("run-*"))
        run = writer.close()
    assert run.entries == 1000
    with RunWriter(store, PLACE, buffer_bytes=100 * 32) as abandoned:
        abandoned.add("a", hashes, positions)
    assert not list(scratch.iterdir())
    assert len(list(folder_of(store).iterdir())) == 1
