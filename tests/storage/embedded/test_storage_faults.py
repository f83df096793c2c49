"""A disk that refuses: acknowledged rows stay, other rows leave no trace, and the next write succeeds."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from embedded_tables import (
    PATH,
    end_offsets,
    kv_rows,
    kv_table,
    log_rows,
    log_table,
    open_storage,
    opened,
    read_changes,
    read_rows,
    read_snapshots,
    replayed,
    segments,
    storage_with,
)
from refusals import refused

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.storage.embedded.rocksdb import RocksDbStore

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
Refuse = Callable[[str, str], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Makes calls of the operating system fail on files whose path has a given part. Writes fail half way."""
    originals = {name: getattr(os, name) for name in ("pwrite", "fsync", "ftruncate")}

    def install(name: str, part: str) -> None:
        def failing(descriptor: int, *arguments: Any) -> Any:
            if part in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
                if name == "pwrite":
                    data, position = arguments
                    originals["pwrite"](descriptor, data[: len(data) // 2], position)
                raise FULL
            return originals[name](descriptor, *arguments)

        monkeypatch.setattr(os, name, failing)

    return install


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
@pytest.mark.parametrize("rows_before", [0, 20])
def test_a_refused_append_leaves_all_buckets_as_they_were(
    tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch, call: str, rows_before: int
) -> None:
    with storage_with(tmp_path, log_table(3, bucket_keys=("id",)), log_rows(0, rows_before)) as storage:
        before = end_offsets(storage), read_rows(storage), {path: path.read_bytes() for path in all_segments(tmp_path)}
        refuse(call, "log-2/0")
        with refused(ErrorCode.STORAGE, "log-2", "No space left on device", "check the disk's free space"):
            storage.write(PATH, WriteKind.APPEND, log_rows(20, 40))
        monkeypatch.undo()
        after = end_offsets(storage), read_rows(storage), {path: path.read_bytes() for path in all_segments(tmp_path)}
        assert after == before
        storage.write(PATH, WriteKind.APPEND, log_rows(rows_before, 40))
        assert sorted(row["id"] for row in read_rows(storage)) == list(range(40))
    with opened(tmp_path) as storage:
        assert sorted(row["id"] for row in read_rows(storage)) == list(range(40))


def all_segments(folder: Path) -> list[Path]:
    return [path for bucket in range(3) for path in segments(folder, bucket)]


def test_a_refused_upsert_changes_no_row(tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    with storage_with(tmp_path, kv_table(), kv_rows([{"id": 1, "name": "old"}])) as storage:
        refuse("fsync", "log-0/0")
        with refused(ErrorCode.STORAGE, "No space left"):
            storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 1, "name": "new"}, {"id": 2}]))
        monkeypatch.undo()
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 1, "name": "newer"}]))
        assert [(kind, row["name"]) for kind, row in read_changes(storage)] == [
            ("+I", "old"),
            ("-U", "old"),
            ("+U", "newer"),
        ]


def test_a_log_that_cannot_take_a_failed_write_back_takes_no_more(
    tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    with storage_with(tmp_path, log_table(), log_rows(0, 10)) as storage:
        refuse("pwrite", "log-0/0")
        refuse("ftruncate", "log-0/0")
        with refused(ErrorCode.STORAGE, "could not append"):
            storage.write(PATH, WriteKind.APPEND, log_rows(10, 20))
        monkeypatch.undo()
        with refused(ErrorCode.STORAGE, "takes no more writes", "restart the server"):
            storage.write(PATH, WriteKind.APPEND, log_rows(10, 20))
        assert len(read_rows(storage)) == 10
    with opened(tmp_path) as storage:
        storage.write(PATH, WriteKind.APPEND, log_rows(10, 20))
        assert [row["id"] for row in read_rows(storage)] == list(range(20))


def test_a_write_that_rocksdb_refuses_is_in_the_log_and_is_applied_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = RocksDbStore.apply
    with storage_with(tmp_path, kv_table(), kv_rows([{"id": 1}, {"id": 2}])) as storage:

        def fail_once(store: RocksDbStore, *arguments: Any) -> None:
            monkeypatch.setattr(RocksDbStore, "apply", apply)
            raise FlussTieringError(ErrorCode.STORAGE, "RocksDB has no space left")

        monkeypatch.setattr(RocksDbStore, "apply", fail_once)
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 2, "name": "b"}, {"id": 3}]))
        storage.take_kv_snapshots(PATH)
        assert read_snapshots(storage) == replayed(read_changes(storage))
        assert len(read_snapshots(storage)) == 3


@pytest.fixture
def refuse_names(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes the sync of one folder fail, which comes after a name in it has changed."""
    fsync = os.fsync

    def install(folder: Path) -> None:
        def failing(descriptor: int) -> None:
            if Path(f"/proc/self/fd/{descriptor}").readlink() == folder:
                raise FULL
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", failing)

    return install


def test_a_table_whose_name_cannot_be_made_durable_is_not_there(
    tmp_path: Path, refuse_names: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as storage:
        refuse_names(tmp_path / "tables" / "shop")
        with refused(ErrorCode.STORAGE, "could not make the table's folder", "No space left"):
            storage.create_table(PATH, log_table())
        monkeypatch.undo()
        assert list((tmp_path / "tables" / "shop").iterdir()) == []
        storage.create_table(PATH, log_table())
        storage.write(PATH, WriteKind.APPEND, log_rows(0, 10))
    with opened(tmp_path) as storage:
        assert len(read_rows(storage)) == 10


def test_a_table_whose_drop_cannot_be_made_durable_is_still_there(
    tmp_path: Path, refuse_names: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with storage_with(tmp_path, kv_table(), kv_rows([{"id": 1}])) as storage:
        refuse_names(tmp_path / "tables" / "shop")
        with refused(ErrorCode.STORAGE, "could not delete the table's folder", "No space left"):
            storage.drop_table(PATH)
        monkeypatch.undo()
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 2}]))
        storage.take_kv_snapshots(PATH)
        assert len(read_snapshots(storage)) == 2
        storage.drop_table(PATH)
        assert list((tmp_path / "tables" / "shop").iterdir()) == []


def test_a_snapshot_whose_name_cannot_be_made_durable_is_not_there(
    tmp_path: Path, refuse_names: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as storage:
        info = storage.create_table(PATH, kv_table())
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 1}]))
        refuse_names(tmp_path / "tables" / "shop" / f"orders-{info.table_id}" / "kv-0")
        with refused(ErrorCode.STORAGE, "could not make the KV snapshot", "No space left"):
            storage.take_kv_snapshots(PATH)
        monkeypatch.undo()
        (snapshot,) = storage.take_kv_snapshots(PATH)
        assert [entry.name for entry in (tmp_path / snapshot.path).parent.glob("snap*")] == ["snap-0"]


def test_a_snapshot_whose_deletion_cannot_be_made_durable_can_be_read_and_deleted_later(
    tmp_path: Path, refuse_names: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with storage_with(tmp_path, kv_table(), kv_rows([{"id": 1}])) as storage:
        (snapshot,) = storage.take_kv_snapshots(PATH)
        doomed = (snapshot.bucket, snapshot.snapshot_id)
        refuse_names((tmp_path / snapshot.path).parent)
        with refused(ErrorCode.STORAGE, "could not delete the KV snapshot", "No space left"):
            storage.delete_kv_snapshots([doomed])
        monkeypatch.undo()
        assert len(read_snapshots(storage)) == 1
        assert storage.delete_kv_snapshots([doomed]) == 1


def test_a_storage_closes_all_tables_although_one_cannot_be_closed(
    tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = TablePath("shop", "parcels")
    storage = open_storage(tmp_path)
    for path in (PATH, other):
        storage.create_table(path, log_table())
        storage.write(path, WriteKind.APPEND, log_rows(0, 10))
    refuse("fsync", "orders-1/log-ends.json")
    with refused(ErrorCode.STORAGE, "orders-1/log-ends.json", "No space left"):
        storage.close()
    monkeypatch.undo()
    with refused(ErrorCode.UNAVAILABLE, "shutting down"):
        storage.write(other, WriteKind.APPEND, log_rows(10, 20))
    assert (tmp_path / "tables" / "shop" / "parcels-2" / "log-ends.json").exists()


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("")
    told = f"{occupied} is a file; expected a folder, name another one"
    with refused(ErrorCode.STORAGE, f"cannot make the data folder {occupied}/data: {told}"), opened(occupied / "data"):
        pass
    with refused(ErrorCode.STORAGE, f"cannot make the data folder {occupied}: {told}"), opened(occupied):
        pass
    nowhere = Path("/proc/no-data")
    with refused(ErrorCode.STORAGE, f"{nowhere}: the file system there takes no folders"), opened(nowhere):
        pass
