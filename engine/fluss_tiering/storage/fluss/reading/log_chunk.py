"""Whole log batches as a leader sent them or as a remote segment has them, and what is said of damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NoReturn

from fluss_tiering.formats.log.batch import LogBatchHeader, UnknownMagicError, read_header
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.errors import rewording_corrupt_data

_REMEDY: Final = "restore it from a replica, or re-create the table"


@dataclass(frozen=True, slots=True, eq=False)
class LogChunk:
    """Whole log batches, in the order of the log.

    Attributes:
        data: The bytes of the batches.
        start: The position of `data` in its file; 0 for a leader's answer.
        source: The name of the file or answer, for errors.
        projection: The indexes of the columns to which the leader has cut the batches, which still have the checksums
            of the whole batches; None for all.
        filtered: Whether the leader may have left out batches, so that offsets are missing between the others.
        left_out_before: The offset before which a leader has left out whatever has not come in chunks before; 0 if no
            leader has left out anything.
    """

    data: memoryview
    start: int
    source: str
    projection: tuple[int, ...] | None = None
    filtered: bool = False
    left_out_before: int = 0

    def batches(self) -> Iterator[tuple[int, LogBatchHeader]]:
        """Yield the position in `data` and the header of each batch."""
        position = 0
        with naming_source(self.source, self.start):
            while (header := read_header(self.data, position)) is not None:
                yield position, header
                position += header.size


@contextmanager
def naming_source(source: str, start: int = 0) -> Iterator[None]:
    """Add the source and the remedy to an error of the decoder, which knows only the position.

    Raises:
        FlussTieringError: CORRUPT_DATA in place of the decoder's; UNSUPPORTED_VERSION if a newer Fluss may have written
            a batch.
    """
    after = f" after byte {start}" if start else ""
    with rewording_corrupt_data(lambda message: f"{source}{after}: {message}; {_REMEDY}"):
        try:
            yield
        except UnknownMagicError as error:
            raise FlussTieringError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{source}{after}: {error.message}; if the cluster's Fluss is newer than this version of "
                f"fluss-tiering knows, install a newer fluss-tiering; otherwise the batch is damaged: {_REMEDY}",
            ) from error


def last_whole(data: memoryview, source: str, start: int) -> tuple[int, LogBatchHeader | None]:
    """Return the end of the last whole batch, and its header; None if there is no whole batch."""
    end, last = 0, None
    for position, header in LogChunk(data, start, source).batches():
        end, last = position + header.size, header
    return end, last


def damaged(what: str) -> NoReturn:
    """Raise CORRUPT_DATA with the remedy."""
    raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"{what}; {_REMEDY}")
