"""Writes a delete file for each data file, several at once on an object store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pyarrow import fs

from fluss_tiering.lake.iceberg.deletes.place import DeletePlace
from fluss_tiering.lake.iceberg.deletes.positions import PositionDeletes
from fluss_tiering.lake.object_store import naming_expired_credentials, path_of
from fluss_tiering.lake.parallel import map_on_store
from fluss_tiering.lake.protocol import Int64s, LakeFile

WriteFile = Callable[[fs.FileSystem, str, str, Int64s], LakeFile]
"""Writes a delete file: the file system, its location, the location of the data file, and the positions."""


def write_each(place: DeletePlace, deletes: PositionDeletes, extension: str, write: WriteFile) -> list[LakeFile]:
    """Write a delete file for each data file that has deletes. If one fails, all of them are deleted again.

    Args:
        place: Where the files are written.
        deletes: The rows to delete.
        extension: What the names of the files end with.
        write: Writes a file.

    Returns:
        The files, in the order of the data files; none if there are no deletes.

    Raises:
        FlussTieringError: STORAGE if this executor does not see the folder of the lake.
        ExpiredCredentialsError: if the credentials for the lake's store are not valid any more.
        ValueError: if `deletes` is not what it should be.
    """
    if not deletes.touched:
        return []
    filesystem = place.open()
    locations = [f"{place.prefix}-{number:05d}.{extension}" for number in range(len(deletes.touched))]

    def write_one(named: tuple[str, tuple[str, Int64s]]) -> LakeFile:
        location, (data_file, positions) = named
        return write(filesystem, location, data_file, positions)

    with naming_expired_credentials(place.io_properties):
        try:
            return map_on_store(place.location, write_one, list(zip(locations, deletes.by_file(), strict=True)))
        except BaseException:
            for location in locations:
                # Whatever fails here, the failure that led here is the one to report.
                with suppress(Exception):
                    filesystem.delete_file(path_of(location))
            raise
