"""Offsets files of lake snapshots, which the cluster writes into its remote folder (`FlussPaths`)."""

from __future__ import annotations

import re
from typing import Final

from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles

_NAME: Final = re.compile(r".*/lake/[^/]+/[^/]+-(\d+)/metadata/[^/]+\.offsets")


def is_offsets_file(files: RemoteFiles, table_id: int, path: str) -> bool:
    """Whether a path is that of an offsets file of a table, and the file is there.

    A commit that names one which is not makes the table unusable, so that doubt is an error.

    Raises:
        FlussTieringError: STORAGE when nobody can tell whether it is there.
    """
    name = _NAME.fullmatch(path)
    if name is None or int(name[1]) != table_id:
        return False
    try:
        files.size(path)
    except FileNotFoundError:
        return False
    return True
