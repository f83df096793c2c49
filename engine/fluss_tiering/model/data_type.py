"""Data types as Fluss describes them, to and from their SQL text.

Type names are those of Fluss's SQL (`org.apache.fluss.types.DataTypeRoot`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError


class DataTypeRoot(StrEnum):
    """The families of data types."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    STRING = "STRING"
    BINARY = "BINARY"
    BYTES = "BYTES"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"


WITH_LENGTH: Final = frozenset({DataTypeRoot.CHAR, DataTypeRoot.BINARY})
WITH_PRECISION: Final = frozenset(
    {DataTypeRoot.DECIMAL, DataTypeRoot.TIME, DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ}
)
_DEFAULT_PRECISION: Final[Mapping[DataTypeRoot, int]] = {
    DataTypeRoot.DECIMAL: 10,
    DataTypeRoot.TIME: 0,
    DataTypeRoot.TIMESTAMP: 6,
    DataTypeRoot.TIMESTAMP_LTZ: 6,
}
_MAX_LENGTH: Final = 2**31 - 1
_TYPE_TEXT: Final = re.compile(
    r"\s*([a-z_]+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*(NOT\s+NULL|NULL)?\s*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type.

    Attributes:
        precision: digits of a DECIMAL (1-38), sub-second digits of a TIME or a timestamp (0-9). A TIME keeps no more
            than milliseconds, whatever its precision.
        scale: of a DECIMAL.
        length: of a CHAR in characters, of a BINARY in bytes; 1 or more.
    """

    root: DataTypeRoot
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    length: int = 0

    def __post_init__(self) -> None:
        if self.root is DataTypeRoot.DECIMAL:
            if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
                raise FlussTieringError(
                    ErrorCode.INVALID_TABLE,
                    f"DECIMAL({self.precision}, {self.scale}): expected a precision from 1 to 38 and a scale from 0 "
                    "to it",
                )
        elif self.root in WITH_PRECISION and not 0 <= self.precision <= 9:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE, f"{self.root}({self.precision}): expected a precision from 0 to 9"
            )
        if self.root in WITH_LENGTH and not 1 <= self.length <= _MAX_LENGTH:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE, f"{self.root}({self.length}): expected a length from 1 to {_MAX_LENGTH}"
            )

    @staticmethod
    def parse(text: str) -> DataType:
        """A type from its SQL text, for example `DECIMAL(10, 2) NOT NULL`.

        Raises:
            FlussTieringError: INVALID_TABLE for text that is no supported type.
        """
        return _parse_type(text)

    def __str__(self) -> str:
        arguments = ""
        if self.root is DataTypeRoot.DECIMAL:
            arguments = f"({self.precision}, {self.scale})"
        elif self.root in WITH_PRECISION:
            arguments = f"({self.precision})"
        elif self.root in WITH_LENGTH:
            arguments = f"({self.length})"
        return f"{self.root}{arguments}{'' if self.nullable else ' NOT NULL'}"


@lru_cache(maxsize=1024)
def _parse_type(text: str) -> DataType:
    match = _TYPE_TEXT.fullmatch(text)
    name = match.group(1).upper() if match else ""
    if match is None or name not in DataTypeRoot.__members__:
        raise _no_type(text)
    root = DataTypeRoot(name)
    first, second, constraint = match.group(2), match.group(3), match.group(4)
    takes = 2 if root is DataTypeRoot.DECIMAL else 1 if root in WITH_PRECISION | WITH_LENGTH else 0
    if (first is not None) + (second is not None) > takes:
        raise _no_type(text)
    nullable = not (constraint or "").upper().startswith("NOT")
    if root in WITH_LENGTH:
        return DataType(root, nullable, length=int(first or 1))
    precision = int(first) if first else _DEFAULT_PRECISION.get(root, 0)
    return DataType(root, nullable, precision, int(second or 0))


def _no_type(text: str) -> FlussTieringError:
    """INVALID_TABLE for text that names no type."""
    return FlussTieringError(
        ErrorCode.INVALID_TABLE, f"{text!r} is not a type: expected one of {', '.join(DataTypeRoot)}"
    )
