"""The table `sys.lake_tiering_status`. Spark's driver reads its rows when it plans a query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.tiering import TieringStatus
from fluss_tiering.spark.source.options import SourceOptions, plain_errors
from fluss_tiering.spark.source.schema import STATUS_COLUMNS, STATUS_TABLE, chosen_columns, spark_rows

_SCHEMA: Final = arrow_schema(STATUS_COLUMNS)


class StatusPartition(ds.InputPartition):
    """A partition with all rows of the table."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        super().__init__(rows)
        self.rows = rows


class StatusReader(ds.DataSourceReader):
    """Reads the statuses when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._server, self._security = options.server, options.security
        with plain_errors():
            self._columns = chosen_columns(STATUS_TABLE, STATUS_COLUMNS, schema)

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Return one partition with all rows, so that executors need not reach the server."""
        with plain_errors(), TieringClient(self._server, security=self._security) as client:
            rows = _rows(client.list_tiering_statuses())
        return [StatusPartition(spark_rows(rows, self._columns))]

    def read(self, partition: StatusPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the partition."""
        yield partition.rows


def _rows(statuses: Sequence[TieringStatus]) -> pa.RecordBatch:
    now = time.time_ns() // 1_000_000
    values = (
        [status.path.database for status in statuses],
        [status.path.table for status in statuses],
        [status.state.value for status in statuses],
        [status.tiering_epoch for status in statuses],
        [status.last_tiered_time for status in statuses],
        [status.last_error for status in statuses],
        [status.last_error_time for status in statuses],
        [status.records_waiting for status in statuses],
        [status.waiting_since for status in statuses],
        [status.lag_ms(now) for status in statuses],
        [status.next_round_time for status in statuses],
        [status.freshness_ms for status in statuses],
        [status.last_maintained_time for status in statuses],
        [status.maintenance_saved_files for status in statuses],
        [status.maintenance_rewritten_bytes for status in statuses],
        [status.maintenance_expired_snapshots for status in statuses],
        [status.maintenance_deleted_files for status in statuses],
    )
    arrays = [pa.array(column, field.type) for column, field in zip(values, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
