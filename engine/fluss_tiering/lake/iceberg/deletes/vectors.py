"""Deletion vectors of the format version 3: for each data file one bitmap, in a Puffin file of its own.

The spec allows several vectors in one Puffin file. DuckDB 1.5.5 then reads wrong rows, because its cache of external
files takes a part of one vector for another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyarrow import fs

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, VectorPlace
from fluss_tiering.lake.iceberg.deletes.each_file import write_each
from fluss_tiering.lake.iceberg.deletes.place import DeletePlace
from fluss_tiering.lake.iceberg.deletes.positions import PositionDeletes
from fluss_tiering.lake.iceberg.deletes.present import PresentDeletes
from fluss_tiering.lake.iceberg.deletes.puffin import PuffinWriter
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector

FIRST_WITH_VECTORS: Final = 3
"""The first format version that has deletion vectors, and no new position delete files."""


def write_vectors(
    place: DeletePlace, deletes: PositionDeletes, present: Mapping[str, PresentDeletes]
) -> list[LakeFile]:
    """Write the deletes as deletion vectors that a commit adds to a lake table of the format version 3.

    A data file may have one vector only. The new one therefore holds what is deleted already, too, and replaces the
    vector that the data file has, and the position delete files that are about this data file alone. The attribute
    `replaces` of a file says which; the commit removes them.

    Args:
        place: Where the Puffin files are written. All data files must be of its partitions.
        present: What is deleted of each data file with deletes, as `present_deletes` returns it.

    Returns:
        A file for each data file with deletes; none if there are no deletes.

    Raises:
        FlussTieringError: STORAGE if this executor does not see the folder of the lake.
        ExpiredCredentialsError: if the credentials for the lake's store are not valid any more.
        ValueError: if `deletes` is not what it should be, or if `present` does not know a data file.
    """
    unknown = next((location for location in deletes.vectors if location not in present), None)
    if unknown is not None:
        raise ValueError(f"what is deleted of the data file {unknown} was not read: expected it in `present`")

    def write(filesystem: fs.FileSystem, location: str, wanted: tuple[str, DeletionVector]) -> LakeFile:
        data_file, new = wanted
        vector = present[data_file].everything()
        vector.update(new)
        size, vector_place = _write_vector(filesystem, location, data_file, vector)
        spec_id, row_partition = place.partition_of(data_file)
        return LakeFile(
            FileContent.POSITION_DELETES,
            place.bucket,
            location,
            size,
            FileMetrics(len(vector)),
            place.partition_values,
            referenced=(data_file,),
            vector=vector_place,
            replaces=present[data_file].files,
            row_partition=row_partition,
            spec_id=spec_id,
        )

    return write_each(place, list(deletes.vectors.items()), "puffin", write)


def _write_vector(
    filesystem: fs.FileSystem, location: str, data_file: str, vector: DeletionVector
) -> tuple[int, VectorPlace]:
    """Write the vector of a data file; return the size of its Puffin file, and the vector's place in it."""
    puffin = PuffinWriter(location, filesystem)
    try:
        vector_place = puffin.write(data_file, vector)
        return puffin.close(), vector_place
    except BaseException:
        puffin.abort()
        raise
