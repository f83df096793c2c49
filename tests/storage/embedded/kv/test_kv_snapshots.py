import shutil
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from embedded_tables import (
    PATH,
    collect,
    kv_keys,
    kv_rows,
    kv_table,
    log_table,
    open_storage,
    opened,
    read_changes,
    read_snapshots,
    replayed,
    storage_with,
)
from refusals import refused

from cases import cases
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import KvSnapshot, TableBucket, WriteKind
from fluss_tiering.storage.embedded.kv_snapshots import split_keys
from fluss_tiering.storage.embedded.rocksdb import LiveFile
from fluss_tiering.storage.embedded.storage import EmbeddedStorage

UPSERT, DELETE = WriteKind.UPSERT, WriteKind.DELETE


def rows(start: int, stop: int, name: str = "a") -> Any:
    return kv_rows([{"id": key, "name": name} for key in range(start, stop)])


def ids(storage: EmbeddedStorage, snapshot: KvSnapshot, *key_range: bytes | None) -> list[int]:
    batches = storage.reader().read_kv_snapshot(storage.table(PATH), snapshot, *(key_range or (None, None)))
    return [value for batch in batches for value in batch.column("id").to_pylist()]


def exists(storage: EmbeddedStorage, *snapshots: KvSnapshot) -> list[bool]:
    return [storage.kv_snapshot(snapshot.bucket, snapshot.snapshot_id) == snapshot for snapshot in snapshots]


def test_a_snapshot_is_of_its_moment_and_the_log_from_its_offset_leads_to_now(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), rows(0, 50)) as storage:
        storage.write(PATH, DELETE, kv_keys(*range(40, 50)))
        (snapshot,) = storage.take_kv_snapshots(PATH)
        assert (snapshot.log_offset, snapshot.row_count) == (60, 40)
        storage.write(PATH, UPSERT, rows(30, 60, "b"))
        storage.write(PATH, DELETE, kv_keys(0, 1))
        at_snapshot = read_snapshots(storage)
        assert [key for key, _ in sorted(at_snapshot)] == list(range(40))
        assert {row["name"] for row in at_snapshot.values()} == {"a"}
        now = replayed(read_changes(storage, start_offset=60), at_snapshot)
        assert now == replayed(read_changes(storage))
        storage.take_kv_snapshots(PATH)
        assert read_snapshots(storage) == now


def test_snapshots_taken_under_writers_hold_just_what_the_log_before_them_does(tmp_path: Path) -> None:
    with opened(tmp_path) as storage, ThreadPoolExecutor(3) as writers:
        storage.create_table(PATH, kv_table())
        storage.write(PATH, UPSERT, rows(0, 1))

        def write(number: int) -> None:
            storage.write(PATH, UPSERT, rows(number % 50, number % 50 + 20, f"{number}"))
            storage.write(PATH, DELETE, kv_keys(*range(number % 70)))

        writes = [writers.submit(write, number) for number in range(60)]
        taken = [storage.take_kv_snapshots(PATH)[0] for _ in range(5)]
        for written in writes:
            written.result(timeout=60)
        changes = read_changes(storage)
        for snapshot in taken:
            batches = storage.reader().read_kv_snapshot(storage.table(PATH), snapshot, None, None)
            found = {(row["id"], row["region"]): row for batch in batches for row in batch.to_pylist()}
            assert found == replayed(changes[: snapshot.log_offset])
            assert len(found) == snapshot.row_count


def test_a_bucket_without_news_keeps_its_snapshot_and_one_never_written_has_none(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(4)) as storage:
        assert storage.take_kv_snapshots(PATH) == []
        touched = {bucket.bucket for bucket in storage.write(PATH, UPSERT, rows(1, 2))}
        first = storage.take_kv_snapshots(PATH)
        assert {snapshot.bucket.bucket for snapshot in first} == touched
        assert storage.take_kv_snapshots(PATH) == first
        storage.write(PATH, UPSERT, rows(0, 40))
        second = storage.take_kv_snapshots(PATH)
        assert len(second) == 4
        assert [info.latest_kv_snapshot for info in storage.buckets(PATH)] == list(second)
        storage.write(PATH, DELETE, kv_keys(*range(40)))
        assert [snapshot.row_count for snapshot in storage.take_kv_snapshots(PATH)] == [0] * 4
        assert read_snapshots(storage) == {}


def test_snapshots_and_their_ids_outlive_a_restart(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), rows(0, 10)) as storage:
        (first,) = storage.take_kv_snapshots(PATH)
    with opened(tmp_path) as storage:
        assert storage.take_kv_snapshots(PATH) == [first]
        assert ids(storage, first) == list(range(10))
        storage.write(PATH, UPSERT, rows(10, 20))
        (second,) = storage.take_kv_snapshots(PATH)
        assert second.snapshot_id > first.snapshot_id
        assert second.row_count == 20
        collect(storage)
    with opened(tmp_path) as storage:
        storage.write(PATH, UPSERT, rows(0, 1))
        (third,) = storage.take_kv_snapshots(PATH)
        assert third.snapshot_id > second.snapshot_id


# L3
def test_a_protected_snapshot_is_kept_and_others_but_the_newest_go(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table()) as storage:
        taken = []
        for step in range(4):
            storage.write(PATH, UPSERT, rows(0, step + 1))
            taken.extend(storage.take_kv_snapshots(PATH))
        other = TableBucket(taken[0].bucket.table_id, 7)
        protected = frozenset({(taken[1].bucket, taken[1].snapshot_id), (other, taken[0].snapshot_id)})
        assert collect(storage, protected) == 2
        assert exists(storage, *taken) == [False, True, False, True]
        assert ids(storage, taken[1]) == [0, 1]
        with refused(ErrorCode.KV_SNAPSHOT_NOT_EXIST, taken[0].path):
            ids(storage, taken[0])
        with refused(ErrorCode.KV_SNAPSHOT_NOT_EXIST, "KV snapshot 0"):
            list(storage.fetch_kv_snapshot(taken[0].bucket, taken[0].snapshot_id, None, None))
        assert collect(storage, protected) == 0
        assert collect(storage) == 1
        assert exists(storage, *taken) == [False, False, False, True]


def test_as_many_snapshots_are_kept_as_the_storage_is_told(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), num_retained_snapshots=2) as storage:
        taken = []
        for step in range(3):
            storage.write(PATH, UPSERT, rows(0, step + 1))
            taken.extend(storage.take_kv_snapshots(PATH))
        assert collect(storage) == 1
        assert exists(storage, *taken) == [False, True, True]
    with pytest.raises(ValueError, match="1 or more"):
        open_storage(tmp_path, num_retained_snapshots=0)


def test_a_snapshot_that_was_half_made_or_half_deleted_is_gone_after_a_restart(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), rows(0, 3)) as storage:
        (snapshot,) = storage.take_kv_snapshots(PATH)
    folder = (tmp_path / snapshot.path).parent
    shutil.copytree(folder / "snap-0", folder / "snap-1.tmp")
    shutil.copytree(folder / "snap-0", folder / "snap-9.deleted")
    with opened(tmp_path) as storage:
        assert sorted(entry.name for entry in folder.iterdir()) == ["db", "snap-0"]
        assert storage.take_kv_snapshots(PATH) == [snapshot]


def test_a_torn_description_of_a_snapshot_is_refused(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), rows(0, 3)) as storage:
        (snapshot,) = storage.take_kv_snapshots(PATH)
    path = tmp_path / snapshot.path / "snapshot.json"
    for damaged in (path.read_text()[:-10], "{}", '{"split_keys": ["xyz"]}'):
        path.write_text(damaged)
        with refused(ErrorCode.CORRUPT_DATA, str(path), "expected", "move the snapshot's folder away"):
            open_storage(tmp_path)


def test_a_key_range_is_read_without_its_end_and_pieces_make_up_the_whole(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), rows(0, 100)) as storage:
        (snapshot,) = storage.take_kv_snapshots(PATH)
        (entries,) = storage.fetch_kv_snapshot(snapshot.bucket, snapshot.snapshot_id, None, None)
        keys = entries.column("key").to_pylist()
        assert keys == sorted(keys)
        assert ids(storage, snapshot, keys[10], keys[20]) == ids(storage, snapshot)[10:20]
        assert ids(storage, snapshot, None, keys[1]) == ids(storage, snapshot)[:1]
        assert ids(storage, snapshot, keys[5], keys[5]) == []
        assert ids(storage, snapshot, b"\xff" * 20, None) == []
        cuts = [None, keys[33], keys[66], None]
        pieces = [ids(storage, snapshot, start, end) for start, end in pairwise(cuts)]
        assert list(chain.from_iterable(pieces)) == ids(storage, snapshot)


def test_readers_at_once_leave_the_snapshot_as_it_is(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), rows(0, 5_000)) as storage:
        (snapshot,) = storage.take_kv_snapshots(PATH)
        folder = tmp_path / snapshot.path
        before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
        with ThreadPoolExecutor(6) as threads:
            found = list(threads.map(lambda _: ids(storage, snapshot), range(12)))
        assert all(sorted(each) == list(range(5_000)) for each in found)
        assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_damage_in_a_snapshot_is_an_error_and_never_a_short_read(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), rows(0, 20_000)) as storage:
        (snapshot,) = storage.take_kv_snapshots(PATH)
        folder = tmp_path / snapshot.path
        table_file = max(folder.glob("*.sst"), key=lambda file: file.stat().st_size)
        whole = table_file.read_bytes()
        middle = len(whole) // 2
        table_file.unlink()
        table_file.write_bytes(whole[:middle] + bytes(64) + whole[middle + 64 :])
        with refused(ErrorCode.CORRUPT_DATA, snapshot.path, "checksum mismatch", "take a new KV snapshot"):
            ids(storage, snapshot)
        table_file.unlink()
        with refused(ErrorCode.CORRUPT_DATA, snapshot.path, table_file.name):
            ids(storage, snapshot)


def test_a_store_that_was_damaged_or_lost_is_read_from_the_log_again(tmp_path: Path) -> None:
    with storage_with(tmp_path, kv_table(), rows(0, 100)) as storage:
        storage.write(PATH, DELETE, kv_keys(5))
    (store,) = tmp_path.glob("tables/*/*/kv-0/db")
    (store / "CURRENT").write_text("MANIFEST-999999\n")
    with opened(tmp_path) as storage:
        with refused(ErrorCode.CORRUPT_DATA, str(store), "delete that folder"):
            storage.write(PATH, UPSERT, rows(0, 1))
        assert storage.buckets(PATH)[0].log_end_offset == 101
    shutil.rmtree(store)
    with opened(tmp_path) as storage:
        (snapshot,) = storage.take_kv_snapshots(PATH)
        assert (snapshot.row_count, snapshot.log_offset) == (99, 101)
        assert sorted(ids(storage, snapshot)) == [key for key in range(100) if key != 5]


def test_a_store_ahead_of_its_log_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, kv_table()).table_id
        storage.write(PATH, UPSERT, rows(0, 10))
    folder = tmp_path / "tables" / "shop" / f"orders-{table_id}"
    (folder / "log-ends.json").unlink()
    shutil.rmtree(folder / "log-0")
    (folder / "log-0").mkdir()
    with opened(tmp_path) as storage, refused(ErrorCode.CORRUPT_DATA, "log-0", "offset 0", "applied it up to 10"):
        storage.write(PATH, UPSERT, rows(0, 1))


def test_a_log_behind_its_snapshot_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, kv_table()).table_id
        storage.write(PATH, UPSERT, rows(0, 10))
        storage.take_kv_snapshots(PATH)
    folder = tmp_path / "tables" / "shop" / f"orders-{table_id}"
    (folder / "log-ends.json").unlink()
    shutil.rmtree(folder / "log-0")
    (folder / "log-0").mkdir()
    with refused(ErrorCode.CORRUPT_DATA, "log-0", "offset 10, acknowledged before"):
        open_storage(tmp_path)


def test_log_tables_have_no_snapshots(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table())
        with refused(ErrorCode.TABLE_WITHOUT_PRIMARY_KEY, "shop.orders"):
            storage.take_kv_snapshots(PATH)
        assert storage.kv_snapshot(TableBucket(table.table_id, 0), 0) is None
        assert storage.kv_snapshot(TableBucket(99, 0), 0) is None


def file(level: int, size: int, first_key: bytes) -> LiveFile:
    return LiveFile(level, size, first_key)


@cases(
    ("files", "expected"),
    [
        ([], []),
        ([file(6, 149, b"a")], []),
        ([file(6, 75, b"a"), file(6, 74, b"f")], []),
        ([file(6, 75, b"f"), file(6, 75, b"a")], [b"f"]),
        ([file(6, 60, b"m"), file(6, 50, b"a"), file(6, 50, b"f"), file(6, 40, b"t")], [b"m"]),
        ([file(6, 30, bytes([n])) for n in range(10)], [bytes([3]), bytes([7])]),
        ([file(6, 200, b"a"), file(6, 200, b"f"), file(6, 10, b"t")], [b"f", b"t"]),
        ([file(6, 60, b"a"), file(6, 60, b"f"), file(0, 80, b"c")], [b"f"]),
        ([file(0, 500, b"a"), file(0, 500, b"f"), file(6, 10, b"c")], []),
    ],
)
def test_pieces_are_cut_where_files_of_the_largest_level_begin(files: list[LiveFile], expected: list[bytes]) -> None:
    assert split_keys(files, piece_bytes=100) == expected
