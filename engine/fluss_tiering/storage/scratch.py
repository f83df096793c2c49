"""Temporary folders on the local disk, for what does not fit into memory or has to lie in files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

from fluss_tiering.storage.files import reporting_os_errors

_SPARK_FOLDERS: Final = "SPARK_LOCAL_DIRS"
"""The variable with the folders for a Spark worker's files. Spark deletes them if the worker is killed."""


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Make a temporary folder, which is deleted at the end of the block.

    Args:
        purpose: The first part of the folder's name.

    Raises:
        FlussTieringError: STORAGE if the disk refuses.
    """
    parent = os.environ.get(_SPARK_FOLDERS, "").partition(",")[0] or gettempdir()
    with reporting_os_errors("make a temporary folder in", Path(parent)):
        folder = TemporaryDirectory(prefix=f"{purpose}-", dir=parent)
    with folder as name:
        yield Path(name)
