"""The columns of a table that a reader wants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, TableInfo


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns that a reader wants, in its order. A reader that only counts rows wants no column.

    Attributes:
        schema: The Arrow schema of the wanted columns.
        included: The indexes of the wanted columns in the table, ascending, or None for all columns.
    """

    schema: pa.Schema
    included: tuple[int, ...] | None

    @classmethod
    def of(cls, table: TableInfo, names: Sequence[str] | None) -> Projection:
        """Return the projection to the columns of these names, or to all columns of the table if there are no names.

        Raises:
            FlussTieringError: INVALID_REQUEST if a column does not exist or is named twice.
        """
        present = table.descriptor.columns
        if names is None:
            return cls(arrow_schema(present), None)
        chosen = named_columns(str(table.path), present, names)
        included = tuple(index for index, column in enumerate(present) if column.name in names)
        return cls(arrow_schema(chosen), None if len(included) == len(present) else included)

    def arrange(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the wanted columns in the reader's order. They come in the order of the table."""
        names = self.schema.names
        return records if records.schema.names == names else records.select(names)


def shown_name(name: str) -> str:
    """Return a name as a list of names shows it: in quotes if it has blanks or commas, or no visible character."""
    return name if re.fullmatch(r"[^\s,]+", name) else repr(name)


def named_columns(table: str, columns: Iterable[Column], names: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of these names, in the order of the names.

    Raises:
        FlussTieringError: INVALID_REQUEST if a column does not exist or is named twice.
    """
    by_name = {column.name: column for column in columns}
    for index, name in enumerate(names):
        if name not in by_name:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"table {table} has no column {name!r}: expected some of {', '.join(map(shown_name, by_name))}",
            )
        if name in names[:index]:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, f"column {name!r} of table {table} is asked for twice: expected it once"
            )
    return tuple(by_name[name] for name in names)


def no_columns(count: int) -> pa.RecordBatch:
    """Return this many rows without a column."""
    return pa.record_batch([pa.nulls(count)], names=[""]).select([])
