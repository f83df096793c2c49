"""Say of a value in a CSV file that cannot be read where it is and what is expected there.

pyarrow numbers columns from 0, and rows without empty lines.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fluss_tiering.cli.row_files.standard_input import RememberedInput
from fluss_tiering.model.data_type import NESTED
from fluss_tiering.model.table import Column, DataType, DataTypeRoot
from fluss_tiering.plural import counted

_VALUE: Final = re.compile(r"In CSV column #(?P<column>\d+): (?:Row #(?P<row>\d+): )?(?P<reason>.*)", re.DOTALL)
_QUOTED: Final = re.compile(r"(?:invalid value|Error converting|offset in) '(?P<value>.*)'", re.DOTALL)
_COUNT: Final = re.compile(r"Row #(?P<row>\d+): Expected (?P<expected>\d+) columns, got (?P<found>\d+)")
_SHOWN: Final = 100
"""How many characters of a value an error shows at most."""
_EMPTY: Final = "'' does not fit"

_EXPECTED: Final[Mapping[DataTypeRoot, str]] = {
    DataTypeRoot.BOOLEAN: "true or false",
    DataTypeRoot.TINYINT: "a whole number from -128 to 127",
    DataTypeRoot.SMALLINT: "a whole number from -32768 to 32767",
    DataTypeRoot.INT: "a whole number from -2147483648 to 2147483647",
    DataTypeRoot.BIGINT: "a whole number from -9223372036854775808 to 9223372036854775807",
    DataTypeRoot.FLOAT: "a number from -3.4028235e38 to 3.4028235e38, inf, -inf or nan",
    DataTypeRoot.DOUBLE: "a number from -1.7976931348623157e308 to 1.7976931348623157e308, inf, -inf or nan",
    DataTypeRoot.STRING: "text in UTF-8",
    DataTypeRoot.BYTES: "bytes as pairs of hexadecimal digits, for example 00ff",
    DataTypeRoot.DATE: "a date, for example 2026-01-31",
    DataTypeRoot.TIME: "a time of day, for example 12:30:00",
    DataTypeRoot.TIMESTAMP: "a date and a time without a time zone, for example 2026-01-31 12:30:00",
    DataTypeRoot.TIMESTAMP_LTZ: "a date and a time in UTC, for example 2026-01-31 12:30:00Z or 2026-01-31 12:30:00",
}

_TIMES: Final = frozenset({DataTypeRoot.TIME, DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ})


class WrongValueError(Exception):
    """A value that a column cannot hold.

    Attributes:
        row: The number of its row in a batch, from 0.
        column: The name of the column.
        value: The text of the value, None for NULL.
    """

    def __init__(self, row: int, column: str, value: str | None) -> None:
        super().__init__(row, column, value)
        self.row = row
        self.column = column
        self.value = value


@dataclass(frozen=True, slots=True)
class CsvPlaces:
    """What an error says of the places in a CSV file.

    Attributes:
        source: The file, or standard input.
        columns: The columns of the table.
        has_empty_rows: Whether an empty line is a row.
    """

    source: Path | RememberedInput
    columns: tuple[Column, ...]
    has_empty_rows: bool = False

    def of_error(self, reason: str) -> str:
        """Return an error of pyarrow with the name of the column, the line of the file and what is expected."""
        if match := _COUNT.search(reason):
            place, _ = self._place(int(match["row"]))
            return (
                f"{place} has {match['found']} values: expected {match['expected']}, one for each of the columns "
                f"{', '.join(self._names())}"
            )
        match = _VALUE.match(reason)
        names = self._names()
        if match is None or int(match["column"]) >= len(names):
            return reason
        index = int(match["column"])
        place, value = self._place(int(match["row"]), index) if match["row"] else ("", None)
        if quoted := _QUOTED.search(match["reason"]):
            value = quoted["value"]
        return self._said(place, names[index], match["reason"] if value is None else f"{_shown(value)} does not fit")

    def of_value(self, error: WrongValueError, before: int) -> str:
        """Return what is wrong with a value of a batch.

        Args:
            error: The value.
            before: The number of rows in the batches before its own.
        """
        # pyarrow counts the line with the names, too.
        place, _ = self._place(before + error.row + 2)
        what = "there is no value" if error.value is None else f"{_shown(error.value)} does not fit"
        return self._said(place, error.column, what)

    def _said(self, place: str, name: str, what: str) -> str:
        kinds = [column.data_type for column in self.columns if column.name == name]
        expected = f": expected {_expected(kinds[0])} ({kinds[0]})" if kinds else ""
        if what == _EMPTY:
            expected += ", or nothing without quotes for NULL"
        return f"{place and f'{place}, '}column {name!r}: {what}{expected}"

    def _place(self, row: int, column: int | None = None) -> tuple[str, str | None]:
        """Return where a row is that pyarrow numbers, and the text that it has in a column.

        The place is a line of the file, or the row if the lines cannot be counted, as in standard input.
        """
        if isinstance(self.source, Path) and self.source.is_file():
            with self.source.open(encoding="utf-8", errors="replace", newline="") as file, suppress(csv.Error):
                for line, values in itertools.islice(_rows_with_lines(file, self.has_empty_rows), row - 1, row):
                    is_there = column is not None and column < len(values)
                    return f"line {line}", values[column or 0] if is_there else None
        return f"row {row} (row 1 has the names)", None

    def _names(self) -> list[str]:
        try:
            if isinstance(self.source, RememberedInput):
                return next(csv.reader(io.StringIO(self.source.beginning.decode(errors="replace"), newline="")), [])
            with self.source.open(encoding="utf-8-sig", errors="replace", newline="") as file:
                return next((row for row in csv.reader(file) if row), [])
        except (OSError, csv.Error):
            return []


def readable(columns: Iterable[Column]) -> list[Column]:
    """Return the columns of a table that a CSV file can have."""
    return [column for column in columns if column.data_type.root not in NESTED]


def unreadable_columns(columns: Iterable[Column], names: Collection[str]) -> str | None:
    """Return why the values of some columns of a CSV file cannot be read; None if they can.

    Args:
        columns: The columns of the table.
        names: The names of the columns of the file.
    """
    nested = [column for column in columns if column.data_type.root in NESTED and column.name in names]
    found = [f"{column.name!r} ({column.data_type})" for column in nested]
    return f"CSV cannot hold values of {', '.join(found)}: expected a Parquet file" if found else None


def _rows_with_lines(file: Iterable[str], has_empty_rows: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield each row with the number of the line that it begins on, from 1."""
    reader = csv.reader(file)
    begin = 1
    for row in reader:
        if row or has_empty_rows:
            yield begin, row
        begin = reader.line_num + 1


def _expected(kind: DataType) -> str:
    if kind.root is DataTypeRoot.DECIMAL:
        whole = kind.precision - kind.scale
        return f"a number with up to {whole} digits before the point and up to {kind.scale} after it"
    if kind.root is DataTypeRoot.CHAR:
        return f"a text of up to {kind.length} characters"
    if kind.root is DataTypeRoot.BINARY:
        return f"{kind.length} bytes, each as two hexadecimal digits"
    expected = _EXPECTED.get(kind.root, "a value of the type")
    if kind.root in _TIMES:
        digits = f"up to {counted(kind.precision, 'digit')}" if kind.precision else "no digit"
        return f"{expected}, with {digits} behind the second"
    return expected


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
