"""The schemas of a cluster's table. Fluss can only add nullable columns at the end (`SchemaUpdate`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.stored_schemas import StoredSchemas
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TableSchema
from fluss_tiering.model.table_options import LOG_COMPRESSION
from fluss_tiering.storage.fluss.rpc.calls.tables import table_columns
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.table_formats import check_stored

_NO_WIDTH: Final = 1 << 31


class SchemaHistory(StoredSchemas):
    """The schemas of one table of a cluster, which is asked once for each older one.

    Args:
        table: The table as it is now.
        columns: The names of the wanted columns, in their order; None for all.

    Raises:
        FlussTieringError: INVALID_TABLE if the table is stored in a format that is not supported here; INVALID_REQUEST
            if it does not have one of the columns.
    """

    def __init__(self, client: FlussClient, table: TableInfo, columns: Sequence[str] | None = None) -> None:
        check_stored(table.path, table.descriptor.properties)
        super().__init__(table, columns)
        self._client = client

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
        fields = list(self.arrow(self._table.schema_id))
        return None if len(fields) == 1 else (min(range(len(fields)), key=lambda index: _width(fields[index].type)),)

    def _older(self, schema_id: int) -> TableSchema:
        table = self._table
        if schema_id > table.schema_id:
            return super()._older(schema_id)
        columns = self._client.call(table_columns(table.path, schema_id))
        present = table.descriptor.columns
        same = [(column.name, column.data_type) for column in present[: len(columns)]]
        if [(column.name, column.data_type) for column in columns] != same:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"{table.path} has rows of schema {schema_id} with other columns than now: expected that columns were "
                "only added at the end; re-create the table",
            )
        return TableSchema(schema_id, tuple(columns), tuple(range(len(columns))))


def _width(kind: pa.DataType) -> int:
    """Return how many bits a value takes in a batch; a very large number if that depends on the value."""
    try:
        return int(kind.bit_width)
    except ValueError:
        return _NO_WIDTH
