"""The lake's default catalog: a JDBC catalog on a SQLite file in the data folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fluss_tiering.lake.relocation import CATALOG_FILE
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_MEANINGFUL: Final = re.compile(r"[?#%\x00-\x1f\x7f]")
LAKE_FOLDER: Final = "lake"
"""The folder of the default catalog and its warehouse, in the data folder."""


def default_catalog(lake_dir: Path) -> dict[str, str]:
    """Return the properties of the default catalog.

    Args:
        lake_dir: The folder of the lake.

    Raises:
        FlussTieringError: INVALID_REQUEST if the folder's path has a character that means something in addresses.
    """
    require_plain_path(lake_dir)
    return {
        "type": "jdbc",
        "name": "fluss_lake",
        # Several drivers share the file. Without the time-out the second writer fails at once.
        "uri": f"jdbc:sqlite:{lake_dir}/{CATALOG_FILE}?busy_timeout=30000",
        "jdbc.schema-version": "V1",
        "warehouse": f"file:{lake_dir}/warehouse",
    }


def require_plain_path(lake_dir: Path) -> None:
    """Check the path of the default catalog's folder. Errors are those of `default_catalog`."""
    if found := _MEANINGFUL.search(str(lake_dir)):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the path of the data folder {str(lake_dir.parent)!r} has the character {found[0]!r}, which means "
            "something in the addresses of the default lake catalog and of its files: expected a path without "
            "?, #, % and control characters; use another folder, or set lake-catalog",
        )


def make_lake_folders(lake_dir: Path) -> None:
    """Make the folders of the default catalog, since SQLite does not make them.

    Raises:
        FlussTieringError: STORAGE if they cannot be made.
    """
    try:
        (lake_dir / "warehouse").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FlussTieringError(
            ErrorCode.STORAGE, f"cannot make the lake's folder {lake_dir}: {error}; check its permissions"
        ) from error
