"""Fluss columns and rows in Spark's types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import types

from fluss_tiering.formats.micros import as_type, micros_type
from fluss_tiering.formats.schema import named_columns
from fluss_tiering.model.data_type import Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, DataTypeRoot, TablePath

TABLE_LIST: Final = "sys.__tables"
"""Stands for the list of tables: no table can have this name. Its schema is that of `table_list`."""

STATUS_TABLE: Final = "sys.lake_tiering_status"
STATUS_COLUMNS: Final = tuple(
    Column(name, DataType.parse(text))
    for name, text in (
        ("database_name", "STRING"),
        ("table_name", "STRING"),
        ("status", "STRING"),
        ("tiering_epoch", "BIGINT"),
        ("last_tiered_time", "TIMESTAMP_LTZ(3)"),
        ("last_error", "STRING"),
        ("last_error_time", "TIMESTAMP_LTZ(3)"),
        ("records_waiting", "BIGINT"),
        ("waiting_since", "TIMESTAMP_LTZ(3)"),
        ("lag_ms", "BIGINT"),
        ("next_round_time", "TIMESTAMP_LTZ(3)"),
        ("freshness_ms", "BIGINT"),
        ("last_maintained_time", "TIMESTAMP_LTZ(3)"),
        ("maintenance_saved_files", "BIGINT"),
        ("maintenance_rewritten_bytes", "BIGINT"),
        ("maintenance_expired_snapshots", "BIGINT"),
        ("maintenance_deleted_files", "BIGINT"),
    )
)

_FIXED_TYPES: Final[Mapping[DataTypeRoot, types.DataType]] = {
    DataTypeRoot.BOOLEAN: types.BooleanType(),
    DataTypeRoot.TINYINT: types.ByteType(),
    DataTypeRoot.SMALLINT: types.ShortType(),
    DataTypeRoot.INT: types.IntegerType(),
    DataTypeRoot.BIGINT: types.LongType(),
    DataTypeRoot.FLOAT: types.FloatType(),
    DataTypeRoot.DOUBLE: types.DoubleType(),
    DataTypeRoot.CHAR: types.StringType(),
    DataTypeRoot.STRING: types.StringType(),
    DataTypeRoot.BINARY: types.BinaryType(),
    DataTypeRoot.BYTES: types.BinaryType(),
    DataTypeRoot.DATE: types.DateType(),
    DataTypeRoot.TIMESTAMP: types.TimestampNTZType(),
    DataTypeRoot.TIMESTAMP_LTZ: types.TimestampType(),
}


def spark_type(data_type: DataType) -> types.DataType:
    """Return Spark's type for a Fluss type. Timestamps are rounded down to microseconds; a TIME has milliseconds.

    Raises:
        FlussTieringError: INVALID_REQUEST if this version of Spark has no such type.
    """
    match data_type.root:
        case DataTypeRoot.DECIMAL:
            return types.DecimalType(data_type.precision, data_type.scale)
        case DataTypeRoot.ARRAY:
            (element,) = data_type.fields
            return types.ArrayType(spark_type(element.data_type), element.data_type.nullable)
        case DataTypeRoot.MAP:
            key, value = data_type.fields
            return types.MapType(spark_type(key.data_type), spark_type(value.data_type), value.data_type.nullable)
        case DataTypeRoot.ROW:
            return types.StructType([_field(field) for field in data_type.fields])
        case DataTypeRoot.TIME:
            return _time_type()
        case root:
            return _FIXED_TYPES[root]


def _time_type() -> types.DataType:
    if not hasattr(types, "TimeType"):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            "this version of Spark has no type TIME: expected Spark 4.1; name the other columns with schema(...), or "
            "read the table with `fluss-tiering scan`",
        )
    return types.TimeType(3)


def spark_schema(columns: Sequence[Column]) -> types.StructType:
    """Return Spark's schema for a table with these columns."""
    return types.StructType([_field(column) for column in columns])


def _field(column: Column | Field) -> types.StructField:
    metadata = {} if column.comment is None else {"comment": column.comment}
    return types.StructField(column.name, spark_type(column.data_type), column.data_type.nullable, metadata)


def chosen_columns(table: str, columns: Sequence[Column], schema: types.StructType) -> tuple[Column, ...]:
    """Return the columns that a schema names, in the order of the schema: all, or those that the user named.

    Raises:
        FlussTieringError: INVALID_REQUEST if the table has no such column, or has it with another type.
    """
    chosen = named_columns(table, columns, schema.names)
    for field, column in zip(schema.fields, chosen, strict=True):
        wanted = spark_type(column.data_type)
        if field.dataType != wanted:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"column {field.name!r} of table {table} cannot be read as {field.dataType.simpleString()}: "
                f"expected {wanted.simpleString()}; cast it in the query",
            )
    return chosen


def table_list(tables: Iterable[TablePath]) -> types.StructType:
    """Return the names of tables as a schema for the catalog: each database is a field, a struct with its tables."""
    databases: dict[str, list[types.StructField]] = {}
    for path in tables:
        databases.setdefault(path.database, []).append(types.StructField(path.table, types.NullType()))
    return types.StructType([types.StructField(name, types.StructType(fields)) for name, fields in databases.items()])


def spark_rows(rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Return these columns of the rows in the Arrow types that Spark expects of them."""
    schema = pa.schema([(column.name, micros_type(column.data_type)) for column in columns])
    arrays = [as_type(rows.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
