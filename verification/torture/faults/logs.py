"""Logs of the embedded storage that no longer begin at 0, as retention leaves them. The server must not run."""

from __future__ import annotations

from pathlib import Path

from fluss_tiering.formats.log.batch import read_header
from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.embedded.layout import log_folder, segment_file, table_folder
from fluss_tiering.storage.embedded.segment_reader import list_segments


def cut_first_batch(data_dir: Path, table: TableInfo) -> int:
    """Cut the first batch off the log of the only bucket, unless it is the last one, and return its number of rows."""
    folder = log_folder(table_folder(data_dir, table.path, table.table_id), 0)
    bases = list_segments(folder)
    if len(bases) != 1:
        return 0
    path = segment_file(folder, bases[0])
    log = path.read_bytes()
    first = read_header(memoryview(log), 0)
    if first.size >= len(log):
        return 0
    second = read_header(memoryview(log), first.size)
    path.unlink()
    segment_file(folder, second.base_offset).write_bytes(log[first.size :])
    return second.base_offset - first.base_offset
