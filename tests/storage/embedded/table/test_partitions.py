"""Partitioned tables: rows go to the partition that their values name. The first row makes it; it can be dropped."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from embedded_tables import PATH, columns, open_storage, opened, storage_with
from refusals import refused

from fluss_tiering.formats.log.batch import ChangeType
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import BucketInfo, TableBucket, TableDescriptor, WriteKind
from fluss_tiering.storage import data_dir
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from fluss_tiering.storage.files import TEMPORARY_SUFFIX

COLUMNS = columns(id="INT NOT NULL", day="STRING NOT NULL", region="STRING NOT NULL", name="STRING")
LOG = TableDescriptor(COLUMNS, num_buckets=2, partition_keys=("day", "region"))
LEGACY = {"table.datalake.layout": "legacy"}
KEYED = TableDescriptor(COLUMNS, primary_key=("id", "day"), bucket_keys=("id",), num_buckets=2, partition_keys=("day",))


def rows(*given_rows: tuple[int, str, str, str | None]) -> pa.Table:
    names = [column.name for column in COLUMNS]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in given_rows], arrow_schema(COLUMNS))


def append(storage: EmbeddedStorage, *given_rows: tuple[int, str, str, str | None]) -> None:
    storage.write(PATH, WriteKind.APPEND, rows(*given_rows))


def upsert(storage: EmbeddedStorage, *given_rows: tuple[int, str, str, str | None]) -> None:
    storage.write(PATH, WriteKind.UPSERT, rows(*given_rows))


def delete(storage: EmbeddedStorage, *keys: tuple[int, str]) -> None:
    table = pa.table({"id": pa.array([key for key, _ in keys], pa.int32()), "day": [day for _, day in keys]})
    storage.write(PATH, WriteKind.DELETE, table)


def by_partition(storage: EmbeddedStorage) -> dict[tuple[str, ...], list[BucketInfo]]:
    found: dict[tuple[str, ...], list[BucketInfo]] = {}
    for info in storage.buckets(PATH):
        found.setdefault(info.partition_values, []).append(info)
    return found


def logged(storage: EmbeddedStorage, infos: list[BucketInfo]) -> list[dict[str, object]]:
    table, reader = storage.table(PATH), storage.reader()
    return [
        row
        for info in infos
        for batch in reader.read_log(table, info.bucket, 0, info.log_end_offset)
        for row in batch.records.to_pylist()
    ]


def snapshot_rows(storage: EmbeddedStorage) -> dict[tuple[str, ...], dict[int, str | None]]:
    table, reader = storage.table(PATH), storage.reader()
    return {
        values: {
            row["id"]: row["name"]
            for info in infos
            if info.latest_kv_snapshot
            for batch in reader.read_kv_snapshot(table, info.latest_kv_snapshot, None, None)
            for row in batch.to_pylist()
        }
        for values, infos in by_partition(storage).items()
    }


def test_rows_go_to_the_partition_that_their_values_name(tmp_path: Path) -> None:
    with storage_with(tmp_path, LOG) as storage:
        assert storage.buckets(PATH) == []
        append(storage, (1, "mon", "eu", "a"), (2, "tue", "eu", "b"), (3, "mon", "us", None), (4, "mon", "eu", "d"))
    with opened(tmp_path) as storage:
        assert storage.table(PATH).descriptor.partition_keys == LOG.partition_keys
        found = by_partition(storage)
        assert {values: [row["id"] for row in logged(storage, infos)] for values, infos in found.items()} == {
            ("mon", "eu"): [1, 4],
            ("tue", "eu"): [2],
            ("mon", "us"): [3],
        }
        assert {len(infos) for infos in found.values()} == {2}
        ids = {info.bucket.partition_id for infos in found.values() for info in infos}
        assert None not in ids
        assert len(ids) == 3
        append(storage, (5, "mon", "eu", "e"))
        assert len(by_partition(storage)) == 3


def test_keys_are_apart_in_each_partition_and_snapshots_hold_one(tmp_path: Path) -> None:
    with storage_with(tmp_path, KEYED) as storage:
        upsert(storage, (1, "mon", "", "a"), (1, "tue", "", "b"), (2, "tue", "", "c"))
        upsert(storage, (1, "mon", "", "a2"))
        delete(storage, (1, "tue"), (9, "tue"), (1, "sun"))
        assert set(by_partition(storage)) == {("mon",), ("tue",)}  # Deletes make no partition.
        taken = storage.take_kv_snapshots(PATH)
        assert {snapshot.bucket.partition_id for snapshot in taken} == {1, 2}
        assert snapshot_rows(storage) == {("mon",): {1: "a2"}, ("tue",): {2: "c"}}
        for snapshot in taken:
            assert storage.kv_snapshot(snapshot.bucket, snapshot.snapshot_id) == snapshot
    with opened(tmp_path) as storage:
        assert snapshot_rows(storage) == {("mon",): {1: "a2"}, ("tue",): {2: "c"}}
        upsert(storage, (1, "tue", "", "back"))
        assert len(logged(storage, by_partition(storage)[("tue",)])) == 4


def test_a_dropped_partition_is_gone_with_its_files_and_its_id(tmp_path: Path) -> None:
    with storage_with(tmp_path, KEYED) as storage:
        upsert(storage, (1, "mon", "", "a"), (1, "tue", "", "b"))
        snapshots = {snapshot.bucket: snapshot for snapshot in storage.take_kv_snapshots(PATH)}
        (gone,) = [bucket for bucket in snapshots if bucket.partition_id == 1]
        storage.drop_partition(PATH, ["mon"])
        assert set(by_partition(storage)) == {("tue",)}
        assert storage.kv_snapshot(gone, 0) is None
        assert not list(tmp_path.glob("tables/*/*/partition-1*"))
        with refused(ErrorCode.PARTITION_NOT_EXIST, str(gone)):
            list(storage.fetch_log(gone, 0, 1))
        with refused(ErrorCode.PARTITION_NOT_EXIST, str(gone)):
            storage.open_kv_scan(gone, admit=lambda: None, on_lost=lambda: None)
        with refused(ErrorCode.PARTITION_NOT_EXIST, str(gone), "dropped"):
            list(storage.reader().read_log(storage.table(PATH), gone, 0, 1))
        with refused(ErrorCode.PARTITION_NOT_EXIST, "mon"):
            storage.drop_partition(PATH, ["mon"])
        upsert(storage, (7, "mon", "", "new"))
    with opened(tmp_path) as storage:
        assert {info.bucket.partition_id for info in by_partition(storage)[("mon",)]} == {3}
        assert [row["id"] for row in logged(storage, by_partition(storage)[("mon",)])] == [7]


def test_a_scan_ends_with_its_partition(tmp_path: Path) -> None:  # K12
    with storage_with(tmp_path, KEYED) as storage:
        upsert(storage, (1, "mon", "", "a"))
        (bucket,) = [info.bucket for info in storage.buckets(PATH) if info.log_end_offset]
        lost = threading.Event()
        log_offset, scan = storage.open_kv_scan(bucket, admit=lambda: None, on_lost=lost.set)
        assert (log_offset, scan is not None) == (1, True)
        storage.drop_partition(PATH, ["mon"])
        assert lost.is_set()


@pytest.mark.parametrize("value", ["", "a/b", "..", "a b", "ä", "x" * 201, "__x", "a$b", "a\0b"])
def test_a_value_that_names_no_partition_is_refused_and_nothing_is_made(tmp_path: Path, value: str) -> None:
    with storage_with(tmp_path, LOG) as storage:
        with refused(ErrorCode.INVALID_ROWS, "'region'"):
            append(storage, (1, "mon", "eu", "a"), (2, "mon", value, "b"))
        assert storage.buckets(PATH) == []


def test_a_null_in_a_partition_key_is_refused(tmp_path: Path) -> None:
    nullable = TableDescriptor(columns(id="INT", day="STRING"), partition_keys=("day",))
    with storage_with(tmp_path, nullable) as storage:
        with refused(ErrorCode.INVALID_ROWS, "'day'", "null"):
            storage.write(PATH, WriteKind.APPEND, pa.table({"id": [1, 2], "day": ["mon", None]}))
        assert storage.buckets(PATH) == []


def test_a_table_has_no_end_of_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluss_tiering.storage.embedded.table.table.MAX_PARTITIONS", 3)
    with storage_with(tmp_path, LOG) as storage:
        with refused(ErrorCode.INVALID_ROWS, "3 partitions", "d$eu"):
            append(storage, *((1, day, "eu", None) for day in "abcd"))
        assert storage.buckets(PATH) == []
        append(storage, *((1, day, "eu", None) for day in "abc"))


# D52
@pytest.mark.slow
def test_a_write_to_many_new_buckets_syncs_them_together_and_opens_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identities: list[object] = []
    write_identity = data_dir._write_identity
    monkeypatch.setattr(
        data_dir, "_write_identity", lambda *given: (identities.append(given), write_identity(*given))[1]
    )
    days = [f"d{number}" for number in range(50)]
    expected = {(number, day): "first" for day in days for number in range(8)}
    with storage_with(tmp_path, KEYED) as storage:
        identities.clear()
        upsert(storage, *((number, day, "eu", name) for (number, day), name in expected.items()))
        # All ids of partitions are made durable at once.
        assert len(identities) == 1
        assert len(by_partition(storage)) == len(days)
        assert not list(tmp_path.rglob("CURRENT"))

        # What was applied from the log is there for later writes.
        upsert(storage, (3, "d7", "eu", "second"), (99, "d7", "eu", "first"))
        delete(storage, (4, "d7"), (4, "d8"))
        expected |= {(3, "d7"): "second", (99, "d7"): "first"}
        del expected[4, "d7"], expected[4, "d8"]
    with opened(tmp_path) as storage:
        infos = [info for of_partition in by_partition(storage).values() for info in of_partition]
        last: dict[tuple[object, object], object] = {}
        for info in infos:
            for batch in storage.reader().read_log(storage.table(PATH), info.bucket, 0, info.log_end_offset):
                for row, kind in zip(batch.records.to_pylist(), batch.change_types, strict=True):
                    key = row["id"], row["day"]
                    assert (key in last) == (kind != ChangeType.INSERT)
                    last[key] = None if kind == ChangeType.DELETE else row["name"]
        assert {key: name for key, name in last.items() if name is not None} == expected
        assert sum(snapshot.row_count for snapshot in storage.take_kv_snapshots(PATH)) == len(expected)


# D52
def test_partitions_that_cannot_all_be_made_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with storage_with(tmp_path, LOG) as storage:
        renamed: list[Path] = []
        rename = Path.rename

        def fail_at_the_third(path: Path, target: Path) -> Path:
            if path.suffix == TEMPORARY_SUFFIX and path.is_dir():
                renamed.append(path)
                if len(renamed) == 3:
                    raise OSError(28, "No space left on device")
            return rename(path, target)

        with monkeypatch.context() as full:
            full.setattr(Path, "rename", fail_at_the_third)
            with refused(ErrorCode.STORAGE, "No space left"):
                append(storage, *((number, f"d{number}", "eu", None) for number in range(12)))
        assert storage.buckets(PATH) == []
        append(storage, *((number, f"d{number}", "eu", None) for number in range(12)))
        assert len(by_partition(storage)) == 12
    with opened(tmp_path) as storage:
        assert len(by_partition(storage)) == 12


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"partition_keys": ("nothing",)}, "'nothing', which is no column"),
        ({"partition_keys": ("day", "day")}, "'day' twice"),
        ({"partition_keys": ("id",), "properties": LEGACY}, "'id' is INT NOT NULL: expected STRING"),
        ({"partition_keys": ("region",)}, "'region' is not part of the primary key"),
        ({"partition_keys": ("day",), "primary_key": ("day",), "bucket_keys": ()}, "has partition keys only"),
        ({"partition_keys": ("day",), "bucket_keys": ("day",)}, "'day' is a partition key"),
    ],
)
def test_what_cannot_be_partitioned_is_refused(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with opened(tmp_path) as storage:
        arguments = {"primary_key": ("id", "day"), "bucket_keys": ("id",), **changes}
        with refused(ErrorCode.INVALID_TABLE, said):
            storage.create_table(PATH, TableDescriptor(COLUMNS, **arguments))  # type: ignore[arg-type]


def test_offsets_files_have_the_offsets_of_each_partition(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, LOG)
        offsets = {TableBucket(table.table_id, 1, 7): 5, TableBucket(table.table_id, 0, 3): 4}
        path = storage.write_lake_offsets(table.table_id, offsets)
        assert json.loads(Path(path).read_bytes()) == {
            "version": 1,
            "table_id": table.table_id,
            "partition_offsets": [
                {"partition_id": 3, "bucket_offsets": [4, -1]},
                {"partition_id": 7, "bucket_offsets": [-1, 5]},
            ],
        }
        with refused(ErrorCode.INVALID_REQUEST, "each of its partitions"):
            storage.write_lake_offsets(table.table_id, {TableBucket(table.table_id, 0): 1})
        with refused(ErrorCode.INVALID_REQUEST, "a partition of"):
            storage.fetch_log(TableBucket(table.table_id, 0), 0, 1).__next__()


def test_what_a_crash_left_half_made_or_half_dropped_is_deleted(tmp_path: Path) -> None:
    with storage_with(tmp_path, LOG) as storage:
        append(storage, (1, "mon", "eu", "a"), (2, "tue", "eu", "b"))
    (folder,) = tmp_path.glob("tables/*/*")
    (folder / "partition-1").rename(folder / "partition-1.deleted")
    (folder / "partition-9.tmp").mkdir()
    with opened(tmp_path) as storage:
        assert set(by_partition(storage)) == {("tue", "eu")}
    assert {path.name for path in folder.iterdir()} == {"table.json", "metadata", "partition-2"}


def test_a_damaged_partition_is_named(tmp_path: Path) -> None:
    with storage_with(tmp_path, LOG) as storage:
        append(storage, (1, "mon", "eu", "a"))
    (folder,) = tmp_path.glob("tables/*/*/partition-1")
    described = (folder / "partition.json").read_text()
    for damage in ('{"partition_id": 2, "values": ["mon", "eu"]}', '{"partition_id": 1, "values": ["mon"]}', "{"):
        (folder / "partition.json").write_text(damage)
        with refused(ErrorCode.CORRUPT_DATA, "partition.json"):
            open_storage(tmp_path)
    (folder / "partition.json").write_text(described)
    (folder / "log-1").rmdir()
    with refused(ErrorCode.CORRUPT_DATA, "log-1", "missing"):
        open_storage(tmp_path)


def test_writes_and_drops_at_once_leave_a_table_that_reads(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    with storage_with(tmp_path, KEYED) as storage:

        def write(start: int) -> None:
            try:
                for number in range(start, start + 20):
                    try:
                        upsert(storage, (number, "mon", "", "a"), (number, "tue", "", "b"))
                    except Exception as error:
                        if getattr(error, "code", None) is not ErrorCode.PARTITION_NOT_EXIST:
                            raise
            except BaseException as error:  # noqa: BLE001 - told by the test
                errors.append(error)

        writers = [threading.Thread(target=write, args=(start,)) for start in (0, 100)]
        for writer in writers:
            writer.start()
        for _ in range(8):
            if ("mon",) in by_partition(storage):
                storage.drop_partition(PATH, ["mon"])
        for writer in writers:
            writer.join(60)
        assert not errors
        storage.take_kv_snapshots(PATH)
        found = snapshot_rows(storage)
        for values, infos in by_partition(storage).items():
            assert {row["id"] for row in logged(storage, infos)} == set(found[values])
