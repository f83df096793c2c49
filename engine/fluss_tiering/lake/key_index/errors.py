"""The error of an index that cannot be used."""

from __future__ import annotations

from typing import Any

from fluss_tiering.model.errors import ErrorCode, FlussTieringError


class UnusableIndexError(FlussTieringError):
    """The error of a file of an index that is damaged, missing, of another table or version, or that cannot be read.

    The index is a cache. Who catches this error rebuilds it from the key columns of the data files.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_DATA, message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what is pickled."""
        return UnusableIndexError, (self.message,)


def unusable(name: str, found: str, expected: str) -> UnusableIndexError:
    """Return the error for one file.

    Args:
        name: The location of the file.
        found: What is wrong with it, as the rest of a sentence that begins with its location.
        expected: What was expected instead.
    """
    return UnusableIndexError(f"{name} {found}: expected {expected}; the key index is rebuilt from the data files")
