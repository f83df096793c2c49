"""Columns of stored tables are altered: rows of every schema are read alike, and what cannot be is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from embedded_tables import KV_COLUMNS, PATH, columns, end_offsets, kv_keys, kv_rows, opened, read_changes, replayed
from refusals import refused

from engine_support import ServerThread
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.compacted.row import decode_stored
from fluss_tiering.formats.stored_schemas import StoredSchemas
from fluss_tiering.model.column_changes import AddColumn, ColumnChange, DropColumn, RenameColumn, WidenColumn
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.storage.embedded.table import table as table_module
from fluss_tiering.storage.open import open_split_reader
from fluss_tiering.storage.remote import RemoteSplitReader

NOTE = Column("note", DataType.parse("STRING"), "what was said")
WIDE = DataType.parse("DECIMAL(20, 2)")
ALL = (AddColumn(NOTE), RenameColumn("name", "label"), WidenColumn("amount", WIDE), AddColumn(Column("name", WIDE)))


def described() -> TableDescriptor:
    return TableDescriptor(KV_COLUMNS, primary_key=("id", "region"), bucket_keys=("id",))


def add(kind: str = "INT", name: str = "x") -> AddColumn:
    return AddColumn(Column(name, DataType.parse(kind)))


def test_changes_that_are_refused(tmp_path: Path) -> None:
    of_lake = {
        "table.datalake.layout": "clean",
        "table.datalake.partition-by": "hours(at), kind",
        "table.datalake.sort-by": "size",
        "table.datalake.record-level.expire-time": "1d",
        "table.datalake.record-level.time-field": "until",
    }
    keys_of = columns(id="INT NOT NULL", day="STRING NOT NULL")
    of_columns = (*keys_of, *columns(at="TIMESTAMP", kind="INT", size="BIGINT", until="DATE", d="DECIMAL(9, 3)"))
    wide = columns(**{f"c{number}": "INT" for number in range(4_999)})
    keys: dict[str, Any] = {"primary_key": ("id", "day"), "bucket_keys": ("id",), "partition_keys": ("day",)}
    cases: list[tuple[ColumnChange, str]] = [
        (RenameColumn("nmae", "x"), "has no column 'nmae': expected one of id, day, at, kind, size, until, d"),
        (DropColumn("nmae"), "has no column 'nmae'"),
        (WidenColumn("nmae", WIDE), "has no column 'nmae'"),
        *((DropColumn(name), "is used by the primary key") for name in ("id", "day")),
        (RenameColumn("id", "key"), "'id' of table shop.orders is used by the primary key"),
        (WidenColumn("id", DataType.parse("BIGINT")), "used by the primary key"),
        (DropColumn("at"), "used by the option table.datalake.partition-by"),
        (RenameColumn("kind", "sort"), "used by the option table.datalake.partition-by"),
        (WidenColumn("kind", DataType.parse("BIGINT")), "used by the option table.datalake.partition-by"),
        (DropColumn("size"), "used by the option table.datalake.sort-by"),
        (RenameColumn("until", "end"), "used by the option table.datalake.record-level.time-field"),
        (
            WidenColumn("d", DataType.parse("DECIMAL(8, 3)")),
            "a wider type: a DECIMAL with more than 9 digits, 3",
        ),
        (WidenColumn("d", DataType.parse("DECIMAL(20, 4)")), "'d' is DECIMAL(9, 3) and cannot become DECIMAL(20, 4)"),
        (WidenColumn("d", DataType.parse("DOUBLE")), "cannot become DOUBLE"),
        (WidenColumn("d", DataType.parse("DECIMAL(20, 3) NOT NULL")), "cannot become DECIMAL(20, 3) NOT NULL"),
        (add("INT NOT NULL"), "'x' is INT NOT NULL: expected it to be nullable"),
        (add(name="d"), "has a column 'd' already"),
        (add(name="D"), "differ by case only"),
        (add(name=""), "has no name"),
        (add(name="__offset"), "'__offset' is reserved"),
        (add(name="id_bucket"), "the name of Iceberg's partition field for the bucket key 'id'"),
        (add(name="at_hour"), "Iceberg calls the partition field of hours(at) 'at_hour'"),
        (RenameColumn("d", "at"), "has a column 'at' already"),
    ]
    with opened(tmp_path) as storage:
        made = storage.create_table(PATH, TableDescriptor(of_columns, properties=of_lake, **keys))
        for change, message in cases:
            with refused(ErrorCode.INVALID_TABLE, message):
                # Of several changes, none is made.
                storage.alter_columns(PATH, [add(name="before"), change])
            assert storage.table(PATH) == made
        storage.drop_table(PATH)
        widest = "it to stay"
        for kind, expected in (("BIGINT", widest), ("BOOLEAN", widest), ("SMALLINT", "a wider type: INT, BIGINT")):
            storage.create_table(PATH, TableDescriptor(columns(a=kind)))
            with refused(ErrorCode.INVALID_TABLE, f"expected {expected}"):
                storage.alter_columns(PATH, [WidenColumn("a", DataType.parse("TINYINT"))])
            with refused(ErrorCode.INVALID_TABLE, "has no columns"):
                storage.alter_columns(PATH, [DropColumn("a")])
            storage.drop_table(PATH)
        storage.create_table(PATH, TableDescriptor(wide))
        for number in range(3):
            storage.alter_columns(PATH, [RenameColumn(f"c{number}", "renamed" * (number + 1))])
        with refused(ErrorCode.INVALID_TABLE, "altered too often: expected at most 20,000 columns in all 5 schemas"):
            storage.alter_columns(PATH, [add()])


def test_rows_of_all_schemas_are_read_alike_everywhere(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "server") as server, TieringClient(server.target) as client:
        table = client.create_table(PATH, described())
        old = [{"id": key, "name": f"n{key}", "amount": key} for key in range(6)]
        list(client.write_rows(PATH, WriteKind.UPSERT, [kv_rows(old[:3])]))
        table = client.alter_table(PATH, column_changes=[add("ROW<at TIMESTAMP(0) NOT NULL>", "part")])
        list(client.write_rows(PATH, WriteKind.UPSERT, [kv_rows(old[3:])]))
        present = client.alter_table(PATH, column_changes=ALL)
        names = ["id", "region", "label", "amount", "part", "note", "name"]
        assert [each.name for each in present.descriptor.columns] == names
        assert present.descriptor.columns[5] == NOTE
        assert client.get_tables([PATH]) == [present]
        # A writer that does not know the new columns yet, and one that knows them.
        known = kv_rows([{"id": 5, "name": "again"}, {"id": 6, "name": "new"}]).rename_columns(
            ["id", "region", "label", "amount"]
        )
        list(client.write_rows(PATH, WriteKind.UPSERT, [known]))
        newest = known.slice(1).append_column("note", pa.array(["x"])).append_column("name", pa.array([7]))
        list(client.write_rows(PATH, WriteKind.UPSERT, [newest]))
        with refused(ErrorCode.INVALID_ROWS, "has no column 'nmae'"):
            list(client.write_rows(PATH, WriteKind.UPSERT, [known.append_column("nmae", pa.nulls(2))]))
        with refused(ErrorCode.INVALID_ROWS, "have no column 'label'"):
            list(client.write_rows(PATH, WriteKind.UPSERT, [known.drop_columns(["label"])]))
        list(client.write_rows(PATH, WriteKind.DELETE, [kv_keys(0, 1)]))
        snapshots = client.take_kv_snapshots([PATH])[table.table_id]
        (info,) = client.list_buckets([PATH])[PATH]
        expected = {
            **{key: {"label": f"n{key}", "amount": key, "note": None, "name": None} for key in range(2, 5)},
            5: {"label": "again", "amount": None, "note": None, "name": None},
            6: {"label": "new", "amount": None, "note": "x", "name": 7},
        }
        rows = [{"id": key, "region": "eu", "part": None, **row} for key, row in expected.items()]
        assert in_order(client.scan(present)) == rows
        for names in (["note", "label"], ["name"], ["amount", "id"], []):
            scanned = pa.Table.from_batches(list(client.scan(present, columns=names))) if names else None
            assert scanned is None or scanned.column_names == names
        local, remote = open_split_reader(client.describe_storage(), server.target), RemoteSplitReader(client)
        assert not isinstance(local, RemoteSplitReader)
        for reader in (local, remote):
            assert in_order(reader.read_kv_snapshot(present, snapshots[0], None, None)) == rows
            whole = list(reader.read_log(present, info.bucket, 0, info.log_end_offset))
            for names in (["note", "label"], ["name"], ["amount", "id"], []):
                some = list(reader.read_log(present, info.bucket, 0, info.log_end_offset, names))
                assert [each.records for each in some] == [each.records.select(names) for each in whole]
            with refused(ErrorCode.INVALID_TABLE, "were altered while it was read (schema 3 instead of 2)"):
                list(reader.read_log(table, info.bucket, 0, info.log_end_offset))
            assert sum(each.records.num_rows for each in reader.read_log(table, info.bucket, 0, 6)) == 6
        with refused(ErrorCode.INVALID_TABLE, "were altered while it was read"):
            list(client.scan(table))


def in_order(batches: Any) -> list[dict[str, Any]]:
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


def test_a_dropped_column_and_a_new_one_of_its_name_are_not_the_same_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        storage.create_table(PATH, described())
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 1, "name": "old"}]))
        _, scan = storage.open_kv_scan(storage.buckets(PATH)[0].bucket, admit=lambda: None, on_lost=lambda: None)
        storage.alter_columns(PATH, [DropColumn("name")])
        altered = storage.alter_columns(PATH, [add("STRING", "name")])
        assert altered.schema_id == 3
        # A session that was opened before gives rows of its moment.
        assert scan is not None
        (row,) = decode_stored(scan.read(None, None, None).values, StoredSchemas(altered)).to_pylist()
        assert row == {"id": 1, "region": "eu", "amount": None, "name": None}
    with opened(tmp_path) as storage:
        assert storage.table(PATH) == altered
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 1, "name": "new"}]))
        assert replayed(read_changes(storage)) == {(1, "eu"): {"id": 1, "region": "eu", "amount": None, "name": "new"}}
    for path in tmp_path.rglob("table.json"):
        path.write_text(path.read_text().replace('"format_version": 2', '"format_version": 3'))
    with refused(ErrorCode.CORRUPT_DATA, "has the format version 3", "version 2 at most"), opened(tmp_path):
        pass


def test_a_write_that_was_checked_before_a_change_is_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conform: Callable[..., pa.RecordBatch] = table_module.conform_write
    with opened(tmp_path) as storage:
        storage.create_table(PATH, described())
        changes: list[ColumnChange] = [AddColumn(NOTE)]

        def slowly(table: TableInfo, kind: WriteKind, rows: pa.Table) -> pa.RecordBatch:
            checked = conform(table, kind, rows)
            if changes:
                storage.alter_columns(PATH, [changes.pop()])
            return checked

        monkeypatch.setattr(table_module, "conform_write", slowly)
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 1}]))
        assert list(replayed(read_changes(storage)).values()) == [
            {"id": 1, "region": "eu", "name": None, "amount": None, "note": None}
        ]
        changes.append(DropColumn("amount"))
        with refused(ErrorCode.INVALID_ROWS, "has no column 'amount'"):
            storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 2}]))
        assert end_offsets(storage) == [1]


def test_columns_stay_if_the_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as storage:
        made = storage.create_table(PATH, described())
        with monkeypatch.context() as patched:
            patched.setattr("fluss_tiering.storage.embedded.catalog.write_table_file", _full)
            with pytest.raises(FlussTieringError) as caught:
                storage.alter_columns(PATH, [AddColumn(NOTE)])
        assert caught.value.code is ErrorCode.STORAGE
        assert storage.table(PATH) == made
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 1}]))
    with opened(tmp_path) as storage:
        assert storage.table(PATH) == made


def _full(folder: Path, table: TableInfo) -> None:
    raise OSError(28, "No space left on device")
