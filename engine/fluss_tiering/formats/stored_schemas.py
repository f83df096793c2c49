"""Converting rows that were stored under an older schema of a table to the columns that it has now.

Columns are told apart by their ids. A column that the older schema lacks is null, and values of a type that was widened
since are cast.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from fluss_tiering.formats.schema import Projection, arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, TableInfo, TableSchema


class StoredSchemas:
    """The schemas of one table.

    Attributes:
        wanted: The wanted columns of the table as it is now.
        present_id: The id of the schema that the table has now.

    Args:
        table: The table as it is now.
        columns: The names of the wanted columns, in their order; None for all.

    Raises:
        FlussTieringError: INVALID_REQUEST if the table does not have one of the columns.
    """

    def __init__(self, table: TableInfo, columns: Sequence[str] | None = None) -> None:
        self._table = table
        self.present_id = table.schema_id
        self.wanted = Projection.of(table, columns)
        present = table.present_schema
        self._schemas = {schema.schema_id: schema for schema in (*table.schemas, present)}
        self._arrow: dict[int, pa.Schema] = {}
        ids = present.ids
        self._wanted_ids = [ids[name] for name in self.wanted.schema.names]

    def columns(self, schema_id: int) -> Sequence[Column]:
        """Return the columns of a schema.

        Raises:
            FlussTieringError: INVALID_TABLE if the schema is newer than the given table, or is none of its schemas.
        """
        return self._schema(schema_id).columns

    def arrow(self, schema_id: int) -> pa.Schema:
        """Return the Arrow schema of rows under a schema. Errors are those of `columns`."""
        if schema_id not in self._arrow:
            self._arrow[schema_id] = arrow_schema(self.columns(schema_id))
        return self._arrow[schema_id]

    def included(self, schema_id: int) -> tuple[int, ...] | None:
        """Return the indexes of the wanted columns that a schema has; None for all. Errors are those of `columns`."""
        if self.wanted.included is None and schema_id == self.present_id:
            return None
        ids, wanted = self._schema(schema_id).column_ids, frozenset(self._wanted_ids)
        found = tuple(index for index, number in enumerate(ids) if number in wanted)
        return None if len(found) == len(ids) else found

    def to_present(self, records: pa.RecordBatch, schema_id: int) -> pa.RecordBatch:
        """Convert rows under a schema, which have at least the wanted columns of that schema, to the wanted columns."""
        if schema_id == self.present_id or not self._wanted_ids:
            return self.wanted.arrange(records)
        stored = self._schema(schema_id)
        names = {number: name for name, number in stored.ids.items()}
        arrays = []
        for number, field in zip(self._wanted_ids, self.wanted.schema, strict=True):
            found = records.column(names[number]) if number in names else pa.nulls(records.num_rows, field.type)
            # Arrow refuses to cast a null ROW with a NOT NULL field, even to its own type.
            arrays.append(found if found.type == field.type else found.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.wanted.schema)

    def _schema(self, schema_id: int) -> TableSchema:
        found = self._schemas.get(schema_id)
        if found is None:
            found = self._schemas[schema_id] = self._older(schema_id)
        return found

    def _older(self, schema_id: int) -> TableSchema:
        """Return a schema that the given table does not name."""
        table = self._table
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"the columns of {table.path} were altered while it was read (schema {schema_id} instead of "
            f"{table.schema_id}): expected the columns to stay; read the table again with the new columns",
        )
