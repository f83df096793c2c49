"""Fluss rows in the Arrow types that Spark uses for its own types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from fluss_tiering.formats.micros import as_type, micros_type
from fluss_tiering.model.table import Column


def spark_arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema in which Spark expects these columns."""
    return pa.schema([(column.name, micros_type(column.data_type)) for column in columns])


def spark_rows(rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Return these columns of the rows, as Spark expects them."""
    schema = spark_arrow_schema(columns)
    arrays = [as_type(rows.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
