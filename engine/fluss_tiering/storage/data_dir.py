"""The data folder as a whole: its id, its place, the lock that lets only one server use it, and the ids of tables."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from fluss_tiering.model.errors import DataDirInUseError, ErrorCode, FlussTieringError
from fluss_tiering.storage.files import (
    TEMPORARY_SUFFIX,
    corrupt,
    read_json,
    reporting_os_errors,
    sync_directory,
    write_json,
)

IDENTITY_FILE: Final = "data-dir.json"
LOCK_FILE: Final = "data-dir.lock"
TABLES_FOLDER: Final = "tables"

_FORMAT_VERSION: Final = 1
_FIRST_ID: Final = 1
_TABLE_IDS: Final = "next_table_id"
_PARTITION_IDS: Final = "next_partition_id"
_PATH: Final = "path"
_OWN_ENTRIES: Final = frozenset({LOCK_FILE, IDENTITY_FILE + TEMPORARY_SUFFIX})
_SERVER_PREFIXES: Final = ("server.", "lake")
"""The names of the files that a server keeps in its data folder, and may have made before the storage."""
_REMEDY: Final = "restore it from a backup, or start with an empty data folder"


class DataDir:
    """A data folder that this process holds until `close`.

    Attributes:
        root: The absolute path of the folder.
        id: The id that the folder got when it was first used. A reader compares it to learn whether a path on its
            machine is this folder.
    """

    def __init__(self, root: Path, lock: int, identity: dict[str, Any]) -> None:
        self.root = root
        self.id: str = identity["data_dir_id"]
        self._path: str | None = identity.get(_PATH)
        self._lock = lock
        self._next_ids: dict[str, int] = {key: identity[key] for key in (_TABLE_IDS, _PARTITION_IDS)}
        self._ids_lock = threading.Lock()

    @classmethod
    def open(cls, root: Path, *, adopt: bool = False) -> DataDir:
        """Take hold of a data folder. A folder that is empty or does not exist becomes a new data folder.

        Args:
            adopt: Whether the folder may be a copy of one that still exists, because it gets an id of its own.

        Raises:
            FlussTieringError: DATA_DIR_IN_USE if another process holds it; INVALID_REQUEST if it is a copy;
                CORRUPT_DATA if it holds foreign files, or if its identity file is damaged; STORAGE if it cannot be
                used.
        """
        root = root.absolute()
        with reporting_os_errors("use the data folder", root):
            _make(root)
            _refuse_foreign(root)
            lock = _acquire(root)
            try:
                if not (root / IDENTITY_FILE).exists():
                    _write_identity(root, str(uuid.uuid4()), {_TABLE_IDS: _FIRST_ID, _PARTITION_IDS: _FIRST_ID})
                (root / TABLES_FOLDER).mkdir(exist_ok=True)
                sync_directory(root)
                folder = cls(root, lock, _read_identity(root))
                original = None if adopt else folder.original()
                if original is not None:
                    raise FlussTieringError(
                        ErrorCode.INVALID_REQUEST,
                        f"{root} is a copy of the data folder {original}: rounds of both would write into one lake. "
                        f"Serve the original, or run `fluss-tiering adopt {shlex.quote(str(root))}` once, after which "
                        "this folder stands on its own",
                    )
            except BaseException:
                os.close(lock)
                raise
        return folder

    def original(self) -> Path | None:
        """Return the folder that this one is a copy of, if it still exists on this machine."""
        path = None if self._path is None else Path(self._path)
        if path is None or path == self.root or read_data_dir_id(path) != self.id or path.samefile(self.root):
            return None
        return path

    def settle(self, data_dir_id: str | None = None) -> None:
        """Record that the folder belongs where it is now.

        Args:
            data_dir_id: The new id of the folder; None to keep the id.
        """
        with self._ids_lock:
            if data_dir_id is None and self._path is not None and Path(self._path) == self.root:
                return
            self.id = data_dir_id or self.id
            self._path = str(self.root)
            self._write(self._next_ids)

    def allocate_table_id(self) -> int:
        """Return an id that no table has or had, also after a crash."""
        return self._allocate(_TABLE_IDS, 1)[0]

    def allocate_partition_ids(self, count: int) -> range:
        """Return ids that no partition of any table has or had, also after a crash."""
        return self._allocate(_PARTITION_IDS, count)

    def _allocate(self, kind: str, count: int) -> range:
        with self._ids_lock:
            allocated = range(self._next_ids[kind], self._next_ids[kind] + count)
            next_ids = {**self._next_ids, kind: allocated.stop}
            self._write(next_ids)
            self._next_ids = next_ids
            return allocated

    def _write(self, next_ids: Mapping[str, int]) -> None:
        _write_identity(self.root, self.id, {**next_ids, **({} if self._path is None else {_PATH: self._path})})

    def close(self) -> None:
        """Release the folder."""
        os.close(self._lock)


def read_data_dir_id(root: Path) -> str | None:
    """Return the id of the data folder at a path, or None if no data folder can be read there."""
    try:
        identity = json.loads((root / IDENTITY_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    data_dir_id = identity.get("data_dir_id") if isinstance(identity, dict) else None
    return data_dir_id if isinstance(data_dir_id, str) else None


def _make(root: Path) -> None:
    """Make the data folder if it does not exist.

    Raises:
        FlussTieringError: STORAGE if a file is in its place, or if its file system takes no folders.
    """
    try:
        # It holds rows and secrets in plain text. A folder that exists keeps its mode.
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(each for each in (root, *root.parents) if each.exists())
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"cannot make the data folder {root}: {file} is a file; expected a folder, name another one",
        ) from None
    except FileNotFoundError:
        # Such as /proc, which says so.
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"cannot make the data folder {root}: the file system there takes no folders; name a folder on a disk",
        ) from None


def _refuse_foreign(root: Path) -> None:
    if (root / IDENTITY_FILE).exists():
        return
    for name in sorted(entry.name for entry in root.iterdir()):
        if name not in _OWN_ENTRIES and not name.startswith(_SERVER_PREFIXES):
            raise corrupt(
                root,
                f"is no data folder: it has no {IDENTITY_FILE}, but holds {name!r}",
                "an empty folder, or one that a tiering server has used",
                "name another folder, or restore its missing files from a backup",
            )


def _acquire(root: Path) -> int:
    """Lock the folder. The kernel releases the lock when the process ends, however it ends."""
    lock = os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise DataDirInUseError(f"the data folder {root} is in use by another server (process {holder})") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _write_identity(root: Path, data_dir_id: str, entries: Mapping[str, int | str]) -> None:
    path = root / IDENTITY_FILE
    with reporting_os_errors("write", path):
        write_json(path, {"format_version": _FORMAT_VERSION, "data_dir_id": data_dir_id, **entries})


def _read_identity(root: Path) -> dict[str, Any]:
    path = root / IDENTITY_FILE
    identity = read_json(path, _REMEDY)
    version = identity.get("format_version")
    if version != _FORMAT_VERSION:
        raise corrupt(
            path,
            f"has the format version {version!r}",
            f"version {_FORMAT_VERSION}",
            "use the release that wrote this data folder, or start with an empty one",
        )
    # A folder that is older than the support for partitions does not have this entry.
    identity.setdefault(_PARTITION_IDS, _FIRST_ID)
    if not isinstance(identity.get("data_dir_id"), str) or not all(
        isinstance(identity.get(key), int) for key in (_TABLE_IDS, _PARTITION_IDS)
    ):
        raise corrupt(path, "lacks its entries", f"data_dir_id, {_TABLE_IDS} and {_PARTITION_IDS}", _REMEDY)
    return identity
