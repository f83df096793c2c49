"""Scans of a bucket by key: they show one moment, are complete and bounded, and end with their bucket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from embedded_tables import (
    KV_COLUMNS,
    PATH,
    kv_keys,
    kv_rows,
    kv_table,
    log_table,
    open_storage,
    opened,
    read_changes,
    replayed,
)

from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, WriteKind
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from fluss_tiering.storage.embedded.table.bucket import KvBucket
from fluss_tiering.storage.protocol import KvScan, KvScanBatch


def nothing() -> None:
    """Do nothing, for a test that need not know that its scan was lost."""


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[EmbeddedStorage]:
    with opened(tmp_path) as running:
        running.create_table(PATH, kv_table())
        yield running


def upsert(storage: EmbeddedStorage, ids: range, name: str = "a") -> None:
    storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": each, "name": name} for each in ids]))


def bucket_of(storage: EmbeddedStorage, bucket: int = 0) -> TableBucket:
    return TableBucket(storage.table(PATH).table_id, bucket)


def scan_of(storage: EmbeddedStorage, on_lost: Callable[[], None] = nothing) -> KvScan:
    _, scan = storage.open_kv_scan(bucket_of(storage), admit=nothing, on_lost=on_lost)
    assert scan is not None
    return scan


def batches(scan: KvScan, max_bytes: int | None = None, max_rows: int | None = None) -> Iterator[KvScanBatch]:
    position = None
    while True:
        batch = scan.read(position, max_bytes, max_rows)
        yield batch
        if (position := batch.next_position) is None:
            return


def rows(scan: KvScan, **bounds: int) -> dict[tuple[int, str], dict[str, object]]:
    """Return the rows of a scan by key. No key may come twice."""
    found = [row for batch in batches(scan, **bounds) for row in decode_values(batch.values, KV_COLUMNS, 1).to_pylist()]
    by_key = {(row["id"], row["region"]): row for row in found}
    assert len(by_key) == len(found)
    return by_key


def open_scans(storage: EmbeddedStorage) -> int:
    """Return how many scans the buckets know."""
    return sum(
        len(bucket._scans)
        for table in storage._catalog.all()
        for bucket in table.buckets
        if isinstance(bucket, KvBucket)
    )


def test_a_scan_is_of_one_moment_and_the_log_goes_on_from_there(storage: EmbeddedStorage) -> None:  # K5
    upsert(storage, range(100))
    log_offset, scan = storage.open_kv_scan(bucket_of(storage), admit=nothing, on_lost=nothing)
    assert scan is not None
    assert log_offset == scan.log_offset == 100
    upsert(storage, range(50, 150), "b")
    storage.write(PATH, WriteKind.DELETE, kv_keys(0, 1))
    seen = rows(scan, max_rows=7)
    assert {key[0] for key in seen} == set(range(100))
    assert {row["name"] for row in seen.values()} == {"a"}
    assert replayed(read_changes(storage, start_offset=log_offset), seen) == rows(scan_of(storage))


def test_batches_keep_to_their_bounds_and_hold_a_row_at_least(storage: EmbeddedStorage) -> None:  # K7, K9
    upsert(storage, range(1000), "x" * 50)
    scan = scan_of(storage)
    bounded = list(batches(scan, max_bytes=4096))
    assert max(batch.values.nbytes for batch in bounded) <= 4096 + 4
    assert min(batch.values.nbytes for batch in bounded[:-1]) > 4096 - 100
    assert {len(batch.values) for batch in batches(scan, max_bytes=1)} == {1}
    assert len(scan.read(None, 1 << 20, 3).values) == 3
    assert scan.read(None, None, None).next_position is None


def test_a_position_gives_the_same_rows_again(storage: EmbeddedStorage) -> None:  # K15
    upsert(storage, range(500))
    scan = scan_of(storage)
    first = scan.read(None, 2000, None)
    second = scan.read(first.next_position, 2000, None)
    upsert(storage, range(500), "changed")
    again = scan.read(first.next_position, None, len(second.values))
    assert again.values.equals(second.values)
    assert again.next_position == second.next_position


def test_a_read_that_failed_may_be_repeated(storage: EmbeddedStorage) -> None:  # K6, K16
    upsert(storage, range(500))
    scan = scan_of(storage)
    first = scan.read(None, 2000, None)
    key_of_value, scan._key_of_value = scan._key_of_value, failing
    with pytest.raises(FlussTieringError, match="no space left"):
        scan.read(first.next_position, 2000, None)
    scan._key_of_value = key_of_value
    position, count = first.next_position, len(first.values)
    while position is not None:
        batch = scan.read(position, 2000, None)
        position, count = batch.next_position, count + len(batch.values)
    assert count == 500


def test_a_bucket_without_rows_opens_nothing(storage: EmbeddedStorage) -> None:  # K4
    refuse = pytest.fail
    assert storage.open_kv_scan(bucket_of(storage), admit=refuse, on_lost=nothing) == (0, None)
    upsert(storage, range(3))
    storage.write(PATH, WriteKind.DELETE, kv_keys(0, 1, 2))
    assert storage.open_kv_scan(bucket_of(storage), admit=refuse, on_lost=nothing) == (6, None)
    assert open_scans(storage) == 0


def test_who_is_not_admitted_opens_nothing(storage: EmbeddedStorage) -> None:  # K2
    upsert(storage, range(3))

    def refuse() -> None:
        raise FlussTieringError(ErrorCode.TOO_MANY_SCANNERS, "full")

    with pytest.raises(FlussTieringError, match="full"):
        storage.open_kv_scan(bucket_of(storage), admit=refuse, on_lost=nothing)
    assert open_scans(storage) == 0


def test_a_scan_opens_under_the_lock_of_its_bucket(storage: EmbeddedStorage) -> None:  # K3, K5, D17
    upsert(storage, range(10))
    written = threading.Event()

    def write() -> None:
        upsert(storage, range(10, 20))
        written.set()

    writer = threading.Thread(target=write)

    def admit() -> None:
        # A write that came in between here would be in the rows, and once more in the log behind the offset.
        writer.start()
        written.wait(0.3)

    log_offset, scan = storage.open_kv_scan(bucket_of(storage), admit=admit, on_lost=nothing)
    writer.join(30)
    assert written.is_set()
    assert scan is not None
    assert log_offset == 10
    assert {number for number, _ in rows(scan)} == set(range(10))


def test_what_has_no_rows_by_key_is_refused(storage: EmbeddedStorage, tmp_path: Path) -> None:  # K3
    def code(bucket: TableBucket) -> ErrorCode:
        with pytest.raises(FlussTieringError) as refused:
            storage.open_kv_scan(bucket, admit=nothing, on_lost=nothing)
        return refused.value.code

    table_id = storage.table(PATH).table_id
    assert code(TableBucket(table_id, 1)) is ErrorCode.INVALID_REQUEST
    assert code(TableBucket(table_id, 0, partition_id=1)) is ErrorCode.INVALID_REQUEST
    assert code(TableBucket(99, 0)) is ErrorCode.TABLE_NOT_EXIST
    storage.drop_table(PATH)
    log = storage.create_table(PATH, log_table())
    assert code(TableBucket(log.table_id, 0)) is ErrorCode.TABLE_WITHOUT_PRIMARY_KEY


@pytest.mark.parametrize("end", ["drop", "close", "failed apply"])
def test_scans_end_with_their_bucket_and_their_opener_is_told(tmp_path: Path, end: str) -> None:  # K12, K17
    storage = open_storage(tmp_path)
    storage.create_table(PATH, kv_table())
    upsert(storage, range(100))
    lost: list[int] = []
    scans = [scan_of(storage, lambda number=number: lost.append(number)) for number in range(5)]
    scans.pop().close()
    assert open_scans(storage) == 4
    match end:
        case "drop":
            storage.drop_table(PATH)
        case "failed apply":
            store = storage._catalog.get(PATH).buckets[0]._store
            store.apply = failing
            upsert(storage, range(100, 110))
            # The store is opened again, which would fail if a view were still open.
            assert len(rows(scan_of(storage))) == 110
    if end != "drop":
        storage.close()
    assert sorted(lost) == [0, 1, 2, 3]
    for scan in scans:
        with pytest.raises(FlussTieringError) as ended:
            scan.read(None, None, 1)
        assert ended.value.code is ErrorCode.SCANNER_EXPIRED
        scan.close()
    if end == "drop":
        storage.close()
    with opened(tmp_path) as again:
        # RocksDB opens a store only once, so all of the old views are closed.
        assert end == "drop" or len(rows(scan_of(again))) >= 100


def failing(*_: object) -> None:
    raise FlussTieringError(ErrorCode.STORAGE, "no space left")


def test_who_leads_no_longer_refuses(tmp_path: Path) -> None:  # K3
    storage = open_storage(tmp_path)
    bucket = TableBucket(storage.create_table(PATH, kv_table()).table_id, 0)
    storage.close()
    with pytest.raises(FlussTieringError, match="no longer leads") as refused:
        storage.open_kv_scan(bucket, admit=pytest.fail, on_lost=nothing)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_closing_waits_for_the_read_under_way(storage: EmbeddedStorage) -> None:  # K12
    upsert(storage, range(20_000))
    scan = scan_of(storage)
    errors: list[FlussTieringError] = []

    def read_all() -> None:
        try:
            while True:
                rows(scan, max_rows=500)
        except FlussTieringError as error:
            errors.append(error)

    readers = [threading.Thread(target=read_all) for _ in range(4)]
    for reader in readers:
        reader.start()
    storage.drop_table(PATH)
    for reader in readers:
        reader.join(30)
    assert [error.code for error in errors] == [ErrorCode.SCANNER_EXPIRED] * 4


def test_damage_is_an_error_and_never_the_end(tmp_path: Path) -> None:  # K16
    with opened(tmp_path) as storage:
        storage.create_table(PATH, kv_table())
        names = [f"{each * 2654435761 % 2**32:08x}" * 8 for each in range(20_000)]
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": each, "name": name} for each, name in enumerate(names)]))
    file = max(tmp_path.glob("tables/*/*/kv-0/db/*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    file.write_bytes(content)
    with opened(tmp_path) as storage:
        scan = scan_of(storage)
        seen = 0
        with pytest.raises(FlussTieringError) as damaged:  # noqa: PT012 - how far it came counts
            for batch in batches(scan, max_rows=1000):
                seen += len(batch.values)
        assert damaged.value.code is ErrorCode.CORRUPT_DATA
        assert "kv-0/db" in damaged.value.message
        assert 0 < seen < 20_000
