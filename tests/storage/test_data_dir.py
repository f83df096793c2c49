import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from embedded_tables import PATH, end_offsets, kv_table, log_rows, log_table, open_storage, opened, segments
from refusals import refused

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.storage.data_dir import read_data_dir_id


@pytest.mark.system
def test_a_second_server_on_a_data_folder_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        storage.create_table(PATH, log_table())
        program = (
            "import sys; from pathlib import Path; from fluss_tiering.model.clock import SystemClock\n"
            "from fluss_tiering.storage.embedded.storage import EmbeddedStorage\n"
            "from fluss_tiering.model.errors import FlussTieringError\n"
            "try: EmbeddedStorage.open(Path(sys.argv[1]), clock=SystemClock())\n"
            "except FlussTieringError as error: print(error.code, error.message)\n"
        )
        second = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert "DATA_DIR_IN_USE" in second.stdout
        assert str(tmp_path) in second.stdout
        assert f"process {os.getpid()}" in second.stdout
        assert "stop that server" in second.stdout
        storage.write(PATH, WriteKind.APPEND, log_rows(0, 3))
    with opened(tmp_path) as storage:
        assert end_offsets(storage) == [3]


def test_a_data_folder_keeps_its_id(tmp_path: Path) -> None:
    with opened(tmp_path / "new" / "folder") as storage:
        description = storage.describe()
    assert description.kind == "embedded"
    assert description.data_dir == str(tmp_path / "new" / "folder")
    assert read_data_dir_id(tmp_path / "new" / "folder") == description.data_dir_id
    with opened(tmp_path / "new" / "folder") as storage:
        assert storage.describe() == description
    assert read_data_dir_id(tmp_path) is None


def test_a_folder_with_other_things_in_it_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_text("not ours")
    with refused(ErrorCode.CORRUPT_DATA, str(tmp_path), "holiday.jpg", "an empty folder", "name another folder"):
        open_storage(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["holiday.jpg"]


def test_what_the_server_keeps_beside_the_tables_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "server.db").write_text("rounds")
    (tmp_path / "lake").mkdir()
    with opened(tmp_path) as storage:
        storage.create_table(TablePath("lake", "orders"), log_table())
    with opened(tmp_path) as storage:
        assert [str(table.path) for table in storage.tables()] == ["lake.orders"]
    assert (tmp_path / "server.db").read_text() == "rounds"
    assert list((tmp_path / "lake").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "is no JSON"),
        (b'{"format_version": 1, "data_dir', "is no JSON"),
        (b"[1]", "holds a JSON list"),
        (b'{"format_version": 1, "data_dir_id": "x"}', "lacks its entries"),
        (b'{"format_version": 9, "data_dir_id": "x", "next_table_id": 1}', "has the format version 9"),
    ],
)
def test_a_torn_or_foreign_identity_file_is_refused(tmp_path: Path, content: bytes, found: str) -> None:
    with opened(tmp_path):
        pass
    identity = tmp_path / "data-dir.json"
    identity.write_bytes(content)
    with refused(ErrorCode.CORRUPT_DATA, str(identity), found, "expected"):
        open_storage(tmp_path)
    assert identity.read_bytes() == content


def test_a_lost_identity_file_is_not_replaced_by_a_new_one(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        storage.create_table(PATH, log_table())
    (tmp_path / "data-dir.json").unlink()
    with refused(ErrorCode.CORRUPT_DATA, "data-dir.json", "restore"):
        open_storage(tmp_path)


def test_table_ids_are_never_given_out_again(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        first = storage.create_table(PATH, log_table())
        storage.drop_table(PATH)
        second = storage.create_table(PATH, kv_table())
        storage.drop_table(PATH)
    with opened(tmp_path) as storage:
        third = storage.create_table(PATH, log_table())
    assert first.table_id < second.table_id < third.table_id


def test_a_crash_while_a_table_is_made_or_dropped_leaves_no_trace(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        kept = storage.create_table(PATH, log_table())
        storage.write(PATH, WriteKind.APPEND, log_rows(0, 3))
    folder = tmp_path / "tables" / "shop"
    (folder / "half-9.tmp" / "log-0").mkdir(parents=True)
    (folder / "gone-8.deleted" / "log-0").mkdir(parents=True)
    with opened(tmp_path) as storage:
        assert storage.tables() == [kept]
        assert end_offsets(storage) == [3]
    assert [entry.name for entry in folder.iterdir()] == [f"orders-{kept.table_id}"]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("tables/notes.txt", "only folders of databases"),
        ("tables/shop/notes.txt", "only folders of tables"),
        ("tables/shop/TABLE/notes.txt", "only the files of a table"),
        ("tables/shop/TABLE/log-0/notes.txt", "only segments"),
        ("tables/shop/TABLE/kv-0/notes.txt", "only a RocksDB and its snapshots"),
    ],
)
def test_a_foreign_file_is_named_and_left_alone(tmp_path: Path, where: str, message: str) -> None:
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, kv_table()).table_id
    foreign = tmp_path / where.replace("TABLE", f"orders-{table_id}")
    foreign.write_text("not ours")
    with refused(ErrorCode.CORRUPT_DATA, str(foreign), "is foreign", message, "move"):
        open_storage(tmp_path)
    assert foreign.read_text() == "not ours"
    foreign.unlink()
    with opened(tmp_path) as storage:
        assert storage.table(PATH).table_id == table_id


@pytest.mark.parametrize("name", ["table.json", "log-0", "kv-0", "metadata"])
def test_a_missing_part_of_a_table_is_named(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, kv_table()).table_id
    part = tmp_path / "tables" / "shop" / f"orders-{table_id}" / name
    part.rename(tmp_path / "lake")
    with refused(ErrorCode.CORRUPT_DATA, str(part), "is missing"):
        open_storage(tmp_path)


def test_a_torn_table_definition_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, log_table()).table_id
    path = tmp_path / "tables" / "shop" / f"orders-{table_id}" / "table.json"
    content = json.loads(path.read_text())
    for damaged in (path.read_text()[:-20], json.dumps(content | {"columns": [{"name": "id"}]}), "{}"):
        path.write_text(damaged)
        with refused(ErrorCode.CORRUPT_DATA, str(path), "expected"):
            open_storage(tmp_path)
        assert path.read_text() == damaged


def test_a_table_folder_that_was_moved_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, log_table()).table_id
    folder = tmp_path / "tables" / "shop"
    (folder / f"orders-{table_id}").rename(folder / f"orders-{table_id + 5}")
    with refused(ErrorCode.CORRUPT_DATA, f"orders-{table_id + 5}", "shop.orders", "move it back"):
        open_storage(tmp_path)


def test_a_log_that_lost_acknowledged_rows_while_the_server_was_down_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        storage.create_table(PATH, log_table())
        storage.write(PATH, WriteKind.APPEND, log_rows(0, 5))
        storage.write(PATH, WriteKind.APPEND, log_rows(5, 9))
    segment = segments(tmp_path)[0]
    whole = segment.read_bytes()
    for damaged in (whole[:-1], b""):
        segment.write_bytes(damaged)
        with refused(ErrorCode.CORRUPT_DATA, str(segment), "offset 9, acknowledged before", "restore"):
            open_storage(tmp_path)
        assert segment.read_bytes() == damaged
    segment.unlink()
    with refused(ErrorCode.CORRUPT_DATA, "log-0", "offset 9, acknowledged before"):
        open_storage(tmp_path)
