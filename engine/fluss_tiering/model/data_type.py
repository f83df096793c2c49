"""Data types as Fluss describes them, and their conversion to and from SQL text.

The names of types are those of Fluss's SQL (`org.apache.fluss.types.DataTypeRoot`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    ARRAY = "ARRAY"
    MAP = "MAP"
    ROW = "ROW"


NESTED: Final = frozenset({DataTypeRoot.ARRAY, DataTypeRoot.MAP, DataTypeRoot.ROW})
ELEMENT: Final = "element"
KEY: Final = "key"
VALUE: Final = "value"
PARTS: Final[Mapping[DataTypeRoot, list[str]]] = {DataTypeRoot.ARRAY: [ELEMENT], DataTypeRoot.MAP: [KEY, VALUE]}
"""The names of the fields that these types have."""
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


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a nested type.

    Attributes:
        data_type: The type of its values.
        comment: A comment for people; None if there is none.
    """

    name: str
    data_type: DataType
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type.

    Attributes:
        root: The family of the type.
        nullable: Whether values may be null.
        precision: The number of digits of a DECIMAL (1 to 38), or the number of digits after the second of a TIME or a
            timestamp (0 to 9). A TIME keeps no more than milliseconds, whatever its precision. 0 for other types.
        scale: The number of digits after the point of a DECIMAL. 0 for other types.
        length: The length of a CHAR in characters or of a BINARY in bytes, 1 or more. 0 for other types.
        fields: The fields of a ROW; the `element` of an ARRAY; the `key`, which is NOT NULL, and the `value` of a MAP.
            Empty for other types.
    """

    root: DataTypeRoot
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    length: int = 0
    fields: tuple[Field, ...] = ()

    def __post_init__(self) -> None:
        if self.root is DataTypeRoot.DECIMAL:
            if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
                raise FlussTieringError(
                    ErrorCode.INVALID_TABLE,
                    f"DECIMAL({self.precision}, {self.scale}): expected a precision from 1 to 38 and a scale from 0 "
                    "to the precision",
                )
        elif self.root in WITH_PRECISION and not 0 <= self.precision <= 9:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE, f"{self.root}({self.precision}): expected a precision from 0 to 9"
            )
        if self.root in WITH_LENGTH and not 1 <= self.length <= _MAX_LENGTH:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE, f"{self.root}({self.length}): expected a length from 1 to {_MAX_LENGTH}"
            )
        names = [field.name for field in self.fields]
        if (
            names != PARTS.get(self.root, [] if self.root not in NESTED else names)
            or len(set(names)) < len(names)
            or (self.root in NESTED and not (names and all(names)))
        ):
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"{self.root} has the fields {', '.join(map(repr, names)) or 'none'}: expected "
                f"{', '.join(PARTS.get(self.root, ['fields that all have different names']))}",
            )
        if self.root is DataTypeRoot.MAP and self.fields[0].data_type.nullable:
            raise FlussTieringError(ErrorCode.INVALID_TABLE, "MAP with a nullable key: expected a key that is NOT NULL")

    @staticmethod
    def parse(text: str) -> DataType:
        """Parse the SQL text of a type, for example `DECIMAL(10, 2) NOT NULL`, `ARRAY<INT>` or `ROW<a INT, b STRING>`.

        Raises:
            FlussTieringError: INVALID_TABLE if the text is not a supported type.
        """
        return _parse_type(text)

    @property
    def nesting(self) -> int:
        """The depth of nesting; 0 for a type without fields."""
        return 1 + max(field.data_type.nesting for field in self.fields) if self.fields else 0

    def __str__(self) -> str:
        arguments = ""
        if self.root is DataTypeRoot.ROW:
            arguments = f"<{', '.join(map(_field_text, self.fields))}>"
        elif self.root in NESTED:
            arguments = f"<{', '.join(str(field.data_type) for field in self.fields)}>"
        if self.root is DataTypeRoot.DECIMAL:
            arguments = f"({self.precision}, {self.scale})"
        elif self.root in WITH_PRECISION:
            arguments = f"({self.precision})"
        elif self.root in WITH_LENGTH:
            arguments = f"({self.length})"
        return f"{self.root}{arguments}{'' if self.nullable else ' NOT NULL'}"


MAX_NESTING: Final = 16
_TOKEN: Final = re.compile(r"\s*(?:([0-9]+)|([A-Za-z_]\w*)|`((?:[^`]|``)*)`|'((?:[^']|'')*)'|([<>(),]))\s*")


_CLOSED_BY: Final = {"<": ">", "(": ")"}


def _field_text(field: Field) -> str:
    comment = "" if field.comment is None else " '" + field.comment.replace("'", "''") + "'"
    return f"`{field.name.replace('`', '``')}` {field.data_type}{comment}"


@lru_cache(maxsize=1024)
def _parse_type(text: str) -> DataType:
    wrong_bracket = None
    try:
        parser = _Parser(text)
        wrong_bracket = parser.wrong_bracket()
        data_type = parser.data_type()
        parser.end()
    except _NoTypeError:
        why = wrong_bracket or f"expected one of {', '.join(DataTypeRoot)}"
        raise FlussTieringError(ErrorCode.INVALID_TABLE, f"{text!r} is not a type: {why}") from None
    return data_type


class _NoTypeError(Exception):
    """The text is not that of a type."""


class _Parser:
    """Parses a type's text from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise _NoTypeError
            kind = ("number", "word", "name", "text", "sign")[(match.lastindex or 0) - 1]
            self._tokens.append((kind, match.group(match.lastindex or 0)))
            position = match.end()
        self._next = 0
        self._depth = 0

    def wrong_bracket(self) -> str | None:
        """Return what is wrong with the brackets; None if each one that opens is closed."""
        opened: list[str] = []
        for kind, token in self._tokens:
            if kind != "sign":
                continue
            if token in _CLOSED_BY:
                opened.append(token)
            elif token in _CLOSED_BY.values() and (not opened or _CLOSED_BY[opened.pop()] != token):
                return f"its bracket {token!r} closes none: expected one that opens before it"
        return (
            f"its bracket {opened[-1]!r} is not closed: expected {_CLOSED_BY[opened[-1]]!r} after it"
            if opened
            else None
        )

    def data_type(self) -> DataType:
        name = self._take("word").upper()
        if name not in DataTypeRoot.__members__:
            raise _NoTypeError
        root = DataTypeRoot(name)
        if root in NESTED:
            self._depth += 1
            if self._depth > MAX_NESTING:
                raise _NoTypeError
            fields = self._fields(root)
            self._depth -= 1
            return DataType(root, self._nullable(), fields=fields)
        numbers = self._numbers()
        if len(numbers) > (2 if root is DataTypeRoot.DECIMAL else root in WITH_PRECISION | WITH_LENGTH):
            raise _NoTypeError
        nullable = self._nullable()
        if root in WITH_LENGTH:
            return DataType(root, nullable, length=(*numbers, 1)[0])
        precision = numbers[0] if numbers else _DEFAULT_PRECISION.get(root, 0)
        return DataType(root, nullable, precision, numbers[1] if len(numbers) > 1 else 0)

    def end(self) -> None:
        if self._next < len(self._tokens):
            raise _NoTypeError

    def _fields(self, root: DataTypeRoot) -> tuple[Field, ...]:
        self._require("<")
        fields = [self._field(root, 0)]
        while self._has(","):
            fields.append(self._field(root, len(fields)))
        self._require(">")
        if len(fields) != len(PARTS.get(root, fields)):
            raise _NoTypeError
        return tuple(fields)

    def _field(self, root: DataTypeRoot, number: int) -> Field:
        if root is not DataTypeRoot.ROW:
            names = PARTS[root]
            if number >= len(names):
                raise _NoTypeError
            data_type = self.data_type()
            # As in Fluss, a key is never null.
            return Field(names[number], replace(data_type, nullable=False) if names[number] == KEY else data_type)
        name = self._take("word", "name").replace("``", "`")
        data_type = self.data_type()
        comment = self._take("text").replace("''", "'") if self._peek()[0] == "text" else None
        return Field(name, data_type, comment)

    def _numbers(self) -> list[int]:
        if not self._has("("):
            return []
        numbers = [int(self._take("number"))]
        while self._has(","):
            numbers.append(int(self._take("number")))
        self._require(")")
        return numbers

    def _nullable(self) -> bool:
        words = []
        while self._peek()[0] == "word":
            words.append(self._take("word").upper())
        if words not in ([], ["NULL"], ["NOT", "NULL"]):
            raise _NoTypeError
        return words != ["NOT", "NULL"]

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("end", "")

    def _has(self, sign: str) -> bool:
        found = self._peek() == ("sign", sign)
        self._next += found
        return found

    def _require(self, sign: str) -> None:
        if not self._has(sign):
            raise _NoTypeError

    def _take(self, *kinds: str) -> str:
        kind, token = self._peek()
        if kind not in kinds:
            raise _NoTypeError
        self._next += 1
        return token
