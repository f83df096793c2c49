"""The offsets files of lake snapshots, which the cluster writes into its remote folder (`FlussPaths`)."""

from __future__ import annotations

import re
from typing import Final

from fluss_tiering.formats.lake_offsets import offsets_from_json
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles

_NAME: Final = re.compile(r".*/lake/[^/]+/[^/]+-(\d+)/metadata/[^/]+\.offsets")


def is_offsets_file(files: RemoteFiles, table_id: int, path: str) -> bool:
    """Return whether there is an offsets file of this table at a path.

    A commit with a path without a file makes the table unusable, so it is an error if this cannot be found out.

    Raises:
        FlussTieringError: STORAGE if it cannot be found out whether the file exists.
    """
    name = _NAME.fullmatch(path)
    if name is None or int(name[1]) != table_id:
        return False
    try:
        files.size(path)
    except FileNotFoundError:
        return False
    return True


def read_offsets_file(files: RemoteFiles, table_id: int, path: str) -> dict[TableBucket, int]:
    """Return the offset, exclusive, up to which each bucket is in the lake. A bucket with nothing there is left out.

    Raises:
        FlussTieringError: STORAGE if the file cannot be read; CORRUPT_DATA if it is missing, or no offsets file of this
            table.
    """
    if (name := _NAME.fullmatch(path)) is None or int(name[1]) != table_id:
        raise _unusable(path, f"it is no offsets file of the table {table_id}")
    try:
        with files.open(path) as opened:
            found = offsets_from_json(opened.read())
    except FileNotFoundError:
        raise _unusable(path, "it does not exist") from None
    except ValueError as error:
        raise _unusable(path, str(error)) from None
    if others := {bucket.table_id for bucket in found} - {table_id}:
        raise _unusable(path, f"it is of the table {others.pop()}")
    return found


def _unusable(path: str, why: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.CORRUPT_DATA,
        f"the offsets file {path!r}: {why}; expected a file that the cluster wrote into its remote folder",
    )
