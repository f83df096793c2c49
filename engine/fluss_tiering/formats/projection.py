"""Some columns of a table, for readers that need no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, TableInfo


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns of a table that a reader wants, in the order in which it wants them; none for a count of rows.

    Attributes:
        schema: of what is wanted.
        included: indexes of the wanted columns in the table, ascending; None for all of them.
    """

    schema: pa.Schema
    included: tuple[int, ...] | None

    @classmethod
    def of(cls, table: TableInfo, names: Sequence[str] | None) -> Projection:
        """The columns of these names; None for all, in the table's order.

        Raises:
            FlussTieringError: INVALID_REQUEST for a name that is no column's, or stands there twice.
        """
        present = table.descriptor.columns
        if names is None:
            return cls(arrow_schema(present), None)
        chosen = named_columns(str(table.path), present, names)
        included = tuple(index for index, column in enumerate(present) if column.name in names)
        return cls(arrow_schema(chosen), None if len(included) == len(present) else included)

    def arrange(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that have the wanted columns in the table's order, with these in the order wanted."""
        names = self.schema.names
        return records if records.schema.names == names else records.select(names)


def named_columns(table: str, columns: Iterable[Column], names: Sequence[str]) -> tuple[Column, ...]:
    """The columns of these names, in the order of the names.

    Raises:
        FlussTieringError: INVALID_REQUEST for a name that is no column's, or stands there twice.
    """
    by_name = {column.name: column for column in columns}
    for index, name in enumerate(names):
        if name not in by_name:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"table {table} has no column {name!r}: expected some of {', '.join(by_name)}",
            )
        if name in names[:index]:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, f"column {name!r} of table {table} is asked for twice: expected it once"
            )
    return tuple(by_name[name] for name in names)


def no_columns(count: int) -> pa.RecordBatch:
    """So many rows that have no column."""
    return pa.record_batch([pa.nulls(count)], names=[""]).select([])
