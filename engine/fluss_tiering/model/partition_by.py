"""Partition transforms, as the option `table.datalake.partition-by` and Iceberg name them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.data_type import DataType, DataTypeRoot
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_DAYS: Final = frozenset({DataTypeRoot.DATE, DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ})
_TEXTS: Final = frozenset({DataTypeRoot.STRING, DataTypeRoot.CHAR})
_WHOLE: Final = frozenset({DataTypeRoot.TINYINT, DataTypeRoot.SMALLINT, DataTypeRoot.INT, DataTypeRoot.BIGINT})
_TYPES: Final = {
    "identity": _TEXTS | _WHOLE | {DataTypeRoot.BOOLEAN, DataTypeRoot.DATE},
    "year": _DAYS,
    "month": _DAYS,
    "day": _DAYS,
    "hour": _DAYS - {DataTypeRoot.DATE},
    "bucket": _TEXTS | _WHOLE | _DAYS | {DataTypeRoot.DECIMAL, DataTypeRoot.BYTES, DataTypeRoot.BINARY},
    "truncate": _TEXTS | _WHOLE,
}
"""The types of columns that rounds can partition by, for each transform: those of Iceberg's that have exact values."""
_OF_TIME: Final = frozenset({"year", "month", "day", "hour"})
_WITH_NUMBER: Final = ("bucket", "truncate")
_TERM: Final = re.compile(r"(?:(?P<name>\w+)\s*\((?P<arguments>[^()]*)\)|(?P<column>[^(),]+))\s*(?:,|$)\s*")
_OF_ICEBERG: Final = re.compile(r"([a-z]+)(?:\[(\d+)\])?")
_MAX_NUMBER: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PartitionTransform:
    """A partition field whose value follows from a column of the row.

    Attributes:
        name: The transform: identity, year, month, day, hour, bucket or truncate.
        number: The number of buckets, or the width; None for the other transforms.
    """

    column: str
    name: str = "identity"
    number: int | None = None

    @property
    def in_iceberg(self) -> str:
        """The transform in Iceberg's JSON."""
        return self.name if self.number is None else f"{self.name}[{self.number}]"

    @property
    def field_name(self) -> str:
        """The name that Iceberg gives the partition field."""
        if self.name == "identity":
            return self.column
        return f"{self.column}_{'trunc' if self.name == 'truncate' else self.name}"

    def in_sql(self, column: str) -> str:
        """Return the transform in Spark's DDL.

        Args:
            column: The column, in backticks if it needs them.
        """
        if self.number is not None:
            return f"{self.name}({self.number}, {column})"
        return column if self.name == "identity" else f"{self.name}s({column})"

    def takes(self, data_type: DataType) -> bool:
        """Return whether rounds can partition a column of this type so."""
        return data_type.root in _TYPES[self.name]


def parse_partition_by(text: str) -> Sequence[PartitionTransform]:
    """Return the transforms that an option names, for example `days(at), bucket(16, id), region`.

    The names are those of Spark's DDL, in the singular or the plural.

    Raises:
        FlussTieringError: INVALID_TABLE if the text is something else, or has a kind of transform twice of one column.
    """
    found = list(_parsed(text))
    if not found:
        raise _wrong(text, "it is empty")
    kinds = [(each.column, "time" if each.name in _OF_TIME else each.name) for each in found]
    for number, kind in enumerate(kinds):
        if kind in kinds[:number]:
            raise _wrong(text, f"{found[number].in_sql(kind[0])} comes after another one of the same column")
    return found


def _parsed(text: str) -> Iterator[PartitionTransform]:
    start, text = 0, text.strip()
    while start < len(text):
        term = _TERM.match(text, start)
        if term is None:
            raise _wrong(text, f"{text[start:]!r} is neither a column nor a transform of one")
        start = term.end()
        if term["column"] is not None:
            yield PartitionTransform(term["column"].strip().strip("`"))
            continue
        name = term["name"].lower().removesuffix("s")
        arguments = [each.strip() for each in term["arguments"].split(",")]
        # Spark takes the number and the column in either order.
        numbers = [each for each in arguments if re.fullmatch("[0-9]{1,10}", each)]
        columns = [each for each in arguments if each and each not in numbers]
        wanted = int(name in _WITH_NUMBER)
        if name not in _TYPES or len(columns) != 1 or len(numbers) != wanted or len(arguments) != 1 + wanted:
            raise _wrong(text, f"{term[0].rstrip(', ')!r} is no transform")
        number = int(numbers[0]) if numbers else None
        if number is not None and not 0 < number <= _MAX_NUMBER:
            raise _wrong(text, f"{term[0].rstrip(', ')!r} has the number {number}, which is not 1 to {_MAX_NUMBER}")
        yield PartitionTransform(columns[0].strip("`"), name, number)


def transform_of_iceberg(column: str, transform: str) -> PartitionTransform | None:
    """Return a transform of Iceberg's JSON; None for one that rounds cannot compute."""
    named = _OF_ICEBERG.fullmatch(transform)
    if named is None or named[1] not in _TYPES:
        return None
    return PartitionTransform(column, named[1], None if named[2] is None else int(named[2]))


def expected_type(transform: PartitionTransform) -> str:
    """Return the types that a transform takes, for messages."""
    return ", ".join(sorted(_TYPES[transform.name]))


def _wrong(text: str, why: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.INVALID_TABLE,
        f"table.datalake.partition-by is {text!r}: {why}; expected columns, or years, months, days or hours of one, or "
        "bucket(NUMBER, COLUMN) or truncate(NUMBER, COLUMN), with commas in between",
    )
