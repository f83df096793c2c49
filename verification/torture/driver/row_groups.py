"""What a driver's workers write otherwise: small row groups, as large files have them, and no room on the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fluss_tiering.lake.iceberg import parquet
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeFileWriter, PieceWriter

ROW_GROUP_ROWS: Final = "torture.row-group-rows"
"""The option of a table, its own, that says how many rows a row group has."""
DISK_FULL_VARIABLE: Final = "TORTURE_DISK_FULL"
"""Names a file. While it exists, workers cannot write."""
_OF_MAINTENANCE: Final = ContextVar("of_maintenance", default=False)


@dataclass(frozen=True)
class _SmallGroups:
    """Makes a worker write small row groups."""

    writer: LakeFileWriter
    rows: int

    def __getattr__(self, name: str) -> Any:
        # A task that gets this object pickled asks for names before the writer is there.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.writer, name)

    def open_piece(self, *arguments: Any, **others: Any) -> PieceWriter:
        return self._slicing(self.writer.open_piece, *arguments, **others)

    def open_noting_piece(self, *arguments: Any, **others: Any) -> Any:
        return self._slicing(self.writer.open_noting_piece, *arguments, **others)

    def write_deletes(self, *arguments: Any) -> Any:
        return self.writer.write_deletes(*arguments)

    def rebase_deletes(self, *arguments: Any) -> Any:
        return self.writer.rebase_deletes(*arguments)

    def _slicing(self, opened: Callable[..., PieceWriter], *arguments: Any, **others: Any) -> PieceWriter:
        if Path(os.environ.get(DISK_FULL_VARIABLE, "/nowhere")).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        parquet._MAX_BUFFERED_ROWS = self.rows
        return _Slicing(opened(*arguments, **others), self.rows)


class _Slicing:
    """Hands rows on a few at a time."""

    def __init__(self, writer: PieceWriter, rows: int) -> None:
        self._writer = writer
        self._rows = rows

    def write(self, rows: pa.RecordBatch, offsets: Any, timestamps_ms: Any) -> None:
        for start in range(0, rows.num_rows, self._rows):
            part = slice(start, start + self._rows)
            self._writer.write(rows.slice(start, self._rows), offsets[part], timestamps_ms[part])

    def delete(self, keys: pa.RecordBatch) -> None:
        for start in range(0, keys.num_rows, self._rows):
            self._writer.delete(keys.slice(start, self._rows))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


@contextmanager
def of_maintenance() -> Iterator[None]:
    """Leave the files alone that this thread writes in the block."""
    token = _OF_MAINTENANCE.set(True)
    try:
        yield
    finally:
        _OF_MAINTENANCE.reset(token)


def switch_on() -> None:
    """Let rounds of this driver write small row groups where a table asks for them."""
    default = parquet._MAX_BUFFERED_ROWS
    original = IcebergTable.file_writer

    def file_writer(table: IcebergTable, *, renew: bool = False) -> Any:
        if _OF_MAINTENANCE.get():
            return original(table, renew=renew)
        rows = table._table.descriptor.properties.get(ROW_GROUP_ROWS)
        # The number stays in a worker, which the next table's pieces use as well.
        return _SmallGroups(original(table, renew=renew), int(rows) if rows else default)

    IcebergTable.file_writer = file_writer  # type: ignore[method-assign,assignment]
