"""The data source `format("fluss")`: it makes a reader from options."""

from __future__ import annotations

from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark.source.options import SourceOptions, plain_errors
from fluss_tiering.spark.source.schema import STATUS_COLUMNS, STATUS_TABLE, TABLE_LIST, spark_schema, table_list


class FlussDataSource(ds.DataSource):
    """Reads a Fluss table or a system table of a tiering server. `SourceOptions` describes the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)` and `USING`."""
        return "fluss"

    def schema(self) -> StructType:
        """Return the columns of the table. A user who gives a schema of some columns reads only these."""
        with plain_errors():
            options = SourceOptions.read(self.options)
            if options.table == STATUS_TABLE:
                return spark_schema(STATUS_COLUMNS)
            with TieringClient(options.server, security=options.security) as client:
                if options.table == TABLE_LIST:
                    return table_list(table.path for table in client.list_tables())
                (table,) = client.get_tables([TablePath.parse(options.table)])
            return spark_schema(table.descriptor.columns)

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        """Return a reader of these columns."""
        # Spark asks for a schema in a separate process, which should not wait until these modules are loaded.
        from fluss_tiering.spark.source.status_table import StatusReader  # noqa: PLC0415
        from fluss_tiering.spark.source.table_reader import TableReader  # noqa: PLC0415

        with plain_errors():
            options = SourceOptions.read(self.options)
        if options.table == STATUS_TABLE:
            return StatusReader(options, schema)
        return TableReader(options, schema)
