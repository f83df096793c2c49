"""The JSON form of tables (Fluss's `TableDescriptorJsonSerde`, `DataTypeJsonSerde`), to and from the model.

Fluss keeps its own options (`table.…`) apart from options that it does not know (`custom_properties`). The model has
both in `TableDescriptor.properties`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fluss_tiering.model.data_type import MAX_NESTING, NESTED, PARTS, WITH_LENGTH, WITH_PRECISION, Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, DataTypeRoot, TableDescriptor, TableInfo, TablePath

_VERSION: Final = 1
_OWN_OPTIONS: Final = "table."
_LAKE_CATALOG: Final = "table.datalake.iceberg."
_JSON_NAMES: Final = {
    DataTypeRoot.INT: "INTEGER",
    DataTypeRoot.TIME: "TIME_WITHOUT_TIME_ZONE",
    DataTypeRoot.TIMESTAMP: "TIMESTAMP_WITHOUT_TIME_ZONE",
    DataTypeRoot.TIMESTAMP_LTZ: "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
}
"""The type names in JSON that differ from those in SQL."""
_NOT_AS_EXPECTED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""The errors of reading a text that describes something else, or types that are nested too deeply to be read."""
_ROOTS: Final[Mapping[str, DataTypeRoot]] = {_JSON_NAMES.get(root, root.value): root for root in DataTypeRoot}


def table_to_json(descriptor: TableDescriptor) -> bytes:
    """Return the JSON that CREATE_TABLE takes."""
    ids = itertools.count(len(descriptor.columns))
    schema: dict[str, Any] = {
        "version": _VERSION,
        "columns": [_column_to_json(number, column, ids) for number, column in enumerate(descriptor.columns)],
    }
    schema["highest_field_id"] = next(ids) - 1
    if descriptor.primary_key:
        schema["primary_key"] = descriptor.primary_key
    if descriptor.auto_increment_columns:
        schema["auto_increment_column"] = descriptor.auto_increment_columns
    own = {key: value for key, value in descriptor.properties.items() if key.startswith(_OWN_OPTIONS)}
    table: dict[str, Any] = {
        "version": _VERSION,
        "schema": schema,
        "partition_key": list(descriptor.partition_keys),
        "bucket_key": descriptor.bucket_keys,
        "bucket_count": descriptor.num_buckets,
        "properties": own,
        "custom_properties": {key: value for key, value in descriptor.properties.items() if key not in own},
    }
    if descriptor.comment is not None:
        table["comment"] = descriptor.comment
    return json.dumps(table, separators=(",", ":")).encode()


def table_from_json(
    text: bytes,
    *,
    path: TablePath,
    table_id: int,
    schema_id: int,
    created_time: int,
    bucket_count_epoch: int = 0,
) -> TableInfo:
    """Return the table that GET_TABLE_INFO describes.

    Raises:
        FlussTieringError: INVALID_TABLE if a column has a type that is not supported here; CORRUPT_DATA if the text
            describes no table.
    """
    try:
        table = json.loads(text)
        schema = table["schema"]
        properties = {**table["properties"], **table["custom_properties"]}
        descriptor = TableDescriptor(
            columns=tuple(_column_from_json(path, column) for column in schema["columns"]),
            primary_key=tuple(schema.get("primary_key", ())),
            bucket_keys=tuple(table.get("bucket_key", ())),
            num_buckets=int(table["bucket_count"]),
            properties=properties,
            comment=table.get("comment"),
            partition_keys=tuple(table["partition_key"]),
            auto_increment_columns=tuple(schema.get("auto_increment_column", ())),
        )
    except _NOT_AS_EXPECTED as error:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA, f"Fluss's description of {path} is no table: {type(error).__name__}: {error}"
        ) from error
    catalog = {
        key.removeprefix(_LAKE_CATALOG): value for key, value in properties.items() if key.startswith(_LAKE_CATALOG)
    }
    return TableInfo(table_id, path, schema_id, descriptor, created_time, catalog, bucket_count_epoch)


def columns_from_json(text: bytes, path: TablePath) -> tuple[Column, ...]:
    """Return the columns of the schema that GET_TABLE_SCHEMA describes.

    Raises:
        FlussTieringError: INVALID_TABLE if a column has a type that is not supported here; CORRUPT_DATA if the text
            describes no schema.
    """
    try:
        return tuple(_column_from_json(path, column) for column in json.loads(text)["columns"])
    except _NOT_AS_EXPECTED as error:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA,
            f"Fluss's description of a schema of {path} is no schema: {type(error).__name__}: {error}",
        ) from error


def _column_to_json(number: int, column: Column, ids: Iterator[int]) -> dict[str, Any]:
    comment = {} if column.comment is None else {"comment": column.comment}
    return {"name": column.name, "data_type": _type_to_json(column.data_type, ids), **comment, "id": number}


def _type_to_json(kind: DataType, ids: Iterator[int]) -> dict[str, Any]:
    """Return the JSON of a type. The fields of a ROW, at any depth, take the next ids."""
    data_type: dict[str, Any] = {"type": _JSON_NAMES.get(kind.root, kind.root.value)}
    if not kind.nullable:
        data_type["nullable"] = False
    if kind.root in WITH_PRECISION:
        data_type["precision"] = kind.precision
    if kind.root in WITH_LENGTH:
        data_type["length"] = kind.length
    if kind.root is DataTypeRoot.DECIMAL:
        data_type["scale"] = kind.scale
    if kind.root is DataTypeRoot.ROW:
        data_type["fields"] = [
            {
                "name": field.name,
                "field_type": _type_to_json(field.data_type, ids),
                **({} if field.comment is None else {"description": field.comment}),
                "field_id": next(ids),
            }
            for field in kind.fields
        ]
    elif kind.fields:
        for field in kind.fields:
            data_type[f"{field.name}_type"] = _type_to_json(field.data_type, ids)
    return data_type


def _column_from_json(path: TablePath, column: Mapping[str, Any]) -> Column:
    name = column["name"]
    return Column(name, _type_from_json(f"column {name!r} of {path}", column["data_type"]), column.get("comment"))


def _type_from_json(what: str, data_type: Mapping[str, Any], depth: int = 0) -> DataType:
    root = _ROOTS.get(data_type["type"])
    if root is None:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"{what} has the type {data_type['type']}: expected one of {', '.join(DataTypeRoot)}; tables with others "
            "cannot be tiered yet",
        )
    if root in NESTED and depth == MAX_NESTING:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"{what} has types that are nested more than {MAX_NESTING} deep: expected fewer levels; tables with more "
            "cannot be tiered",
        )
    if root is DataTypeRoot.ROW:
        fields = tuple(
            Field(field["name"], _type_from_json(what, field["field_type"], depth + 1), field.get("description"))
            for field in data_type["fields"]
        )
    else:
        fields = tuple(
            Field(name, _type_from_json(what, data_type[f"{name}_type"], depth + 1)) for name in PARTS.get(root, ())
        )
    return DataType(
        root,
        data_type.get("nullable", True),
        data_type.get("precision", 0),
        data_type.get("scale", 0),
        data_type.get("length", 0),
        fields,
    )
