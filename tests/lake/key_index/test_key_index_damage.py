"""Indexes whose files are damaged, missing or of something else. None of them is believed."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from key_index_support import PLACE, TABLE, assert_finds, entries_of

from fluss_tiering.lake.key_index import (
    IndexStore,
    KeyIndex,
    Place,
    Run,
    UnusableIndexError,
    merge_runs,
    read_state,
    write_run,
    write_state,
)
from fluss_tiering.lake.key_index.run import digest_of
from fluss_tiering.model.errors import ErrorCode

SNAPSHOT = 7_001
FILES = {
    "s3://lake/a.parquet": [(n << 57, n) for n in range(70)],
    "s3://lake/b.parquet": [(n << 57, n + 1) for n in range(50)],
}
KEYS = sorted({key for keys in FILES.values() for key in keys})


@pytest.fixture
def store(tmp_path: Path) -> IndexStore:
    return IndexStore(str(tmp_path / "index"))


def written(store: IndexStore, place: Place = PLACE, files: dict[str, list[tuple[int, int]]] = FILES) -> Run:
    run = write_run(store, place, entries_of(files))
    write_state(store, place, SNAPSHOT, [run])
    return run


def path_of(store: IndexStore, run: Run) -> Path:
    return Path(store.location) / run.name


def state_of(store: IndexStore, place: Place = PLACE) -> Path:
    return Path(store.location) / place.folder / f"state-{SNAPSHOT}"


def use(store: IndexStore) -> None:
    """Read everything of the index."""
    runs = read_state(store, PLACE, SNAPSHOT)
    assert runs is not None
    assert_finds(KeyIndex(store, PLACE, runs), FILES, set(FILES), KEYS)


def assert_unusable(store: IndexStore, said: str) -> None:
    with pytest.raises(UnusableIndexError, match=said) as found:
        use(store)
    assert found.value.code is ErrorCode.CORRUPT_DATA
    assert found.value.message.startswith(f"{store.location}/")
    assert "the key index is rebuilt from the data files" in found.value.message


def test_a_sound_index_is_used(store: IndexStore):
    written(store)
    use(store)


@pytest.mark.parametrize("what", ["run", "state"])
def test_each_damaged_byte_is_noticed(store: IndexStore, what: str):
    run = written(store)
    path = path_of(store, run) if what == "run" else state_of(store)
    content = path.read_bytes()
    # A prime, so that the bytes are of all fields, and each bit is flipped of some.
    for number, position in enumerate([*range(0, len(content), 13), len(content) - 1]):
        damaged = bytearray(content)
        damaged[position] ^= 1 << number % 8
        path.write_bytes(damaged)
        with pytest.raises(UnusableIndexError):
            use(store)
    path.write_bytes(content)
    use(store)


@pytest.mark.parametrize("what", ["run", "state"])
def test_each_missing_end_is_noticed(store: IndexStore, what: str):
    run = written(store)
    path = path_of(store, run) if what == "run" else state_of(store)
    content = path.read_bytes()
    for size in [*range(0, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(UnusableIndexError):
            use(store)


def test_a_merge_believes_no_damaged_byte(store: IndexStore):
    run = written(store)
    path = path_of(store, run)
    content = path.read_bytes()
    for position in range(0, run.pages_start, 101):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(UnusableIndexError, match="wrong checksum at block"):
            merge_runs(store, PLACE, [run], set(FILES))
    # What was begun is gone.
    assert list(path.parent.glob("run-*")) == [path]


@pytest.mark.parametrize("parts", [(0, 1), (1, 2), (0, 2)])
def test_blocks_that_changed_places_are_noticed(store: IndexStore, parts: tuple[int, int]):
    run = written(store)
    path = path_of(store, run)
    content, size = path.read_bytes(), run.block_type.itemsize
    first, second = (slice(part * size, part * size + size) for part in parts)
    changed = bytearray(content)
    changed[first], changed[second] = content[second], content[first]
    path.write_bytes(changed)
    assert_unusable(store, "wrong checksum at block")


def test_a_run_in_the_place_of_another_is_noticed(store: IndexStore):
    run = written(store)
    other = write_run(store, PLACE, entries_of(FILES))
    shutil.copy(path_of(store, other), path_of(store, run))
    assert_unusable(store, "has a footer with a wrong digest|ends before byte")
    # Blocks of the other run under this run's footer.
    content = path_of(store, other).read_bytes()
    path_of(store, run).write_bytes(content[: run.footer_start] + run.footer())
    assert_unusable(store, "wrong checksum at")


def test_a_missing_run_is_noticed(store: IndexStore):
    run = written(store)
    runs = read_state(store, PLACE, SNAPSHOT)
    path_of(store, run).unlink()
    assert_unusable(store, rf"{run.name} is missing")
    assert runs is not None
    with pytest.raises(UnusableIndexError, match="is missing"):
        KeyIndex(store, PLACE, runs).find(entries_of(FILES).hashes, set(FILES))


@pytest.mark.parametrize(
    "other", [Place("00000000-0000-0000-0000-000000000001", 3), Place(TABLE, 4), Place(TABLE, 3, ("2026",))]
)
def test_the_index_of_another_table_bucket_or_partition_is_not_used(store: IndexStore, other: Place):
    run = written(store, other)
    state_of(store).parent.mkdir(parents=True)
    shutil.copy(state_of(store, other), state_of(store))
    assert_unusable(store, "is the state of Place")
    # The right state of the wrong run.
    write_state(store, PLACE, SNAPSHOT, [run])
    assert_unusable(store, "is the run .* expected a run of Place")


def test_the_state_of_another_snapshot_is_not_used(store: IndexStore):
    run = written(store)
    write_state(store, PLACE, SNAPSHOT + 1, [run])
    path = state_of(store)
    path.with_name(f"state-{SNAPSHOT + 1}").replace(path)
    assert_unusable(store, f"at the snapshot {SNAPSHOT + 1}: expected that of .* at the snapshot {SNAPSHOT}")


def signed(lines: Sequence[str]) -> bytes:
    content = "".join(f"{line}\n" for line in lines).encode()
    return content + f"{digest_of(content).hex()}\n".encode()


def test_another_version_of_states_is_not_used(store: IndexStore):
    written(store)
    path = state_of(store)
    heading, described, _ = path.read_text().splitlines()
    path.write_bytes(signed([heading, described]))
    use(store)
    path.write_bytes(signed(["fluss-key-index-state 2", described]))
    assert_unusable(store, "begins with b'fluss-key-index-state 2': expected 'fluss-key-index-state 1'")


def test_another_version_of_runs_is_not_used(store: IndexStore):
    run = written(store)
    path = path_of(store, run)
    content = bytearray(path.read_bytes())
    # The version comes after the 11 bytes of the name of the format.
    content[run.footer_start + 11] = 2
    content[-16:] = digest_of(bytes(content[run.footer_start : -16]))
    path.write_bytes(content)
    heading, described, _ = state_of(store).read_text().splitlines()
    state = json.loads(described)
    state["runs"][0]["digest"] = content[-16:].hex()
    state_of(store).write_bytes(signed([heading, json.dumps(state)]))
    assert_unusable(store, "version 2: expected version 1")


def test_what_cannot_be_read_is_unusable(store: IndexStore):
    run = written(store)
    for path in (path_of(store, run), state_of(store)):
        content = path.read_bytes()
        path.unlink()
        path.mkdir()
        assert_unusable(store, rf"{path.name} cannot be read")
        path.rmdir()
        path.write_bytes(content)
    use(store)


def test_the_error_travels_between_processes():
    error = pickle.loads(pickle.dumps(UnusableIndexError("run-1 is missing")))
    assert type(error) is UnusableIndexError
    assert (error.code, error.message) == (ErrorCode.CORRUPT_DATA, "run-1 is missing")
