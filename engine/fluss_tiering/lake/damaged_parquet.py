"""Tells a damaged Parquet file from a store that fails: PyArrow raises an OSError for both."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fluss_tiering.lake.object_store import path_of
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

MISSING: Final = "is missing"
_DAMAGED: Final = "is damaged: "
_BATCH_ROWS: Final = 1024
"""So many rows are read at once. Values may be large."""
DAMAGE: Final = (OSError, ValueError, KeyError, pa.ArrowException)
"""What PyArrow's Parquet reader raises for damaged content. Most of it is an OSError, as for pages and the footer."""


def open_parquet(source: pa.NativeFile | io.RawIOBase, **options: object) -> pq.ParquetFile:
    """Open a Parquet file, each page of which is compared with its checksum when it is read.

    Without it, bits that flipped within a page become other values, since most encodings have no redundancy. Pages
    without a checksum, which the Parquet format leaves to the writer, are not compared.

    Args:
        source: What PyArrow reads a file from.
        options: Further options of `pyarrow.parquet.ParquetFile`.

    Raises:
        OSError: If the footer cannot be read. The file raises what `DAMAGE` names when a page is damaged.
    """
    return pq.ParquetFile(source, page_checksum_verification=True, **options)


@contextmanager
def naming_damage(
    filesystem: fs.FileSystem, location: str, error_of: Callable[[str], FlussTieringError]
) -> Iterator[None]:
    """Let the error of a Parquet file that is missing or damaged name it. The errors of its store stay as they are.

    Args:
        filesystem: The file system of the file.
        location: The location of the file, which the block reads.
        error_of: Returns the error to raise. It is called with what the file is: `MISSING`, or "is damaged: WHY".
    """
    try:
        yield
    except FlussTieringError:
        raise
    except FileNotFoundError:
        raise error_of(MISSING) from None
    except DAMAGE as error:
        what = damage_of(filesystem, location) if isinstance(error, OSError) else _told(error)
        if what is None:
            raise
        raise error_of(what) from None


def unreadable_file(location: str, what: str, kind: str = "data file", form: str = "Parquet") -> FlussTieringError:
    """Return the error of a lake table's file that cannot be read.

    Args:
        what: What is wrong with the file, as `naming_damage` says it.
        kind: What the file is to the lake table.
        form: The name of the file's format.
    """
    return FlussTieringError(
        ErrorCode.CORRUPT_DATA,
        f"{_cause(location, what, kind)}: expected the {form} file that the lake table refers to; restore it from a "
        "backup, or from an older version if its store keeps versions",
    )


def _cause(location: str, what: str, kind: str) -> str:
    """Return what is wrong with a file, and then the file, so that the cause stays if a column cuts the text."""
    if what == MISSING:
        return f"{kind} missing: {location}"
    if what.startswith(_DAMAGED):
        return f"{kind} damaged: {location}: {what.removeprefix(_DAMAGED)}"
    return f"{kind} unusable: {location} {what}"


def damage_of(filesystem: fs.FileSystem, location: str) -> str | None:
    """Read a file to its end. Return "is damaged: WHY" if that fails although its store gives all bytes.

    It is None if the file is whole, and also if its store does not have it or fails.
    """
    try:
        with filesystem.open_input_file(path_of(location)) as opened:
            source = _WatchedFile(opened)
            try:
                with open_parquet(source) as parquet:
                    for _ in parquet.iter_batches(_BATCH_ROWS):
                        """Each page is read."""
            except DAMAGE as error:
                return None if source.failed else _told(error)
    except OSError:
        """The store cannot open the file any more."""
    return None


def _told(error: Exception) -> str:
    return f"is damaged: {' '.join(str(error).split())}"


class _WatchedFile(io.RawIOBase):
    """A file that notes whether its store failed."""

    def __init__(self, file: pa.NativeFile) -> None:
        super().__init__()
        self._file = file
        self.failed = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def read(self, size: int = -1) -> bytes:
        try:
            return bytes(self._file.read(None if size < 0 else size))
        except OSError:
            self.failed = True
            raise
