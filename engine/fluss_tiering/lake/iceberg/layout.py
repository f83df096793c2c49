"""The layout that Fluss gives an Iceberg table, as Iceberg's own JSON; pure.

Source: Fluss 0.9.1, `IcebergLakeCatalog` and `FlussDataTypeToIcebergDataType`. Fluss's readers accept a table that we
made because they find exactly what Fluss would have made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from fluss_tiering.model.data_type import NESTED, Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import (
    BUCKET_COLUMN,
    OFFSET_COLUMN,
    SYSTEM_COLUMNS,
    TIMESTAMP_COLUMN,
    Column,
    DataType,
    DataTypeRoot,
    TableDescriptor,
)

SORT_COLUMN: Final = OFFSET_COLUMN

_TYPES: Final[dict[DataTypeRoot, str]] = {
    DataTypeRoot.BOOLEAN: "boolean",
    DataTypeRoot.TINYINT: "int",
    DataTypeRoot.SMALLINT: "int",
    DataTypeRoot.INT: "int",
    DataTypeRoot.BIGINT: "long",
    DataTypeRoot.FLOAT: "float",
    DataTypeRoot.DOUBLE: "double",
    DataTypeRoot.CHAR: "string",
    DataTypeRoot.STRING: "string",
    DataTypeRoot.BINARY: "binary",
    DataTypeRoot.BYTES: "binary",
    DataTypeRoot.DATE: "date",
    DataTypeRoot.TIME: "time",
    DataTypeRoot.TIMESTAMP: "timestamp",
    DataTypeRoot.TIMESTAMP_LTZ: "timestamptz",
}
_SYSTEM_TYPES: Final = {BUCKET_COLUMN: "int", OFFSET_COLUMN: "long", TIMESTAMP_COLUMN: "timestamptz"}
_ROW_LEVEL_MODES: Final = ("write.delete.mode", "write.update.mode", "write.merge.mode")
_UNBUCKETABLE: Final = NESTED | {DataTypeRoot.BOOLEAN, DataTypeRoot.FLOAT, DataTypeRoot.DOUBLE}
_ICEBERG_PREFIX: Final = "iceberg."
_FLUSS_PREFIX: Final = "fluss."


@dataclass(frozen=True, slots=True)
class PartitionField:
    """What the lake is partitioned by: `bucket[num_buckets](column)`, or the column itself for identity."""

    column: str
    num_buckets: int | None = None

    @property
    def transform(self) -> str:
        """The transform's name in Iceberg's JSON."""
        return "identity" if self.num_buckets is None else f"bucket[{self.num_buckets}]"


def iceberg_type(data_type: DataType, ids: Iterator[int]) -> str | dict[str, Any]:
    """The Iceberg type of a Fluss type, in Iceberg's JSON; a timestamp keeps microseconds of whatever precision.

    Args:
        data_type: Fluss's.
        ids: for the fields of nested types.
    """
    match data_type.root:
        case DataTypeRoot.DECIMAL:
            return f"decimal({data_type.precision}, {data_type.scale})"
        case DataTypeRoot.ROW:
            fields = [{"id": next(ids), **_field(field, ids)} for field in data_type.fields]
            return {"type": "struct", "fields": fields}
        case DataTypeRoot.ARRAY:
            (element,) = data_type.fields
            return {
                "type": "list",
                "element-id": next(ids),
                "element": iceberg_type(element.data_type, ids),
                "element-required": not element.data_type.nullable,
            }
        case DataTypeRoot.MAP:
            key, value = data_type.fields
            return {
                "type": "map",
                "key-id": next(ids),
                "value-id": next(ids),
                "key": iceberg_type(key.data_type, ids),
                "value": iceberg_type(value.data_type, ids),
                "value-required": not value.data_type.nullable,
            }
        case root:
            return _TYPES[root]


def _field(field: Column | Field, ids: Iterator[int]) -> dict[str, Any]:
    doc = {} if field.comment is None else {"doc": field.comment}
    required = not field.data_type.nullable
    return {"name": field.name, "required": required, "type": iceberg_type(field.data_type, ids), **doc}


def schema_json(descriptor: TableDescriptor) -> dict[str, Any]:
    """The schema: the user's columns, then the three of Fluss; the primary key as identifier fields; ids from 1.

    Raises:
        FlussTieringError: INVALID_TABLE when a user's column has the name of one of the three.
    """
    ids = itertools.count(len(descriptor.columns) + len(SYSTEM_COLUMNS) + 1)
    fields: list[dict[str, Any]] = []
    for column in descriptor.columns:
        if column.name in SYSTEM_COLUMNS:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"column {column.name!r}: the lake table has a column of this name itself; rename it to tier the table",
            )
        fields.append(_field(column, ids))
    fields += [{"name": name, "required": True, "type": _SYSTEM_TYPES[name]} for name in SYSTEM_COLUMNS]
    numbered = [{"id": number, **field} for number, field in enumerate(fields, start=1)]
    keys = [field["id"] for field in numbered if field["name"] in descriptor.primary_key]
    schema = {"type": "struct", "schema-id": 0, "fields": numbered}
    return {**schema, "identifier-field-ids": keys} if keys else schema


def partition_fields(descriptor: TableDescriptor) -> tuple[PartitionField, ...]:
    """The partitioning: by the partition keys, then by bucket.

    Raises:
        FlussTieringError: INVALID_TABLE for a partition key that is no text, more than one bucket key, none on a
            primary-key table, and a bucket key of a type that Iceberg does not bucket.
    """
    for key in descriptor.partition_keys:
        data_type = descriptor.column(key).data_type
        if _TYPES.get(data_type.root) != "string":
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"partition key {key!r} is {data_type}: Fluss partitions Iceberg tables by STRING and CHAR only",
            )
    return (*(PartitionField(key) for key in descriptor.partition_keys), _by_bucket(descriptor))


def _by_bucket(descriptor: TableDescriptor) -> PartitionField:
    """By the bucket key, and by `__bucket` where rows go to buckets in turn."""
    keys = descriptor.bucket_keys
    if not keys and not descriptor.has_primary_key:
        return PartitionField(BUCKET_COLUMN)
    if len(keys) != 1:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"bucket keys {list(keys)}: Fluss buckets Iceberg tables by exactly one column",
        )
    root = descriptor.column(keys[0]).data_type.root
    if root in _UNBUCKETABLE:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"bucket key {keys[0]!r} is a {root}, which Iceberg cannot bucket by: choose another",
        )
    return PartitionField(keys[0], descriptor.num_buckets)


def table_properties(descriptor: TableDescriptor) -> dict[str, str]:
    """The properties: merge-on-read with a primary key; `iceberg.x` becomes `x`, any other `y` becomes `fluss.y`."""
    properties = dict.fromkeys(_ROW_LEVEL_MODES, "merge-on-read") if descriptor.has_primary_key else {}
    for key, value in descriptor.properties.items():
        if key.startswith(_ICEBERG_PREFIX):
            properties[key.removeprefix(_ICEBERG_PREFIX)] = value
        else:
            properties[_FLUSS_PREFIX + key] = value
    return properties
