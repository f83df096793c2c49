"""The tables of the server's own: what they hold is read when a query is planned, on Spark's driver host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType
from fluss_tiering.spark.source.errors import plain_errors
from fluss_tiering.spark.source.options import SourceOptions
from fluss_tiering.spark.source.schema import chosen_columns, spark_rows

Row = tuple[str | int | None, ...]
"""Times in ms since the epoch."""


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A table that the server answers itself."""

    columns: tuple[Column, ...]
    rows: Callable[[TieringClient], Iterator[Row]]


def _columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, DataType.parse(text)) for name, text in types.items())


def _statuses(client: TieringClient) -> Iterator[Row]:
    for status in client.list_tiering_statuses():
        yield (
            status.path.database,
            status.path.table,
            status.state.value,
            status.tiering_epoch,
            status.last_tiered_time,
            status.last_error,
            status.last_error_time,
        )


def _tables(client: TieringClient) -> Iterator[Row]:
    for table in client.list_tables():
        yield table.path.database, table.path.table


SYSTEM_TABLES: Final[Mapping[str, SystemTable]] = {
    # S13
    "sys.lake_tiering_status": SystemTable(
        _columns(
            database_name="STRING",
            table_name="STRING",
            status="STRING",
            tiering_epoch="BIGINT",
            last_tiered_time="TIMESTAMP_LTZ(3)",
            last_error="STRING",
            last_error_time="TIMESTAMP_LTZ(3)",
        ),
        _statuses,
    ),
    # For the catalog's listings. No table of a user's can have the name.
    "sys.__tables": SystemTable(_columns(database_name="STRING", table_name="STRING"), _tables),
}


class SystemTablePartition(ds.InputPartition):
    """All rows of a system table."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        super().__init__(rows)
        self.rows = rows


class SystemTableReader(ds.DataSourceReader):
    """Reads a system table as it is when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._server = options.server
        self._table = SYSTEM_TABLES[options.table]
        with plain_errors():
            self._columns = chosen_columns(options.table, self._table.columns, schema)

    def partitions(self) -> Sequence[ds.InputPartition]:
        """One, which carries the rows: executors need not reach the server."""
        with plain_errors(), TieringClient(self._server) as client:
            rows = list(self._table.rows(client))
        return [SystemTablePartition(spark_rows(self._batch(rows), self._columns))]

    def read(self, partition: SystemTablePartition) -> Iterator[pa.RecordBatch]:
        """What the partition carries."""
        yield partition.rows

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        schema = arrow_schema(self._table.columns)
        values = zip(*rows, strict=True) if rows else ([] for _ in schema)
        arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
