"""Errors that both storages raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath


def without_primary_key(path: TablePath, what: str) -> FlussTieringError:
    """Return TABLE_WITHOUT_PRIMARY_KEY, which says what the table does not have for that reason."""
    return FlussTieringError(
        ErrorCode.TABLE_WITHOUT_PRIMARY_KEY,
        f"table {path} has no primary key and so no {what}: expected a primary-key table",
    )


@contextmanager
def rewording_corrupt_data(reword: Callable[[str], str]) -> Iterator[None]:
    """Replace the message of a CORRUPT_DATA error that the block raises.

    Decoders know only the position of the damage; their callers know the file or the bucket, and what to do about it.

    Args:
        reword: The function that makes the new message from the old one.
    """
    try:
        yield
    except FlussTieringError as error:
        if error.code is not ErrorCode.CORRUPT_DATA:
            raise
        raise FlussTieringError(error.code, reword(error.message)) from error
