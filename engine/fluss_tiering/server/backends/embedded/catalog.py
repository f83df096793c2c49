"""The lake's default catalog: a JDBC catalog on a SQLite file in the data folder."""

from __future__ import annotations

import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_MEANINGFUL: Final = re.compile(r"[?#%\x00-\x1f\x7f]")
_LOCATION: Final = re.compile(r"(?:file:(?://)?)?(/.*)/warehouse/.*")
"""The location of a table's metadata file in the default lake. The group is the folder of the lake."""
CATALOG_FILE: Final = "catalog.db"
LAKE_FOLDER: Final = "lake"
"""The folder of the default catalog and its warehouse, in the data folder."""


def default_catalog(lake_dir: Path) -> dict[str, str]:
    """Return the properties of the default catalog.

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


def check_lake_is_own(lake_dir: Path) -> None:
    """Check that the default lake names the folder that it is in: Iceberg's metadata has absolute paths.

    Raises:
        FlussTieringError: INVALID_REQUEST if it names another; CORRUPT_DATA if its catalog cannot be read.
    """
    root, named = lake_dir.absolute().parent, _named_folder(lake_dir)
    if named is None:
        return
    found = f"{root} was moved or copied from {named.parent}, whose paths its lake still has"
    if named.exists():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{found}: rounds would write into the lake of {named.parent}, which is still there. Use the copy on a "
            f"machine or in a container in which it has the path {named.parent}",
        )
    raise FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"{found}: let that path lead to this folder, by a mount or with "
        f"`ln -s {shlex.quote(str(root))} {shlex.quote(str(named.parent))}`, or move the folder back",
    )


def _named_folder(lake_dir: Path) -> Path | None:
    """Return the folder that the lake's catalog names instead of its own; None if it names its own."""
    for location in _metadata_locations(lake_dir / CATALOG_FILE):
        match = _LOCATION.fullmatch(location)
        if match and Path(match[1]).name == lake_dir.name and not _are_same(Path(match[1]), lake_dir.absolute()):
            return Path(match[1])
    return None


def _are_same(one: Path, other: Path) -> bool:
    """Return whether both paths lead to one folder, for example by a symbolic link."""
    return one == other or (one.exists() and other.exists() and one.samefile(other))


def _metadata_locations(file: Path) -> list[str]:
    if not file.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'").fetchone():
                return []
            rows = connection.execute("SELECT metadata_location FROM iceberg_tables WHERE metadata_location NOT NULL")
            return [str(location) for (location,) in rows]
    except sqlite3.Error as error:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA,
            f"the lake's catalog {file} cannot be read: {error}; restore it from a backup",
        ) from error
