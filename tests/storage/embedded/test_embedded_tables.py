"""Tables of the embedded storage: their types, options and lake offsets, and what was put back from a backup."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from arrow_strategies import columns, record_batches, same
from embedded_tables import (
    LOG_COLUMNS,
    PATH,
    TurnedClock,
    end_offsets,
    kv_rows,
    kv_table,
    log_rows,
    log_table,
    opened,
    read_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from fluss_tiering.formats.schema import UNIT_PRECISION, arrow_schema, arrow_type
from fluss_tiering.model.data_type import WITH_PRECISION
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import (
    Column,
    DataType,
    DataTypeRoot,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    WriteKind,
)
from fluss_tiering.storage.embedded.storage import EmbeddedStorage

PARTITIONED = TableDescriptor(LOG_COLUMNS, partition_keys=("name",))


def write(storage: EmbeddedStorage, table: TableInfo, ids: range) -> None:
    rows = {"id": list(ids), "name": ["a"] * len(ids)}
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    storage.write(table.path, kind, pa.Table.from_pydict(rows, schema=arrow_schema(LOG_COLUMNS)))


def offsets_of(storage: EmbeddedStorage, table: TableInfo) -> dict[TableBucket, int]:
    return {info.bucket: info.log_end_offset for info in storage.buckets(table.path)}


@pytest.mark.parametrize(
    "descriptor",
    [log_table(), TableDescriptor(LOG_COLUMNS, primary_key=("id",), bucket_keys=("id",)), PARTITIONED],
    ids=["log", "keyed", "partitioned"],
)
def test_a_lake_that_is_newer_than_its_table_is_refused_also_once_the_log_has_grown(
    tmp_path: Path, descriptor: TableDescriptor
) -> None:
    folder, backup, clock = tmp_path / "data", tmp_path / "backup", TurnedClock()
    with opened(folder, clock=clock) as storage:
        table = storage.create_table(PATH, descriptor)
        write(storage, table, range(5))
    shutil.copytree(folder, backup)
    with opened(folder, clock=clock) as storage:
        write(storage, table, range(10, 15))
        file = storage.write_lake_offsets(table.table_id, offsets_of(storage, table))
        write(storage, table, range(20, 25))
        assert storage.has_lake_offsets(table.table_id, file)
    with opened(folder, clock=clock) as storage:
        assert storage.has_lake_offsets(table.table_id, file)
        write(storage, table, range(30, 35))
        assert storage.has_lake_offsets(table.table_id, file)

    # What the backup lacks stays, as with `cp -a backup/. folder/`.
    shutil.copytree(backup, folder, dirs_exist_ok=True)
    clock.now += 1
    told = (str(PATH), "is newer than the table", "older backup", "restore the lake of the same time")
    with opened(folder, clock=clock) as storage:
        with refused(ErrorCode.LAKE_TABLE_MISMATCH, "ends at offset 5 and ended at 10", *told):
            storage.has_lake_offsets(table.table_id, file)
        for ids in (range(40, 44), range(50, 51), range(60, 70)):
            write(storage, table, ids)
            with refused(ErrorCode.LAKE_TABLE_MISMATCH, *told):
                storage.has_lake_offsets(table.table_id, file)
    with (
        opened(folder, clock=clock) as storage,
        refused(ErrorCode.LAKE_TABLE_MISMATCH, "has other rows before offset 10", *told),
    ):
        storage.has_lake_offsets(table.table_id, file)


def test_files_without_ends_and_ends_of_dropped_partitions_prove_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, PARTITIONED)
        write(storage, table, range(5))
        file = Path(storage.write_lake_offsets(table.table_id, offsets_of(storage, table)))
        storage.drop_partition(PATH, ["a"])
        write(storage, table, range(2))
    with opened(tmp_path) as storage:
        assert storage.has_lake_offsets(table.table_id, str(file))
        content = json.loads(file.read_text())
        file.write_text(json.dumps({key: content[key] for key in ("version", "table_id", "partition_offsets")}))
        assert storage.has_lake_offsets(table.table_id, str(file))


@pytest.mark.parametrize("content", ["", "[]", '{"log_tails":[[null,0,5]]}', '{"log_tails":[[null,0,"x",1]]}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table())
        file = Path(storage.write_lake_offsets(table.table_id, {}))
    file.write_text(content)
    with opened(tmp_path) as storage, refused(ErrorCode.CORRUPT_DATA, str(file), "restore it from a backup"):
        storage.has_lake_offsets(table.table_id, str(file))


FRESHNESS = "table.datalake.freshness"
LAYOUT = "table.datalake.layout"


def test_options_change_and_rows_stay(tmp_path: Path) -> None:  # S20
    with opened(tmp_path) as storage:
        before = storage.create_table(PATH, kv_table(properties={FRESHNESS: "1h", "team": "a"}))
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 1, "name": "x"}]))
        altered = storage.alter_table(PATH, {FRESHNESS: "1min"})
        assert altered.descriptor.properties == {FRESHNESS: "1min", LAYOUT: "clean"}
        assert (altered.table_id, altered.created_time) == (before.table_id, before.created_time)
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 2, "name": "y"}]))
        rows = read_rows(storage)
    with opened(tmp_path) as storage:
        assert storage.table(PATH) == storage.table_by_id(before.table_id) == storage.tables()[0] == altered
        assert read_rows(storage) == rows
        assert end_offsets(storage) == [2]


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"table.log.arrow.compression.type": "NONE"}, ("table.log.arrow.compression.type", "rows are stored")),
        (
            {"iceberg.write.target-file-size-bytes": "100"},
            ("iceberg.write.target-file-size-bytes", "in the lake; if there is none yet"),
        ),
    ],
)
def test_what_rows_or_the_lake_table_were_made_with_stays(
    tmp_path: Path, properties: dict[str, str], words: tuple[str, ...]
) -> None:  # S20
    with opened(tmp_path) as storage:
        created = storage.create_table(PATH, log_table())
        with refused(ErrorCode.INVALID_TABLE, *words):
            storage.alter_table(PATH, properties)
        assert storage.table(PATH) == created
        given = storage.create_table(TablePath("db", "given"), log_table(properties=properties))
        with refused(ErrorCode.INVALID_TABLE, *words):
            storage.alter_table(given.path, {})
        storage.alter_table(given.path, {**properties, "team": "a"})


def test_a_table_without_a_primary_key_gets_no_kind_of_deletes(tmp_path: Path) -> None:
    option = "table.datalake.delete-files"
    with opened(tmp_path) as storage:
        created = storage.create_table(PATH, log_table())
        with refused(ErrorCode.INVALID_TABLE, option, "without a primary key", "leave it out"):
            storage.alter_table(PATH, {option: "position"})
        assert storage.table(PATH) == created
        keyed = storage.create_table(TablePath("db", "keyed"), kv_table())
        assert storage.alter_table(keyed.path, {option: "position"}).descriptor.properties[option] == "position"


def test_a_table_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as storage, refused(ErrorCode.TABLE_NOT_EXIST, str(PATH)):
        storage.alter_table(PATH, {})


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_change_that_cannot_be_written_did_not_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:  # S24
    with opened(tmp_path) as storage:
        created = storage.create_table(PATH, log_table())

        def fail(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(*((os, "fsync") if failing == "fsync" else (Path, "replace")), fail)
            with refused(ErrorCode.STORAGE, "No space left"):
                storage.alter_table(PATH, {FRESHNESS: "1min"})
        assert storage.table(PATH) == created
        storage.write(PATH, WriteKind.APPEND, log_rows(0, 1))
    with opened(tmp_path) as storage:
        assert storage.table(PATH) == created


def test_an_offsets_file_is_laid_out_as_fluss_reads_it(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, log_table(3)).table_id
        path = storage.write_lake_offsets(table_id, {TableBucket(table_id, 2): 400, TableBucket(table_id, 0): 7})
        assert Path(path).read_text() == f'{{"version":1,"table_id":{table_id},"bucket_offsets":[7,-1,400]}}'
        again = storage.write_lake_offsets(table_id, {TableBucket(table_id, 0): -1})
        assert again != path
        assert json.loads(Path(again).read_text())["bucket_offsets"] == [-1, -1, -1]
    with opened(tmp_path) as storage:
        assert storage.has_lake_offsets(table_id, path)


def test_only_a_file_made_for_the_table_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table()).table_id
        other = storage.create_table(TablePath("shop", "other"), log_table()).table_id
        path = Path(storage.write_lake_offsets(table, {TableBucket(table, 0): 1}))
        assert storage.has_lake_offsets(table, str(path))
        assert not storage.has_lake_offsets(other, str(path))
        assert not storage.has_lake_offsets(table, str(path.with_name("missing.offsets")))
        assert not storage.has_lake_offsets(table, str(path.parent.parent / "table.json"))
        with refused(ErrorCode.TABLE_NOT_EXIST):
            storage.has_lake_offsets(99, str(path))
        path.unlink()
        assert not storage.has_lake_offsets(table, str(path))


@pytest.mark.parametrize(
    ("bucket", "offset", "message"),
    [((0, 1), 5, "expected buckets 0 to 0"), ((1, 0), 5, "expected buckets"), ((0, 0), -2, "expected -1 or more")],
)
def test_offsets_of_other_buckets_are_refused(
    tmp_path: Path, bucket: tuple[int, int], offset: int, message: str
) -> None:
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, log_table()).table_id
        with refused(ErrorCode.INVALID_REQUEST, message):
            storage.write_lake_offsets(table_id, {TableBucket(table_id + bucket[0], bucket[1]): offset})
        assert not list(tmp_path.glob("tables/*/*/metadata/*"))


@pytest.mark.slow
def test_files_are_looked_through_now_and_then_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day, minute = 24 * 3600, 60
    looks = []
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table()).table_id

        def write(at: int) -> str:
            path = storage.write_lake_offsets(table, {TableBucket(table, 0): 1})
            os.utime(path, (at, at))
            return path

        glob = Path.glob
        monkeypatch.setattr(Path, "glob", lambda self, pattern: looks.append(pattern) or glob(self, pattern))
        old = write(at=10 * day)
        assert storage.delete_lake_offsets(table, write(at=10 * day), ()) == 0
        # A commit each second, a day later.
        for second in range(20 * minute):
            registered = write(at=20 * day + second)
            storage.delete_lake_offsets(table, registered, (old,))
        assert len(looks) == 1 + 2
        assert Path(old).exists()
        assert storage.delete_lake_offsets(table, write(at=20 * day + 30 * minute), ()) == 1
        assert not Path(old).exists()
        # A clock that was set back hides no file for ever.
        old = write(at=3 * day)
        assert storage.delete_lake_offsets(table, write(at=5 * day), ()) == 1


KEY = Column("key", DataType.parse("BIGINT NOT NULL"))


def whole_units(kind: DataType) -> DataType:
    """Return the type with the precision of its Arrow type, which no value exceeds."""
    if kind.fields:
        fields = (replace(field, data_type=whole_units(field.data_type)) for field in kind.fields)
        return replace(kind, fields=tuple(fields))
    if kind.root not in WITH_PRECISION or kind.root is DataTypeRoot.DECIMAL:
        return kind
    return replace(kind, precision=UNIT_PRECISION[arrow_type(kind).unit])


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_rows_of_any_columns_come_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    drawn = data.draw(columns(10, nesting=2))
    of = tuple(replace(column, data_type=whole_units(column.data_type)) for column in drawn)
    rows = data.draw(record_batches(of))
    keys = pa.array(range(rows.num_rows), pa.int64())
    keyed = pa.RecordBatch.from_arrays([keys, *rows.columns], names=["key", *rows.schema.names])
    with opened(tmp_path_factory.mktemp("log")) as storage:
        table = storage.create_table(PATH, TableDescriptor(of))
        storage.write(PATH, WriteKind.APPEND, pa.Table.from_batches([rows]))
        (info,) = storage.buckets(PATH)
        batches = list(storage.reader().read_log(table, info.bucket, 0, info.log_end_offset))
        assert [batch.records.num_rows for batch in batches] == [rows.num_rows] * bool(rows.num_rows)
        assert all(same(batch.records, rows) for batch in batches)
    with opened(tmp_path_factory.mktemp("kv")) as storage:
        table = storage.create_table(PATH, TableDescriptor((KEY, *of), primary_key=("key",)))
        storage.write(PATH, WriteKind.UPSERT, pa.Table.from_batches([keyed]))
        storage.write(PATH, WriteKind.UPSERT, pa.Table.from_batches([keyed]))
        for snapshot in storage.take_kv_snapshots(PATH):
            (found,) = storage.reader().read_kv_snapshot(table, snapshot, None, None)
            assert same(found.drop_columns(["key"]), rows)
