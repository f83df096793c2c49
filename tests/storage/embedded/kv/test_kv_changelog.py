"""The changelog of a bucket by key, and its RocksDB by itself."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from embedded_tables import (
    PATH,
    end_offsets,
    kv_keys,
    kv_rows,
    kv_table,
    opened,
    read_changes,
    read_snapshots,
    replayed,
    storage_with,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from fluss_tiering.formats.bucketing import assign_buckets
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import DataType, WriteKind
from fluss_tiering.storage.embedded.rocksdb import (
    KvState,
    RocksDbMemory,
    RocksDbStore,
    StoreChanges,
    reporting_rocksdb_errors,
)

UPSERT, DELETE = WriteKind.UPSERT, WriteKind.DELETE


def row(key: int, name: str | None = "a", amount: Any = None) -> dict[str, Any]:
    return {"id": key, "region": "eu", "name": name, "amount": amount}


def test_an_upsert_of_an_equal_row_is_an_update_as_in_fluss(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), kv_rows([row(1)])) as storage:
        storage.write(PATH, UPSERT, kv_rows([row(1)]))
        assert read_changes(storage) == [("+I", row(1)), ("-U", row(1)), ("+U", row(1))]


def test_several_changes_of_a_key_in_one_write_are_as_if_made_one_by_one(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), kv_rows([row(1, "a"), row(2, "x"), row(1, "b"), row(1, "c")])) as storage:
        storage.write(PATH, DELETE, kv_keys(1, 1))
        assert read_changes(storage) == [
            ("+I", row(1, "a")),
            ("+I", row(2, "x")),
            ("-U", row(1, "a")),
            ("+U", row(1, "b")),
            ("-U", row(1, "b")),
            ("+U", row(1, "c")),
            ("-D", row(1, "c")),
        ]


def test_a_delete_needs_the_key_columns_only_and_ignores_the_others(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), kv_rows([row(1), row(2), row(3)])) as storage:
        storage.write(PATH, DELETE, kv_keys(1))
        storage.write(PATH, DELETE, kv_keys(2).append_column("name", pa.array([17])))
        with refused(ErrorCode.INVALID_ROWS, "no column 'region'"):
            storage.write(PATH, DELETE, kv_keys(3).select(["id"]))
        with refused(ErrorCode.INVALID_ROWS, "no column 'colour'"):
            storage.write(PATH, DELETE, kv_keys(3).append_column("colour", pa.array(["red"])))
        assert [change for change, _ in read_changes(storage)] == ["+I", "+I", "+I", "-D", "-D"]


def test_a_null_in_the_key_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(3)) as storage:
        rows = kv_rows([row(1), row(2)])
        with_null = rows.set_column(1, "region", pa.array(["eu", None]))
        for kind, offered in ((UPSERT, with_null), (DELETE, with_null.select(["id", "region"]))):
            with refused(ErrorCode.INVALID_ROWS, "'region'", "null", "row 1"):
                storage.write(PATH, kind, offered)
        assert end_offsets(storage) == [0, 0, 0]


KEYS = st.tuples(st.integers(0, 5), st.sampled_from(["eu", "us"]))
ROWS = st.builds(
    lambda key, name, amount: {"id": key[0], "region": key[1], "name": name, "amount": amount},
    KEYS,
    st.none() | st.sampled_from(["", "ä", "x" * 200]),
    st.none() | st.decimals(-99_999_999, 99_999_999, places=2, allow_nan=False),
)
OPERATIONS = st.one_of(
    st.tuples(st.just("upsert"), st.lists(ROWS, max_size=8)),
    st.tuples(st.just("delete"), st.lists(KEYS, max_size=6)),
    st.tuples(st.just("snapshot"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)


class Model:
    """A model of the table: a dict whose rows are changed one at a time."""

    def __init__(self, num_buckets: int) -> None:
        self.num_buckets = num_buckets
        self.rows: dict[Any, Any] = {}
        self.changes: list[list[tuple[str, dict[str, Any]]]] = [[] for _ in range(num_buckets)]

    def bucket(self, key: tuple[int, str]) -> list[tuple[str, dict[str, Any]]]:
        hashed = assign_buckets(pa.array([key[0]], pa.int32()), DataType.parse("INT NOT NULL"), self.num_buckets)
        return self.changes[int(hashed[0])]

    def upsert(self, new: dict[str, Any]) -> None:
        key = (new["id"], new["region"])
        if key in self.rows:
            self.bucket(key).extend([("-U", self.rows[key]), ("+U", new)])
        else:
            self.bucket(key).append(("+I", new))
        self.rows[key] = new

    def delete(self, key: tuple[int, str]) -> None:
        if key in self.rows:
            self.bucket(key).append(("-D", self.rows.pop(key)))


@settings(max_examples=20, deadline=None)
@given(st.lists(OPERATIONS, min_size=1, max_size=12))
@pytest.mark.slow
def test_any_changes_give_the_changelog_and_the_rows_of_a_dict(operations: list[tuple[str, Any]]) -> None:
    model = Model(num_buckets=2)
    with TemporaryDirectory() as folder:
        with opened(Path(folder)) as storage:
            storage.create_table(PATH, kv_table(2))
        pending = iter([*operations, ("snapshot", None)])
        running = True
        while running:
            running = False
            with opened(Path(folder)) as storage:
                for operation, argument in pending:
                    if operation == "upsert":
                        for new in argument:
                            model.upsert(new)
                        storage.write(PATH, UPSERT, kv_rows(argument))
                    elif operation == "delete":
                        for key in argument:
                            model.delete(key)
                        keys = {"id": [key[0] for key in argument], "region": [key[1] for key in argument]}
                        schema = pa.schema({"id": pa.int32(), "region": pa.string()})
                        storage.write(PATH, DELETE, pa.table(keys, schema=schema))
                    elif operation == "snapshot":
                        taken = storage.take_kv_snapshots(PATH)
                        assert sum(snapshot.row_count for snapshot in taken) == len(model.rows)
                        assert read_snapshots(storage) == model.rows
                    else:
                        running = True
                        break
                for bucket in range(2):
                    assert read_changes(storage, bucket) == model.changes[bucket]
        with opened(Path(folder)) as storage:
            merged: dict[Any, Any] = {}
            for bucket in range(2):
                merged |= replayed(read_changes(storage, bucket))
            assert merged == model.rows


@pytest.mark.slow
def test_a_store_that_cannot_be_flushed_is_closed_all_the_same(tmp_path: Path) -> None:
    """As when a folder may not be written for a while: what stays open could not be opened until the server ends."""
    folder = tmp_path / "db"
    memory = RocksDbMemory()
    store = RocksDbStore(folder, memory)
    store.apply(StoreChanges([b"key"], [b"value"], []), KvState(1, 1))
    # A folder in the place of the next file stops root, too, whom permissions do not stop.
    in_the_way = [folder / f"{number:06}.sst" for number in range(50)]
    for each in in_the_way:
        each.mkdir()
    with refused(ErrorCode.STORAGE, str(folder), "Is a directory"):
        store.close()
    for each in in_the_way:
        each.rmdir()
    again = RocksDbStore(folder, memory)
    assert again.state == KvState(), "the bucket's log has the change"
    again.close()


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("Permission denied", "check the permissions of the folder and of its files, and who runs the server"),
        ("Operation not permitted", "check the permissions of the folder and of its files, and who runs the server"),
        ("No space left on device", "check the disk's free space and health"),
        ("Input/output error", "check the disk's free space and health"),
    ],
)
def test_what_the_system_refuses_is_told_with_what_to_do(tmp_path: Path, reason: str, remedy: str) -> None:
    """RocksDB gives the reason of the system as a text."""
    with refused(ErrorCode.STORAGE, str(tmp_path), reason, remedy), reporting_rocksdb_errors(tmp_path):
        raise Exception(f"IO error: While open a file for appending: {tmp_path}/000008.sst: {reason}")  # noqa: TRY002
