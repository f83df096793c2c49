"""A lake in a folder (`file:`) works only if the driver and all executors see the same folder.

Otherwise each machine would write files to its own disk, and a commit would name files that no reader finds.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fluss_tiering.lake.files import LakeFile
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.location import Location

_REMEDY: Final = (
    "expected a folder that the driver and all executors share; mount one, use a warehouse in an object store or HDFS, "
    "or run Spark on one machine (--master local[*])"
)


def local_path(location: str) -> Path | None:
    """Return the path of a location on this machine's disks; None if it is in another store."""
    parsed = Location.parse(location)
    return Path(parsed.path) if parsed.is_local else None


def require_shared(folder: str | None) -> None:
    """Check, on an executor, that a folder that the driver sees is here, too.

    Args:
        folder: The folder; None for a lake that is in no folder.

    Raises:
        FlussTieringError: STORAGE if the folder is not here.
    """
    path = None if folder is None else local_path(folder)
    if path is not None and not path.is_dir():
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"this executor does not see the lake table's folder {path}, which the driver sees: {_REMEDY}",
        )


def require_seen(files: Iterable[LakeFile]) -> None:
    """Check, on the driver, that each file that executors have written to a folder is there.

    Raises:
        FlussTieringError: STORAGE if a file is missing, or if it has another size.
    """
    unseen = [file.location for file in files if not _is_seen(file)]
    if unseen:
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"the driver does not see {len(unseen)} of the files that executors have written, {unseen[0]} first, so "
            f"nothing was committed: {_REMEDY}",
        )


def _is_seen(file: LakeFile) -> bool:
    path = local_path(file.location)
    if path is None:
        return True
    try:
        return path.stat().st_size == file.size_bytes
    except OSError:
        return False
