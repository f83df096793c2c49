"""Writes delete files, several at once on an object store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from pyarrow import fs

from fluss_tiering.lake.files import LakeFile
from fluss_tiering.lake.iceberg.deletes.place import DeletePlace
from fluss_tiering.lake.object_store import naming_expired_credentials, path_of
from fluss_tiering.lake.parallel import map_on_store

ItemT = TypeVar("ItemT")


def write_each(
    place: DeletePlace, items: Sequence[ItemT], extension: str, write: Callable[[fs.FileSystem, str, ItemT], LakeFile]
) -> list[LakeFile]:
    """Write a delete file for each item. If one fails, all of them are deleted again.

    Args:
        place: Where the files are written.
        items: What the files are about.
        extension: What the names of the files end with.
        write: Writes a file: it gets the file system, the location of the file, and the item.

    Returns:
        The files, in the order of the items; none if there are no items.

    Raises:
        FlussTieringError: STORAGE if this executor does not see the folder of the lake.
        ExpiredCredentialsError: if the credentials for the lake's store are not valid any more.
    """
    if not items:
        return []
    filesystem = place.open()
    locations = [f"{place.prefix}-{number:05d}.{extension}" for number in range(len(items))]

    def write_one(named: tuple[str, ItemT]) -> LakeFile:
        return write(filesystem, *named)

    with naming_expired_credentials(place.io_properties):
        try:
            return map_on_store(place.location, write_one, list(zip(locations, items, strict=True)))
        except BaseException:
            for location in locations:
                # Whatever fails here, the failure that led here is the one to report.
                with suppress(Exception):
                    filesystem.delete_file(path_of(location))
            raise
