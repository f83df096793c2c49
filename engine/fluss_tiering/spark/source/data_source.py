"""`format("fluss")`: from options to a reader."""

from __future__ import annotations

from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark.source.errors import plain_errors
from fluss_tiering.spark.source.options import SourceOptions
from fluss_tiering.spark.source.schema import spark_schema
from fluss_tiering.spark.source.system_tables import SYSTEM_TABLES, SystemTableReader
from fluss_tiering.spark.source.table_reader import FilteringTableReader, TableReader


class FlussDataSource(ds.DataSource):
    """A Fluss table or a system table of a tiering server, to read; `SourceOptions` says which options there are."""

    @classmethod
    def name(cls) -> str:
        """What it is called in `format(...)` and `USING`."""
        return "fluss"

    def schema(self) -> StructType:
        """The table's columns; a user who gives a schema of some of them reads no others."""
        with plain_errors():
            options = SourceOptions.read(self.options)
            if system_table := SYSTEM_TABLES.get(options.table):
                return spark_schema(system_table.columns)
            with TieringClient(options.server) as client:
                (table,) = client.get_tables([TablePath.parse(options.table)])
            return spark_schema(table.descriptor.columns)

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        """A reader of these columns."""
        with plain_errors():
            options = SourceOptions.read(self.options)
        if options.table in SYSTEM_TABLES:
            return SystemTableReader(options, schema)
        return (FilteringTableReader if options.accepts_filters else TableReader)(options, schema)
