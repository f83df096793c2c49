"""Converting rows that were stored under an older schema of a table to the columns that it has now.

Fluss 0.9.1 can only add nullable columns at the end (`SchemaUpdate`). Rows without these columns have null in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.schema import Projection, arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, TableInfo
from fluss_tiering.model.table_options import LOG_COMPRESSION
from fluss_tiering.storage.fluss.rpc.calls.tables import table_columns
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.table_formats import check_stored

_NO_WIDTH: Final = 1 << 31


class SchemaHistory:
    """The schemas of one table.

    Args:
        table: The table as it is now.
        columns: The names of the wanted columns, in their order; None for all.

    Raises:
        FlussTieringError: INVALID_TABLE if the table is stored in a format that is not supported here; INVALID_REQUEST
            if it does not have one of the columns.
    """

    def __init__(self, client: FlussClient, table: TableInfo, columns: Sequence[str] | None = None) -> None:
        check_stored(table.path, table.descriptor.properties)
        self._client = client
        self._table = table
        self.wanted = Projection.of(table, columns)
        self._present = arrow_schema(table.descriptor.columns)
        self._columns: dict[int, Sequence[Column]] = {table.schema_id: table.descriptor.columns}
        self._arrow = {table.schema_id: self._present}

    def columns(self, schema_id: int) -> Sequence[Column]:
        """Return the columns of a schema. The cluster is asked once for each schema.

        Raises:
            FlussTieringError: INVALID_TABLE if the schema is newer than the given table, or if the present columns do
                not begin with the schema's columns.
        """
        if schema_id not in self._columns:
            self._columns[schema_id] = self._older(schema_id)
        return self._columns[schema_id]

    def arrow(self, schema_id: int) -> pa.Schema:
        """Return the Arrow schema of rows under a schema. Errors are those of `columns`."""
        if schema_id not in self._arrow:
            self._arrow[schema_id] = arrow_schema(self.columns(schema_id))
        return self._arrow[schema_id]

    def included(self, schema_id: int) -> tuple[int, ...] | None:
        """Return the indexes of the wanted columns that a schema has; None for all. Errors are those of `columns`."""
        if self.wanted.included is None:
            return None
        there = len(self.columns(schema_id))
        return tuple(index for index in self.wanted.included if index < there)

    @property
    def pushed_down(self) -> tuple[int, ...] | None:
        """The indexes of the columns that leaders are asked for, ascending; None for all.

        If no column is wanted, this is the narrowest one, since Fluss fails to cut a batch to no columns
        (`FileLogProjection`). Fluss marks a cut batch as compressed in the way that the table's option says, even if
        the batch is compressed otherwise. If the option is NONE, compressed values would be taken for plain ones, so
        leaders are then asked for all columns.
        """
        if self._table.descriptor.properties.get(LOG_COMPRESSION.key, LOG_COMPRESSION.default).upper() == "NONE":
            return None
        if self.wanted.included != ():
            return self.wanted.included
        fields = list(self._present)
        return None if len(fields) == 1 else (min(range(len(fields)), key=lambda index: _width(fields[index].type)),)

    def to_present(self, records: pa.RecordBatch, schema_id: int) -> pa.RecordBatch:
        """Convert rows under a schema, which have at least the wanted columns of that schema, to the wanted columns."""
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
                f"{table.schema_id}): expected the columns to stay; read the table again with the new columns",
            )
        columns = self._client.call(table_columns(table.path, schema_id))
        present = table.descriptor.columns
        same = [(column.name, column.data_type) for column in present[: len(columns)]]
        if [(column.name, column.data_type) for column in columns] != same:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"{table.path} has rows of schema {schema_id} with other columns than now: expected that columns were "
                "only added at the end; re-create the table",
            )
        return columns


def _width(kind: pa.DataType) -> int:
    """Return how many bits a value takes in a batch; a very large number if that depends on the value."""
    try:
        return int(kind.bit_width)
    except ValueError:
        return _NO_WIDTH
