"""Changes to files that survive a crash, and errors that name the file.

A file is replaced by writing another beside it, syncing it and renaming it over; a folder is synced after a name in it
has changed. Whoever reads therefore finds the old content or the new, never a mixture.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

TEMPORARY_SUFFIX: Final = ".tmp"
"""Of files and folders that are being made; one that is found later was never finished."""
DELETED_SUFFIX: Final = ".deleted"
"""Of folders that are being deleted (Fluss's `FlussPaths`); one that is found later is deleted then."""


def corrupt(path: Path, found: str, expected: str, remedy: str) -> FlussTieringError:
    """CORRUPT_DATA naming a file or folder, what it is, what it should be and what to do."""
    return FlussTieringError(ErrorCode.CORRUPT_DATA, f"{path} {found}: expected {expected}; {remedy}")


@contextmanager
def reporting_os_errors(action: str, path: Path) -> Iterator[None]:
    """Turns an `OSError` into STORAGE, saying what could not be done to which path."""
    try:
        yield
    except OSError as error:
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"could not {action} {path}: {error.strerror or error}; check the disk's free space and health and the "
            "folder's permissions, then try again",
        ) from error


def sync_directory(path: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Makes or replaces a file, in one step for whoever reads it."""
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
    """Renames within one folder."""
    source.rename(target)
    sync_directory(target.parent)


def delete_folder(path: Path) -> None:
    """Deletes a folder so that a crash midway leaves none that looks whole; the next start deletes what is left."""
    doomed = path if path.suffix in {DELETED_SUFFIX, TEMPORARY_SUFFIX} else path.with_name(path.name + DELETED_SUFFIX)
    if doomed != path:
        rename_durably(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """`write_durably` of a JSON object."""
    write_durably(path, json.dumps(content, indent=2).encode() + b"\n")


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        FlussTieringError: CORRUPT_DATA, with the remedy, when the file is missing or holds anything else; STORAGE when
            it cannot be read.
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
