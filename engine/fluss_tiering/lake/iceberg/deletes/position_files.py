"""Position delete files of the format version 2: Parquet files with the location of a data file and a row's position.

A file of deletes in one data file names it, so that readers open it for this data file only. If most data files of a
place are touched, one file for all of them is smaller to list, and its row groups have the bounds of locations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import fs

from fluss_tiering.formats.micros import column_of
from fluss_tiering.lake.iceberg.deletes.place import DeletePlace
from fluss_tiering.lake.iceberg.deletes.positions import PositionDeletes
from fluss_tiering.lake.iceberg.deletes.present import PresentDeletes
from fluss_tiering.lake.iceberg.deletes.schema import PATH_COLUMN, PATH_ID, POSITION_ID, SCHEMA
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.iceberg.metrics.modes import FULL
from fluss_tiering.lake.iceberg.parquet import OpenFile
from fluss_tiering.lake.object_store import naming_expired_credentials, path_of
from fluss_tiering.lake.protocol import FileContent, Int64s, LakeFile

_MAX_SINGLE_FILES: Final = 8
"""Up to this many touched data files have a delete file each."""
_GROUP_ROWS: Final = 1 << 18
"""The size of a row group. A row takes its location's length in memory while it is written."""


def write_position_deletes(
    place: DeletePlace,
    deletes: PositionDeletes,
    live_files: int,
    present: Mapping[str, PresentDeletes] | None = None,
) -> list[LakeFile]:
    """Write the deletes as files that a commit adds to a lake table of the format version 2.

    There is a file for each data file; but a single one, if more than 8 data files have deletes and these are more than
    half of the live data files of the place.

    Args:
        place: Where the files are written. All data files must be of its partition and its bucket.
        deletes: The rows to delete.
        live_files: The number of the place's data files in the snapshot from which the deletes were planned.
        present: What is deleted of data files already, as `present_deletes` returns it. The file of a data file then
            holds that, too, and replaces the delete files that are about this data file alone, so that they do not
            grow in number. None, or a data file without an entry: its delete files stay beside the new one. A single
            file for all holds nothing else and replaces nothing.

    Returns:
        The new files; none if there are no deletes.

    Raises:
        FlussTieringError: STORAGE if this executor does not see the folder of the lake.
        ExpiredCredentialsError: if the credentials for the lake's store are not valid any more.
        ValueError: if `deletes` is not what it should be.
    """
    touched = len(deletes.touched)
    if not touched:
        return []
    together = touched > _MAX_SINGLE_FILES and touched > live_files / 2
    written = _DeleteFiles(place, place.open())
    with naming_expired_credentials(place.io_properties):
        try:
            for location, positions in deletes.by_file():
                found = None if together or present is None else present.get(location)
                written.write(location, positions if found is None else _with_own(positions, found))
                if not together:
                    written.finish(() if found is None else found.files)
            written.finish()
        except BaseException:
            written.abort()
            raise
    return written.files


class _DeleteFiles:
    """Writes delete files, one after the other."""

    def __init__(self, place: DeletePlace, filesystem: fs.FileSystem) -> None:
        self._place = place
        self._filesystem = filesystem
        # The bounds of locations are those by which engines leave out files: they must not be shortened.
        self._settings = replace(place.writer, metrics_modes={PATH_ID: FULL, POSITION_ID: FULL})
        self._open: OpenFile | None = None
        self._referenced: list[str] = []
        self._buffer: list[pa.Table] = []
        self._buffered_rows = 0
        self.files: list[LakeFile] = []

    def write(self, location: str, positions: Int64s) -> None:
        """Add the deletes of one data file."""
        self._referenced.append(location)
        for start in range(0, len(positions), _GROUP_ROWS):
            part = positions[start : start + _GROUP_ROWS]
            self._buffer.append(_rows(location, part))
            self._buffered_rows += len(part)
            if self._buffered_rows >= _GROUP_ROWS:
                self._flush()

    def _flush(self) -> None:
        if self._open is None:
            location = f"{self._place.prefix}-{len(self.files):05d}.parquet"
            self._open = OpenFile(location, SCHEMA, self._settings, self._filesystem, dictionaries=[PATH_COLUMN])
        for group in _groups(pa.concat_tables(self._buffer)):
            self._open.write(group)
        self._buffer, self._buffered_rows = [], 0

    def finish(self, replaces: tuple[LakeFile, ...] = ()) -> None:
        """Finish the file that is open, if there is one. It takes the place of the delete files that are named."""
        if self._buffer:
            self._flush()
        if self._open is None:
            return
        size, metrics = self._open.close()
        self.files.append(
            LakeFile(
                FileContent.POSITION_DELETES,
                self._place.bucket,
                self._open.location,
                size,
                metrics,
                self._place.partition_values,
                referenced=tuple(self._referenced),
                replaces=replaces,
            )
        )
        self._open = None
        self._referenced = []

    def abort(self) -> None:
        """Delete what was written, as far as possible."""
        locations = [file.location for file in self.files]
        if self._open is not None:
            locations.append(self._open.location)
            self._open.abandon()
        for location in locations:
            # Whatever fails here, the failure that led here is the one to report.
            with suppress(Exception):
                self._filesystem.delete_file(path_of(location))


def _with_own(positions: Int64s, present: PresentDeletes) -> Int64s:
    if not present.files:
        return positions
    both = DeletionVector()
    both.update(present.own)
    both.add(positions)
    return both.positions()


def _groups(rows: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, _GROUP_ROWS):
        yield rows.slice(start, _GROUP_ROWS)


def _rows(location: str, positions: Int64s) -> pa.Table:
    same = pa.DictionaryArray.from_arrays(
        column_of(pa.int32(), np.zeros(len(positions), np.int32)), pa.array([location])
    )
    return pa.table([same.cast(pa.string()), column_of(pa.int64(), positions)], schema=SCHEMA)
