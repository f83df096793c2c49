"""Rows that were stored before a table's columns were altered, brought to the columns that it has now.

Fluss 0.9.1 adds nullable columns at the end and alters nothing else (`SchemaUpdate`): rows without them read null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.projection import Projection
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, TableInfo
from fluss_tiering.model.table_options import LOG_COMPRESSION
from fluss_tiering.storage.fluss.rpc.calls.schemas import table_columns
from fluss_tiering.storage.fluss.rpc.client import FlussClient

_FORMATS: Final = {"table.log.format": "ARROW", "table.kv.format": "COMPACTED"}
"""Fluss's defaults; the others are older ones, which it keeps for a few uses."""
_NO_WIDTH: Final = 1 << 31


class SchemaHistory:
    """The schemas of one table.

    Args:
        client: of the cluster.
        table: as it is now.
        columns: names of those that are wanted, in this order; None for all.

    Attributes:
        wanted: these columns.

    Raises:
        FlussTieringError: INVALID_TABLE for a table that is stored in formats that are not read here; INVALID_REQUEST
            for columns that it has not.
    """

    def __init__(self, client: FlussClient, table: TableInfo, columns: Sequence[str] | None = None) -> None:
        for option, known in _FORMATS.items():
            if (given := table.descriptor.properties.get(option, known)).upper() != known:
                raise FlussTieringError(
                    ErrorCode.INVALID_TABLE,
                    f"{table.path} has {option}={given}: expected {known}; re-create the table in that format",
                )
        self._client = client
        self._table = table
        self.wanted = Projection.of(table, columns)
        self._present = arrow_schema(table.descriptor.columns)
        self._columns: dict[int, Sequence[Column]] = {table.schema_id: table.descriptor.columns}
        self._arrow = {table.schema_id: self._present}

    def columns(self, schema_id: int) -> Sequence[Column]:
        """The columns under a schema, which is asked for once.

        Raises:
            FlussTieringError: INVALID_TABLE for a schema that the table had not yet when it was looked up, and for one
                whose columns are not those of now.
        """
        if schema_id not in self._columns:
            self._columns[schema_id] = self._older(schema_id)
        return self._columns[schema_id]

    def arrow(self, schema_id: int) -> pa.Schema:
        """The Arrow schema of rows under a schema. Raises as `columns`."""
        if schema_id not in self._arrow:
            self._arrow[schema_id] = arrow_schema(self.columns(schema_id))
        return self._arrow[schema_id]

    def included(self, schema_id: int) -> tuple[int, ...] | None:
        """Indexes of the wanted columns that rows under a schema have; None for all of them. Raises as `columns`."""
        if self.wanted.included is None:
            return None
        there = len(self.columns(schema_id))
        return tuple(index for index in self.wanted.included if index < there)

    @property
    def pushed_down(self) -> tuple[int, ...] | None:
        """Indexes of the columns that leaders are asked for, ascending; None for all.

        Where none is wanted that is the narrowest: Fluss fails to cut a batch down to nothing (`FileLogProjection`).
        And it tells a batch that it cut to be compressed as the table's option says, whatever it is: where that says
        NONE, compressed values would be taken for plain ones, so such a table's leaders are asked for all.
        """
        if self._table.descriptor.properties.get(LOG_COMPRESSION.key, LOG_COMPRESSION.default).upper() == "NONE":
            return None
        if self.wanted.included != ():
            return self.wanted.included
        fields = list(self._present)
        return None if len(fields) == 1 else (min(range(len(fields)), key=lambda index: _width(fields[index].type)),)

    def to_present(self, records: pa.RecordBatch, schema_id: int) -> pa.RecordBatch:
        """Rows under a schema, with those of the wanted columns that it has at least, in the wanted columns of now."""
        if schema_id != self._table.schema_id:
            there = set(records.schema.names)
            for field in self.wanted.schema:
                if field.name not in there:
                    records = records.append_column(field, pa.nulls(records.num_rows, field.type))
        return self.wanted.arrange(records)

    def _older(self, schema_id: int) -> Sequence[Column]:
        table = self._table
        if schema_id > table.schema_id:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"the columns of {table.path} were altered while it was read (schema {schema_id} instead of "
                f"{table.schema_id}): expected those that it had before; read it again, with those that it has now",
            )
        columns = self._client.call(table_columns(table.path, schema_id))
        present = table.descriptor.columns
        same = [(column.name, column.data_type) for column in present[: len(columns)]]
        if [(column.name, column.data_type) for column in columns] != same:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"{table.path} has rows of schema {schema_id} with other columns than now: expected the columns of now "
                "to be those with others added behind them; re-create the table",
            )
        return columns


def _width(kind: pa.DataType) -> int:
    """Bits of a value in a batch; more than any where that depends on the value."""
    try:
        return int(kind.bit_width)
    except ValueError:
        return _NO_WIDTH
