"""The options of `format("fluss")`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fluss_tiering.client import DEFAULT_TARGET
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

SERVER_VARIABLE: Final = "FLUSS_TIERING_SERVER"
DEFAULT_MAX_PARTITION_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The table to read, and how.

    Attributes:
        server: The address of the tiering server, "host:port" (option `server`). The default is `FLUSS_TIERING_SERVER`
            in the environment of Spark's driver, or else this machine.
        table: The table as "database.table", or a system table (option `table`).
        max_partition_bytes: How much of a log table's bucket one partition holds (option `maxPartitionBytes`).
        accepts_filters: Whether filters may be pushed down to the reader (option `acceptsFilters`, which the project's
            classes for Spark's JVM set). Spark 4.1 itself would reuse a scan with filters for later scans without them.
    """

    server: str
    table: str
    max_partition_bytes: int = DEFAULT_MAX_PARTITION_BYTES
    accepts_filters: bool = False

    @classmethod
    def read(cls, options: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> SourceOptions:
        """Read Spark's options, whose keys may be in upper or lower case.

        Raises:
            FlussTieringError: INVALID_REQUEST if an option is missing or has a wrong value.
        """
        given = {key.lower(): value for key, value in options.items()}
        table = given.get("table")
        if not table:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                'option "table" is missing: expected DATABASE.TABLE, as in .option("table", "fluss.orders")',
            )
        return cls(
            server=given.get("server") or environment.get(SERVER_VARIABLE) or DEFAULT_TARGET,
            table=table,
            max_partition_bytes=_positive("maxPartitionBytes", given, DEFAULT_MAX_PARTITION_BYTES),
            accepts_filters=given.get("acceptsfilters") == "true",
        )


def _positive(name: str, given: Mapping[str, str], default: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f'option "{name}" is {text!r}: expected a number of bytes, 1 or more'
        )
    return int(text)
