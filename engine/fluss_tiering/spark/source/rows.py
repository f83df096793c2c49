"""Fluss rows in the Arrow types that Spark has."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from fluss_tiering.formats.micros import as_type, micros_type
from fluss_tiering.model.table import Column


def spark_rows(rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Return these columns of the rows in the Arrow types that Spark expects of them."""
    schema = pa.schema([(column.name, micros_type(column.data_type)) for column in columns])
    arrays = [as_type(rows.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
