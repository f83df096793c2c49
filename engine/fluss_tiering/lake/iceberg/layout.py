"""The layout that Fluss gives an Iceberg table, in Iceberg's JSON. This module does no I/O.

It follows `IcebergLakeCatalog` and `FlussDataTypeToIcebergDataType` of Fluss 0.9.1. Fluss's readers accept our tables,
because they find exactly what Fluss itself would have created.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any, Final

from fluss_tiering.model.data_type import NESTED, Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.partition_by import PartitionTransform, expected_type, parse_partition_by
from fluss_tiering.model.table import (
    BUCKET_COLUMN,
    OFFSET_COLUMN,
    SYSTEM_COLUMNS,
    TIMESTAMP_COLUMN,
    Column,
    DataType,
    DataTypeRoot,
    TableDescriptor,
    TableInfo,
)
from fluss_tiering.model.table_options import (
    ICEBERG_DELETE_OLD_METADATA,
    LAKE_CATALOG_PREFIX,
    LAKE_PARTITION_BY,
    LAKE_TABLE_PREFIX,
    OWN_PREFIX,
    has_clean_layout,
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
_SQL_SYSTEM_TYPES: Final = {BUCKET_COLUMN: "INT", OFFSET_COLUMN: "BIGINT", TIMESTAMP_COLUMN: "TIMESTAMP"}
_ROW_LEVEL_MODES: Final = ("write.delete.mode", "write.update.mode", "write.merge.mode")
_UNBUCKETABLE: Final = NESTED | {DataTypeRoot.BOOLEAN, DataTypeRoot.FLOAT, DataTypeRoot.DOUBLE}
_FLUSS_PREFIX: Final = "fluss."


def iceberg_type(data_type: DataType, ids: Iterator[int]) -> str | dict[str, Any]:
    """Return the Iceberg type of a Fluss type in Iceberg's JSON. A timestamp of any precision has microseconds.

    Args:
        ids: Yields the ids for the fields of nested types.
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


def is_clean(name: str, columns: Collection[str]) -> bool:
    """Return whether a lake table has the clean layout, without Fluss's three columns.

    Fluss 1.0.0 (fluss PR #4019) and the embedded storage make such tables. Fluss 0.9.1 makes legacy ones, which have
    all three.

    Args:
        name: The name of the lake table in SQL.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if it has only some of the three.
    """
    found = [column for column in SYSTEM_COLUMNS if column in columns]
    missing = [column for column in SYSTEM_COLUMNS if column not in columns]
    if found and missing:
        add = ", ".join(f"{column} {_SQL_SYSTEM_TYPES[column]}" for column in missing)
        raise FlussTieringError(
            ErrorCode.LAKE_TABLE_MISMATCH,
            f"the lake table {name} has the system columns {', '.join(found)} and lacks {', '.join(missing)}: expected "
            f"all of them (legacy layout) or none (clean layout); ALTER TABLE {name} ADD COLUMNS ({add})",
        )
    return not found


def schema_json(descriptor: TableDescriptor, *, clean: bool = False) -> dict[str, Any]:
    """Return the schema: the user's columns and Fluss's three, with ids from 1, and the primary key as identifier.

    In the clean layout there are only the user's.

    Raises:
        FlussTieringError: INVALID_TABLE if a column has the name of one of Fluss's three.
    """
    system_columns = () if clean else SYSTEM_COLUMNS
    ids = itertools.count(len(descriptor.columns) + len(system_columns) + 1)
    fields: list[dict[str, Any]] = []
    for column in descriptor.columns:
        if column.name in SYSTEM_COLUMNS:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"column {column.name!r}: every lake table has a system column with this name; rename the column",
            )
        fields.append(_field(column, ids))
    fields += [{"name": name, "required": True, "type": _SYSTEM_TYPES[name]} for name in system_columns]
    numbered = [{"id": number, **field} for number, field in enumerate(fields, start=1)]
    keys = [field["id"] for field in numbered if field["name"] in descriptor.primary_key]
    schema = {"type": "struct", "schema-id": 0, "fields": numbered}
    return {**schema, "identifier-field-ids": keys} if keys else schema


def partition_of(table: TableInfo, *, clean: bool = False) -> tuple[PartitionTransform, ...]:
    """Return the partition fields of a table's lake table; see `partition_fields`.

    In the clean layout, these are the partition keys, which have any type by which rounds can partition.

    Raises:
        FlussTieringError: INVALID_TABLE also if the number of the table's buckets was changed and the lake table is
            partitioned by it. Readers of the lake look for a key in the one bucket that the transform names, so rows of
            partitions with other numbers would not be found or deleted there.
    """
    if clean:
        return _key_fields(table.descriptor)
    fields = partition_fields(table.descriptor)
    by_bucket = fields[-1]
    if table.bucket_count_epoch > 0 and by_bucket.number is not None:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"the number of buckets of table {table.path} was changed (bucket count epoch {table.bucket_count_epoch}), "
            "so its partitions may differ, while a lake table is partitioned by one number of buckets of the key "
            f"{by_bucket.column!r}: expected a table that was never changed so, or one without a bucket key; "
            "create a table with the new number of buckets, and write the rows to it",
        )
    return fields


def bucketed_partition_of(table: TableInfo) -> tuple[PartitionTransform, ...] | None:
    """Return the partition fields of a clean lake table that tells buckets apart.

    Returns:
        None if the bucket of a row is not the value of one transform.
    """
    descriptor = table.descriptor
    if len(descriptor.bucket_keys) != 1 or table.bucket_count_epoch > 0:
        return None
    (bucket_key,) = descriptor.bucket_keys
    by_bucket = PartitionTransform(bucket_key, "bucket", descriptor.num_buckets)
    if not by_bucket.takes(descriptor.column(bucket_key).data_type):
        return None
    return (*_key_fields(descriptor), by_bucket)


def _key_fields(descriptor: TableDescriptor) -> tuple[PartitionTransform, ...]:
    keys = tuple(map(PartitionTransform, descriptor.partition_keys))
    for key in keys:
        data_type = descriptor.column(key.column).data_type
        if not key.takes(data_type):
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"partition key {key.column!r} is {data_type}: expected one of {expected_type(key)}",
            )
    return keys


def has_text_keys(descriptor: TableDescriptor) -> bool:
    """Return whether the values of all partition keys are texts in the lake, too."""
    return all(_TYPES.get(descriptor.column(key).data_type.root) == "string" for key in descriptor.partition_keys)


def clean_partition(table: TableInfo) -> tuple[PartitionTransform, ...] | None:
    """Return the partition fields of a lake table that is created in the clean layout; None if it is not.

    By the option `table.datalake.partition-by`, these are the partition keys of the table and then its transforms.

    Raises:
        FlussTieringError: INVALID_TABLE as for `partition_of`, or if the option is wrong.
    """
    properties = table.descriptor.properties
    if not has_clean_layout(properties):
        return None
    text = properties.get(LAKE_PARTITION_BY.key)
    return (*partition_of(table, clean=True), *(() if text is None else parse_partition_by(text)))


def partition_fields(descriptor: TableDescriptor) -> tuple[PartitionTransform, ...]:
    """Return the partition fields: the partition keys, then the bucket.

    Raises:
        FlussTieringError: INVALID_TABLE if a partition key is not text, if there is more than one bucket key, if a
            primary-key table has none, or if Iceberg cannot bucket by the type of the bucket key.
    """
    for key in descriptor.partition_keys:
        data_type = descriptor.column(key).data_type
        if _TYPES.get(data_type.root) != "string":
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"partition key {key!r} is {data_type}: Fluss partitions Iceberg tables by STRING and CHAR only",
            )
    return (*(PartitionTransform(key) for key in descriptor.partition_keys), _by_bucket(descriptor))


def _by_bucket(descriptor: TableDescriptor) -> PartitionTransform:
    """Return the bucket key's field, or `__bucket` if rows go to the buckets in turn."""
    keys = descriptor.bucket_keys
    if not keys and not descriptor.has_primary_key:
        return PartitionTransform(BUCKET_COLUMN)
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
    return PartitionTransform(keys[0], "bucket", descriptor.num_buckets)


def table_properties(descriptor: TableDescriptor) -> dict[str, str]:
    """Return the properties: `iceberg.x` becomes `x`, `table.y` becomes `fluss.table.y`, as in Fluss.

    A primary key adds merge-on-read. Old metadata files are deleted, since a lake table that gets a commit every few
    minutes would otherwise collect them without end. The options of the table come before both.

    Custom properties are the user's own and stay with the table. Properties of the catalog may be credentials, which
    everybody who reads the lake table could read there.
    """
    delete_old = ICEBERG_DELETE_OLD_METADATA
    properties = {delete_old.key.removeprefix(LAKE_TABLE_PREFIX): delete_old.default}
    if descriptor.has_primary_key:
        properties |= dict.fromkeys(_ROW_LEVEL_MODES, "merge-on-read")
    for key, value in descriptor.properties.items():
        if key.startswith(LAKE_TABLE_PREFIX):
            properties[key.removeprefix(LAKE_TABLE_PREFIX)] = value
        elif key.startswith(OWN_PREFIX) and not key.startswith(LAKE_CATALOG_PREFIX):
            properties[_FLUSS_PREFIX + key] = value
    return properties
