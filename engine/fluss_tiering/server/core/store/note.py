"""The note in the data folder about the database that the server's state is in.

A server that began with a new database in silence, because a setting was forgotten, would lose all leases, tiering
epochs and history. So the folder knows which kind of database it was used with, and a database without any state is
accepted by a folder that was never used, or after `fluss-tiering adopt --store`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.data_dir import TABLES_FOLDER
from fluss_tiering.storage.files import corrupt, read_json, reporting_os_errors, write_json

DATABASE_FILE: Final = "server.db"
"""The SQLite file in the data folder that holds the state, unless the settings name a PostgreSQL database."""
NOTE_FILE: Final = "server.store.json"

_KIND: Final = "store"
_MAY_BE_NEW: Final = "may_be_new"


class StoreKind(StrEnum):
    """A kind of database for the server's state."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


_TITLES: Final = {StoreKind.SQLITE: f"the SQLite file {DATABASE_FILE}", StoreKind.POSTGRESQL: "PostgreSQL"}
_HOW_TO_USE: Final = {
    StoreKind.SQLITE: "leave out the setting store-url (FLUSS_TIERING_STORE_URL, --store)",
    StoreKind.POSTGRESQL: "set store-url (FLUSS_TIERING_STORE_URL, --store) to that database",
}


@dataclass(frozen=True, slots=True)
class StoreNote:
    """What a data folder knows about its database.

    Attributes:
        may_be_new: Whether the next server may begin with a database that has no state.
    """

    kind: StoreKind
    may_be_new: bool = False

    @classmethod
    def read(cls, root: Path) -> Self | None:
        """Return the note of a data folder. A folder that was never served, or only by older releases, has none.

        Raises:
            FlussTieringError: CORRUPT_DATA if the note is damaged; STORAGE if it cannot be read.
        """
        path = root / NOTE_FILE
        if not path.exists():
            return None
        remedy = f"run `fluss-tiering adopt {shlex.quote(str(root))} --store {'|'.join(StoreKind)}` to write it anew"
        content = read_json(path, remedy)
        if content.get(_KIND) not in list(StoreKind) or not isinstance(content.get(_MAY_BE_NEW, False), bool):
            raise corrupt(path, "names no kind of database", " or ".join(StoreKind), remedy)
        return cls(StoreKind(content[_KIND]), content.get(_MAY_BE_NEW, False))

    def write(self, root: Path) -> None:
        """Replace the note of a data folder.

        Raises:
            FlussTieringError: STORAGE if it cannot be written.
        """
        path = root / NOTE_FILE
        with reporting_os_errors("write", path):
            write_json(path, {_KIND: self.kind, **({_MAY_BE_NEW: True} if self.may_be_new else {})})


def check_kind(root: Path, kind: StoreKind) -> None:
    """Check that a server may use this kind of database with the data folder, before it opens the database.

    Raises:
        FlussTieringError: INVALID_REQUEST if the folder was used with another kind, or if its SQLite file is missing;
            CORRUPT_DATA if the note is damaged; STORAGE if it cannot be read.
    """
    note = StoreNote.read(root)
    if note is not None and note.kind is not kind:
        raise _refusal(
            root,
            kind,
            f"the data folder {root} was used with {_TITLES[note.kind]}, but this server was started with "
            f"{_TITLES[kind]}: expected the same database",
            _HOW_TO_USE[note.kind],
        )
    if kind is StoreKind.SQLITE and not (root / DATABASE_FILE).exists() and _was_used(root, kind, note):
        raise _refusal(
            root,
            kind,
            f"the data folder {root} was used before, but has no {DATABASE_FILE}: expected the database of its state",
            f"if the folder was used with PostgreSQL, {_HOW_TO_USE[StoreKind.POSTGRESQL]}; otherwise restore the file",
        )


def note_database(root: Path, kind: StoreKind, name: str, *, is_new: bool) -> None:
    """Note which kind of database the data folder is used with, unless the open database cannot be the right one.

    Args:
        name: The name of the database for messages.
        is_new: Whether the database has no state of any storage.

    Raises:
        FlussTieringError: INVALID_REQUEST if the database is new and the folder was used with another one; STORAGE if
            the note cannot be written.
    """
    note = StoreNote.read(root)
    if is_new and _was_used(root, kind, note):
        raise _refusal(
            root,
            kind,
            f"{name} has no state, but the data folder {root} was used before: expected the database that it was used "
            "with",
            f"if that is {DATABASE_FILE} in the folder, {_HOW_TO_USE[StoreKind.SQLITE]}; otherwise name the right "
            "database, or restore it",
        )
    if note != StoreNote(kind):
        StoreNote(kind).write(root)


def _was_used(root: Path, kind: StoreKind, note: StoreNote | None) -> bool:
    """Return whether the folder has a database with state somewhere. Folders of older releases have no note."""
    if note is not None:
        return not note.may_be_new
    tables = root / TABLES_FOLDER
    with reporting_os_errors("read", tables):
        # A server with SQLite has just made the file itself.
        other = kind is not StoreKind.SQLITE and (root / DATABASE_FILE).exists()
        return other or (tables.is_dir() and any(tables.iterdir()))


def _refusal(root: Path, kind: StoreKind, found: str, remedy: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"{found}, because leases, tiering epochs and history would begin anew; {remedy}. To begin with a new database "
        f"on purpose, run `fluss-tiering adopt {shlex.quote(str(root))} --store {kind}` once",
    )
