"""The offsets files of lake snapshots, which the cluster writes into its remote folder (`FlussPaths`)."""

from __future__ import annotations

import re
from typing import Final

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
