"""Position delete files of the format version 2: Parquet files with the location of a data file and a row's position.

Each has the deletes of one data file, and names it, so that readers open it for this data file only. A file of deletes
in many data files would be opened for each of them: after n rounds, a full read would open such files n times n times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import fs

from fluss_tiering.formats.micros import column_of
from fluss_tiering.lake.iceberg.deletes.each_file import write_each
from fluss_tiering.lake.iceberg.deletes.place import DeletePlace
from fluss_tiering.lake.iceberg.deletes.positions import PositionDeletes
from fluss_tiering.lake.iceberg.deletes.present import PresentDeletes
from fluss_tiering.lake.iceberg.deletes.schema import PATH_COLUMN, PATH_ID, POSITION_ID, SCHEMA
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.iceberg.metrics.modes import FULL
from fluss_tiering.lake.iceberg.parquet import OpenFile
from fluss_tiering.lake.protocol import FileContent, Int64s, LakeFile

_GROUP_ROWS: Final = 1 << 17
"""The size of a row group. A row takes its location's length in memory while it is written."""


def write_position_deletes(
    place: DeletePlace, deletes: PositionDeletes, present: Mapping[str, PresentDeletes] | None = None
) -> list[LakeFile]:
    """Write the deletes as files that a commit adds to a lake table of the format version 2, one for each data file.

    Args:
        place: Where the files are written. All data files must be of its partition and its bucket.
        deletes: The rows to delete.
        present: What is deleted of data files already, as `present_deletes` returns it. The file of a data file then
            holds that, too, and replaces the delete files that are about this data file alone, so that they do not
            grow in number. None, or a data file without an entry: its delete files stay beside the new one.

    Returns:
        The new files; none if there are no deletes.

    Raises:
        FlussTieringError: STORAGE if this executor does not see the folder of the lake.
        ExpiredCredentialsError: if the credentials for the lake's store are not valid any more.
        ValueError: if `deletes` is not what it should be.
    """
    # The bounds of locations are those by which engines leave out files: they must not be shortened.
    settings = replace(place.writer, metrics_modes={PATH_ID: FULL, POSITION_ID: FULL})

    def write(filesystem: fs.FileSystem, location: str, data_file: str, positions: Int64s) -> LakeFile:
        found = (present or {}).get(data_file, PresentDeletes())
        file = OpenFile(location, SCHEMA, settings, filesystem, dictionaries=[PATH_COLUMN])
        try:
            everything = _with_own(positions, found)
            for start in range(0, len(everything), _GROUP_ROWS):
                file.write(_rows(data_file, everything[start : start + _GROUP_ROWS]))
            size, metrics = file.close()
        except BaseException:
            file.abandon()
            raise
        return LakeFile(
            FileContent.POSITION_DELETES,
            place.bucket,
            location,
            size,
            metrics,
            place.partition_values,
            referenced=(data_file,),
            replaces=found.files,
        )

    return write_each(place, deletes, "parquet", write)


def _with_own(positions: Int64s, present: PresentDeletes) -> Int64s:
    if not present.files:
        return positions
    both = DeletionVector()
    both.update(present.own)
    both.add(positions)
    return both.positions()


def _rows(location: str, positions: Int64s) -> pa.Table:
    same = pa.DictionaryArray.from_arrays(
        column_of(pa.int32(), np.zeros(len(positions), np.int32)), pa.array([location])
    )
    return pa.table([same.cast(pa.string()), column_of(pa.int64(), positions)], schema=SCHEMA)
