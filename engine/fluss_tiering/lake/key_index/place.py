"""The part of a lake table that has an index of its own, and the error of an index that cannot be used."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fluss_tiering.model.errors import ErrorCode, FlussTieringError


@dataclass(frozen=True)
class Place:
    """One bucket of one partition of one Iceberg table.

    Attributes:
        table_uuid: The UUID of the Iceberg table, from its metadata.
        bucket: The number of the bucket.
        partition_values: The values of the partition keys; empty if the table is not partitioned.
    """

    table_uuid: str
    bucket: int
    partition_values: tuple[str, ...] = ()

    @cached_property
    def folder(self) -> str:
        """The folder of the index, below the location of the store.

        It names the table, since two tables may have one store: a table that is renamed keeps its folder.
        """
        if not self.partition_values:
            return f"{self.table_uuid}/{self.bucket}"
        # Values may be longer than a name may be, and hold any character.
        digest = hashlib.blake2b(json.dumps(self.partition_values).encode(), digest_size=16).hexdigest()
        return f"{self.table_uuid}/{digest}/{self.bucket}"


def uuid_bytes(table_uuid: str) -> bytes:
    """Return the 16 bytes of a table's UUID.

    Raises:
        FlussTieringError: INVALID_REQUEST if the text is no UUID.
    """
    try:
        return uuid.UUID(table_uuid).bytes
    except ValueError:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{table_uuid!r} is not the UUID of an Iceberg table: expected the table-uuid of its metadata",
        ) from None


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
