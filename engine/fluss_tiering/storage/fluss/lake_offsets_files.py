"""Offsets files of lake snapshots, which the cluster writes into its remote folder (`FlussPaths`)."""

from __future__ import annotations

import re
from typing import Final

from pyarrow import fs

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_NAME: Final = re.compile(r"/lake/[^/]+/[^/]+-(\d+)/metadata/[^/]+\.offsets")


def is_offsets_file(table_id: int, path: str) -> bool:
    """Whether a path is that of an offsets file of a table, and the file is there.

    A commit that names one which is not makes the table unusable, so that doubt is an error.

    Raises:
        FlussTieringError: STORAGE when nobody can tell whether it is there.
    """
    name = _NAME.search(path)
    if name is None or int(name[1]) != table_id:
        return False
    try:
        filesystem, location = file_system_of(path)
        return bool(filesystem.get_file_info(location).type is fs.FileType.File)
    except (OSError, ValueError) as error:
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"cannot look whether the offsets file {path} exists: {error}; the tiering server must be able to read the "
            "cluster's remote.data.dir",
        ) from error


def file_system_of(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path as Fluss writes it (file:/…, s3://…, s3a://…), and where it is there.

    Raises:
        OSError, ValueError: for a file system that is not there, or not known.
    """
    scheme, separator, rest = path.partition(":")
    if not separator or scheme == "file":
        return fs.LocalFileSystem(), "/" + (rest if separator else path).lstrip("/")
    if scheme in ("s3a", "s3n"):
        path = f"s3:{rest}"
    filesystem, location = fs.FileSystem.from_uri(path)
    return filesystem, location
