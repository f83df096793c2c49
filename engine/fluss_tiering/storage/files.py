"""Changes to files that survive a crash, errors that name the file, and temporary folders.

To replace a file, a new one is written beside it, synced and renamed over it. A folder is synced after a name in it has
changed. A reader therefore finds the old content or the new content, never a mixture.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Final, TypeVar

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

TEMPORARY_SUFFIX: Final = ".tmp"
"""The suffix of files and folders that are being made. One that a later start finds was never finished."""
DELETED_SUFFIX: Final = ".deleted"
"""The suffix of folders that are being deleted (Fluss's `FlussPaths`). A later start deletes what it finds of them."""
_SYNCED_IN_TURN: Final = 8
"""As many syncs take less time one after the other than threads take to start."""
_SYNC_THREADS: Final = 32

ItemT = TypeVar("ItemT")
_SPARK_FOLDERS: Final = "SPARK_LOCAL_DIRS"
"""The variable with the folders for a Spark worker's files. Spark deletes them if the worker is killed."""


def corrupt(path: Path, found: str, expected: str, remedy: str) -> FlussTieringError:
    """Return CORRUPT_DATA, which names a file or folder, what was found, what was expected and what to do."""
    return FlussTieringError(ErrorCode.CORRUPT_DATA, f"{path} {found}: expected {expected}; {remedy}")


@contextmanager
def reporting_os_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` into STORAGE, which says what could not be done to which path."""
    try:
        yield
    except OSError as error:
        remedy = "check the disk's free space and health and the folder's permissions, then try again"
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not path.parent.is_dir():
            remedy = f"there is no folder {path.parent}: check the path, or make the folder"
        elif isinstance(error, IsADirectoryError):
            remedy = "it is a folder: name a file"
        elif isinstance(error, PermissionError):
            remedy = "check the permissions of the file and of its folder, and who runs this, then try again"
        raise FlussTieringError(
            ErrorCode.STORAGE, f"could not {action} {path}: {error.strerror or error}; {remedy}"
        ) from error


def sync_directory(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_each(sync: Callable[[ItemT], None], items: Sequence[ItemT]) -> None:
    """Call a function that makes an item durable, for many items in several threads.

    A disk syncs many files together in little more time than one file. If some calls fail, the first error is raised
    when all calls have ended.
    """
    if len(items) <= _SYNCED_IN_TURN:
        for item in items:
            sync(item)
        return
    with ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="fluss-tiering-sync") as threads:
        calls = [threads.submit(sync, item) for item in items]
    for call in calls:
        call.result()


def write_durably(path: Path, content: bytes, mode: int | None = None) -> None:
    """Make or replace a file. For a reader this is one step. A file that root replaces keeps its owner.

    Args:
        content: What it shall hold.
        mode: Its mode, from the beginning on; None for the one of new files.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        # A file that somebody else put here would still be open for them, or lead elsewhere.
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o666 if mode is None else mode), "wb") as file:
            give_to_owner_of(path, file.fileno())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def give_to_owner_of(path: Path, descriptor: int) -> None:
    """Give an open file to the owner of another file, if root runs this and the other file exists.

    Root may change the files of a server that runs as another user, who still has to read and to lock them. In a
    container, root may have no right to do so.
    """
    if os.geteuid() != 0:
        return
    with suppress(FileNotFoundError, PermissionError):
        wanted, found = path.stat(), os.fstat(descriptor)
        if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
            os.fchown(descriptor, wanted.st_uid, wanted.st_gid)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a file or folder within its folder. If this fails, it has its old name."""
    source.rename(target)
    try:
        sync_directory(target.parent)
    except OSError:
        with suppress(OSError):
            target.rename(source)
        raise


def delete_folder(path: Path) -> None:
    """Delete a folder. After a crash midway no folder looks whole, and the next start deletes what is left."""
    doomed = path if path.suffix in {DELETED_SUFFIX, TEMPORARY_SUFFIX} else path.with_name(path.name + DELETED_SUFFIX)
    if doomed != path:
        rename_durably(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def write_json(path: Path, content: Mapping[str, Any], mode: int | None = None) -> None:
    """Write a JSON object with `write_durably`."""
    write_durably(path, json.dumps(content, indent=2).encode() + b"\n", mode)


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Args:
        remedy: What the user should do if the file is damaged.

    Raises:
        FlussTieringError: CORRUPT_DATA if the file is missing or holds anything else; STORAGE if it cannot be read.
    """
    with reporting_os_errors("read", path):
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise corrupt(path, "is missing", "it beside the other files of this data folder", remedy) from None
        except (ValueError, RecursionError) as error:
            raise corrupt(path, f"is no JSON ({error})", "a JSON object", remedy) from error
    if not isinstance(content, dict):
        raise corrupt(path, f"holds a JSON {type(content).__name__}", "a JSON object", remedy)
    return content


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
