"""Position delete files of the format version 2: Parquet files with the location of a data file and a row's position.

A place has one delete file that all data files share, for the newest few deletes of each. Each round that changes it
writes it anew. A data file with many deleted rows has delete files of its own besides. A large one is not written again
for a few more rows: a new one is put beside it, and takes in those that are not larger. So a reader opens a few of them
for a data file, however many rounds there were; a round writes a few, however many small data files it touches; and it
writes about as many rows as it deletes, however many are deleted already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import fs

from fluss_tiering.formats.micros import column_of
from fluss_tiering.lake.files import FileContent, LakeFile
from fluss_tiering.lake.iceberg.deletes.each_file import write_each
from fluss_tiering.lake.iceberg.deletes.place import DeletePlace
from fluss_tiering.lake.iceberg.deletes.positions import PositionDeletes
from fluss_tiering.lake.iceberg.deletes.present import PresentDeletes
from fluss_tiering.lake.iceberg.deletes.schema import PATH_COLUMN, PATH_ID, POSITION_ID, SCHEMA
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector, union_of
from fluss_tiering.lake.iceberg.metrics.modes import FULL
from fluss_tiering.lake.iceberg.parquet import OpenFile
from fluss_tiering.lake.protocol import Int64s

_FEW_DATA_FILES: Final = 8
"""Up to this many touched data files have a delete file each."""
_FEW_POSITIONS: Final = 10_000
"""More deleted rows of a data file are in a file of their own, so that they are not written again for others."""
_MOST_OWN_FILES: Final = 4
"""A data file has at most so many delete files of its own."""
_GROUP_ROWS: Final = 1 << 17
"""The size of a row group."""
_PATH_FIELD: Final = SCHEMA.field(PATH_COLUMN)
_WRITTEN: Final = SCHEMA.set(0, _PATH_FIELD.with_type(pa.dictionary(pa.int32(), _PATH_FIELD.type)))
"""The same columns with the locations as a dictionary. Parquet's writer takes it as it is, and hashes no location for
each row. Readers see texts."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """A delete file: the positions in each data file, which are in the order of UTF-8, and what it replaces."""

    deletes: Sequence[tuple[str, DeletionVector]]
    replaces: tuple[LakeFile, ...]


def write_position_deletes(
    place: DeletePlace, deletes: PositionDeletes, present: Mapping[str, PresentDeletes] | None = None
) -> list[LakeFile]:
    """Write the deletes as files that a commit adds to a lake table of the format version 2.

    Args:
        place: Where the files are written. All data files must be of its partitions.
        present: What is deleted of data files already, as `present_deletes` returns it. The new files then hold that,
            too, except for what is in large files, and replace the delete files that have it. If a data file of
            `deletes` shares a delete file with other live data files of the place, these must be here, too. None: what
            is there stays beside the new files.

    Returns:
        The new files; none if there are no deletes.

    Raises:
        FlussTieringError: STORAGE if this executor does not see the folder of the lake.
        ExpiredCredentialsError: if the credentials for the lake's store are not valid any more.
        ValueError: if `deletes` is not what it should be.
    """
    # The bounds of locations are those by which engines leave out files: they must not be shortened.
    settings = replace(place.writer, metrics_modes={PATH_ID: FULL, POSITION_ID: FULL})

    def write(filesystem: fs.FileSystem, location: str, planned: _Planned) -> LakeFile:
        file = OpenFile(location, _WRITTEN, settings, filesystem, dictionaries=[PATH_COLUMN])
        try:
            for group in _groups(planned.deletes):
                file.write(_rows(group))
            size, metrics = file.close()
        except BaseException:
            file.abandon()
            raise
        spec_id, row_partition = place.partition_of(planned.deletes[0][0])
        return LakeFile(
            FileContent.POSITION_DELETES,
            place.bucket,
            location,
            size,
            metrics,
            place.partition_values,
            referenced=tuple(data_file for data_file, _ in planned.deletes),
            replaces=planned.replaces,
            row_partition=row_partition,
            spec_id=spec_id,
        )

    present = present or {}
    planned = []
    for data_files in place.by_partition({**deletes.vectors, **present}):
        vectors = {each: deletes.vectors[each] for each in data_files if each in deletes.vectors}
        planned += _planned(vectors, {each: present[each] for each in data_files if each in present})
    return write_each(place, planned, "parquet", write)


def _planned(deletes: Mapping[str, DeletionVector], present: Mapping[str, PresentDeletes]) -> list[_Planned]:
    """Divide the deletes of data files of one partition among delete files."""
    found = {data_file: present.get(data_file, PresentDeletes()) for data_file in deletes}
    # These are written anew, so all that they delete has a place in the new files.
    shared = {file.location: file for each in found.values() for file in each.shared_files}
    alone: list[_Planned] = []
    together: dict[str, DeletionVector] = {}
    replaced: list[LakeFile] = []
    for data_file, vector in deletes.items():
        merged, merged_files = _merged(vector, found[data_file])
        if len(merged) > _FEW_POSITIONS or (len(deletes) <= _FEW_DATA_FILES and not shared):
            alone.append(_Planned([(data_file, merged)], tuple(merged_files)))
        else:
            together[data_file] = merged
            replaced += merged_files
    for data_file, other in present.items():
        if data_file not in deletes and any(file.location in shared for file in other.shared_files):
            together[data_file] = other.shared
    if together:
        # Python orders text by code points, which is the order of its UTF-8.
        ordered = [(data_file, together[data_file]) for data_file in sorted(together)]
        return [*alone, _Planned(ordered, (*replaced, *shared.values()))]
    if shared:
        # Each of its data files has a delete file of its own now.
        alone[0] = replace(alone[0], replaces=(*alone[0].replaces, *shared.values()))
    return alone


def _merged(vector: DeletionVector, present: PresentDeletes) -> tuple[DeletionVector, list[LakeFile]]:
    """Return what a new delete file has of a data file, and the data file's own delete files that it takes in."""
    merged, files = union_of([vector, present.shared]), []
    own = sorted(present.own, key=lambda each: len(each[1]), reverse=True)
    while own and (len(own) >= _MOST_OWN_FILES or len(own[-1][1]) <= max(len(merged), _FEW_POSITIONS)):
        file, smallest = own.pop()
        merged.update(smallest)
        files.append(file)
    return merged, files


def _groups(deletes: Sequence[tuple[str, DeletionVector]]) -> Iterator[list[tuple[str, Int64s]]]:
    """Yield the rows of a delete file in row groups. Only the positions of one data file are in memory as numbers."""
    group: list[tuple[str, Int64s]] = []
    room = _GROUP_ROWS
    for data_file, vector in deletes:
        positions = vector.positions()
        while len(positions):
            group.append((data_file, positions[:room]))
            positions = positions[room:]
            room -= len(group[-1][1])
            if not room:
                yield group
                group, room = [], _GROUP_ROWS
    if group:
        yield group


def _rows(deletes: Sequence[tuple[str, Int64s]]) -> pa.Table:
    """Return the rows of a row group in the schema `_WRITTEN`."""
    sizes = [len(positions) for _, positions in deletes]
    numbers = column_of(pa.int32(), np.repeat(np.arange(len(deletes), dtype=np.int32), sizes))
    locations = pa.DictionaryArray.from_arrays(numbers, pa.array([location for location, _ in deletes], pa.string()))
    positions = np.concatenate([np.empty(0, np.int64), *(each for _, each in deletes)])
    return pa.table([locations, column_of(pa.int64(), positions)], schema=_WRITTEN)
