"""The tables of a data folder, by path and by id."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fluss_tiering.model.column_changes import ColumnChange
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, TablePath
from fluss_tiering.storage.data_dir import TABLES_FOLDER, DataDir
from fluss_tiering.storage.embedded.column_changes import with_changed_columns
from fluss_tiering.storage.embedded.layout import table_folder, table_folder_name
from fluss_tiering.storage.embedded.rocksdb import RocksDbMemory
from fluss_tiering.storage.embedded.table.folder import make_table_folder, open_table, read_table_file, write_table_file
from fluss_tiering.storage.embedded.table.table import EmbeddedTable
from fluss_tiering.storage.embedded.validation import altered, validate
from fluss_tiering.storage.files import (
    DELETED_SUFFIX,
    TEMPORARY_SUFFIX,
    corrupt,
    delete_folder,
    rename_durably,
    reporting_os_errors,
)

_SCHEMA_ID = 1
"""The id of a table's first schema, as in Fluss."""
_STATUS_TABLE = TablePath("sys", "lake_tiering_status")
"""The name under which Spark's catalog shows the tiering status."""


class Catalog:
    """The tables of a data folder. Threads may share a catalog."""

    def __init__(self, data_dir: DataDir, segment_bytes: int) -> None:
        """Find all tables and delete those that a crash left half made or half dropped.

        Raises:
            FlussTieringError: CORRUPT_DATA if a file is damaged, missing or foreign.
        """
        self._data_dir = data_dir
        self._segment_bytes = segment_bytes
        self._memory = RocksDbMemory()
        self._lock = threading.Lock()
        self._by_path: dict[TablePath, EmbeddedTable] = {}
        self._by_id: dict[int, EmbeddedTable] = {}
        for database in _folders(data_dir.root / TABLES_FOLDER, "databases"):
            for folder in _folders(database, "tables"):
                if folder.suffix in {TEMPORARY_SUFFIX, DELETED_SUFFIX}:
                    delete_folder(folder)
                else:
                    self._add(self._open(folder))

    def open_all(self) -> None:
        """Open all tables now instead of when they are first used.

        Raises:
            FlussTieringError: CORRUPT_DATA if a file is damaged; STORAGE if a file cannot be used.
        """
        for table in self.all():
            _ = table.buckets

    def get(self, path: TablePath) -> EmbeddedTable:
        """Return the table at this path.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is none.
        """
        table = self._by_path.get(path)
        if table is None:
            raise table_not_exist(path)
        return table

    def get_by_id(self, table_id: int) -> EmbeddedTable:
        """Return the table that has this id.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is none.
        """
        table = self._by_id.get(table_id)
        if table is None:
            raise table_not_exist(table_id)
        return table

    def all(self) -> list[EmbeddedTable]:
        """Return all tables, ordered by path."""
        with self._lock:
            return [self._by_path[path] for path in sorted(self._by_path)]

    def create(self, path: TablePath, descriptor: TableDescriptor, created_time: int) -> EmbeddedTable:
        """Create a table.

        Raises:
            FlussTieringError: INVALID_TABLE if there cannot be such a table; TABLE_ALREADY_EXIST if there is one at
                this path; STORAGE if the disk refuses.
        """
        descriptor = validate(descriptor)
        if path == _STATUS_TABLE:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"table {path} is the tiering status in Spark's catalog, where no other table could be read under this "
                "name: take another one",
            )
        with self._lock:
            if path in self._by_path:
                raise FlussTieringError(
                    ErrorCode.TABLE_ALREADY_EXIST,
                    f"table {path} already exists: drop it first, or choose another name",
                )
            info = TableInfo(self._data_dir.allocate_table_id(), path, _SCHEMA_ID, descriptor, created_time)
            folder = table_folder(self._data_dir.root, path, info.table_id)
            with reporting_os_errors("make the table's folder", folder):
                make_table_folder(folder, info)
            table = self._open(folder)
            self._add(table)
            return table

    def alter(self, path: TablePath, properties: Mapping[str, str]) -> TableInfo:
        """Replace the options of a table.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TABLE if an option cannot change;
                STORAGE if the disk refuses.
        """
        with self._lock:
            table = self.get(path)
            info = replace(table.info, descriptor=altered(table.info.descriptor, properties))
            _write(table, info)
            table.info = info
            return info

    def alter_columns(self, path: TablePath, changes: Sequence[ColumnChange]) -> TableInfo:
        """Change the columns of a table between two writes.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TABLE if a change is refused; STORAGE
                if the disk refuses.
        """
        table = self.get(path)
        with table.exclusively(), self._lock:
            info = with_changed_columns(table.info, changes)
            _write(table, info)
            table.use(info)
            return info

    def drop(self, path: TablePath) -> TableInfo:
        """Drop a table with its files, after the writes that are under way.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; STORAGE if the disk refuses.
        """
        table = self.get(path)
        doomed = table.folder.with_name(table.folder.name + DELETED_SUFFIX)
        with table.exclusively():
            table.release_files()
            with self._lock, reporting_os_errors("delete the table's folder", table.folder):
                rename_durably(table.folder, doomed)
                del self._by_path[path], self._by_id[table.info.table_id]
            table.refuse_from_now_on(table_not_exist(path))
        delete_folder(doomed)
        return table.info

    def _open(self, folder: Path) -> EmbeddedTable:
        info = read_table_file(folder)
        if (folder.parent.name, folder.name) != (info.path.database, table_folder_name(info.path, info.table_id)):
            raise corrupt(
                folder, f"holds table {info.path} with id {info.table_id}", "the table it is named by", "move it back"
            )
        return open_table(
            info,
            data_dir=self._data_dir.root,
            folder=folder,
            memory=self._memory,
            segment_bytes=self._segment_bytes,
            allocate_partition_ids=self._data_dir.allocate_partition_ids,
        )

    def _add(self, table: EmbeddedTable) -> None:
        other = self._by_path.get(table.info.path)
        if other is not None:
            raise corrupt(table.folder, f"is a second {table.info.path}", f"only {other.folder}", "move one away")
        self._by_path[table.info.path] = table
        self._by_id[table.info.table_id] = table


def _write(table: EmbeddedTable, info: TableInfo) -> None:
    with reporting_os_errors("write the definition in", table.folder):
        try:
            write_table_file(table.folder, info)
        except OSError:
            # The new definition may be in its place already, and would count after a restart.
            with suppress(OSError):
                write_table_file(table.folder, table.info)
            raise


def _folders(parent: Path, kind: str) -> list[Path]:
    with os.scandir(parent) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        if not entry.is_dir():
            raise corrupt(Path(entry.path), "is foreign", f"only folders of {kind} here", "move it away")
    return [parent / entry.name for entry in entries]


def table_not_exist(which: TablePath | int) -> FlussTieringError:
    """Return TABLE_NOT_EXIST for a path or an id."""
    named = f"with id {which}" if isinstance(which, int) else str(which)
    return FlussTieringError(
        ErrorCode.TABLE_NOT_EXIST,
        f"table {named} does not exist: `fluss-tiering tables list` shows all tables",
    )
