"""Changes to files that survive a crash, and errors that name the file.

To replace a file, a new one is written beside it, synced and renamed over it. A folder is synced after a name in it has
changed. A reader therefore finds the old content or the new content, never a mixture.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

TEMPORARY_SUFFIX: Final = ".tmp"
"""The suffix of files and folders that are being made. One that a later start finds was never finished."""
DELETED_SUFFIX: Final = ".deleted"
"""The suffix of folders that are being deleted (Fluss's `FlussPaths`). A later start deletes what it finds of them."""
_FEW: Final = 8
"""As many syncs take less time one after the other than threads take to start."""
_SYNCS_AT_ONCE: Final = 32

ItemT = TypeVar("ItemT")


def corrupt(path: Path, found: str, expected: str, remedy: str) -> FlussTieringError:
    """Return CORRUPT_DATA, which names a file or folder, what was found, what was expected and what to do."""
    return FlussTieringError(ErrorCode.CORRUPT_DATA, f"{path} {found}: expected {expected}; {remedy}")


@contextmanager
def reporting_os_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` into STORAGE, which says what could not be done to which path."""
    try:
        yield
    except OSError as error:
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"could not {action} {path}: {error.strerror or error}; check the disk's free space and health and the "
            "folder's permissions, then try again",
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
    if len(items) <= _FEW:
        for item in items:
            sync(item)
        return
    with ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="fluss-tiering-sync") as threads:
        calls = [threads.submit(sync, item) for item in items]
    for call in calls:
        call.result()


def write_durably(path: Path, content: bytes) -> None:
    """Make or replace a file. For a reader this is one step."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a file or folder within its folder."""
    source.rename(target)
    sync_directory(target.parent)


def delete_folder(path: Path) -> None:
    """Delete a folder. After a crash midway no folder looks whole, and the next start deletes what is left."""
    doomed = path if path.suffix in {DELETED_SUFFIX, TEMPORARY_SUFFIX} else path.with_name(path.name + DELETED_SUFFIX)
    if doomed != path:
        rename_durably(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with `write_durably`."""
    write_durably(path, json.dumps(content, indent=2).encode() + b"\n")


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Args:
        path: The file.
        remedy: What the user should do if the file is damaged.

    Raises:
        FlussTieringError: CORRUPT_DATA if the file is missing or holds anything else; STORAGE if it cannot be read.
    """
    with reporting_os_errors("read", path):
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise corrupt(path, "is missing", "it beside the other files of this data folder", remedy) from None
        except ValueError as error:
            raise corrupt(path, f"is no JSON ({error})", "a JSON object", remedy) from error
    if not isinstance(content, dict):
        raise corrupt(path, f"holds a JSON {type(content).__name__}", "a JSON object", remedy)
    return content
