"""The schemas that a table has, and had before its columns were altered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fluss_tiering.api.fluss.v1 import tables_pb2
from fluss_tiering.model.table import Column, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, ServerKind
from fluss_tiering.storage.fluss.rpc.calls.metadata import path_to_pb
from fluss_tiering.storage.fluss.rpc.table_json import columns_from_json, field_ids_from_json

ResultT = TypeVar("ResultT")


def table_columns(path: TablePath, schema_id: int) -> Call[tables_pb2.GetTableSchemaResponse, tuple[Column, ...]]:
    """Ask for the columns of a table under one of its schemas.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; SCHEMA_NOT_EXIST if it has no such schema;
            INVALID_TABLE if a column has a type that is not supported here.
    """
    return _of_schema(path, schema_id, lambda text: columns_from_json(text, path))


def field_ids(path: TablePath, schema_id: int) -> Call[tables_pb2.GetTableSchemaResponse, dict[str, int]]:
    """Ask for the field id of each column of a table under one of its schemas; columns without an id are left out.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; SCHEMA_NOT_EXIST if it has no such schema.
    """
    return _of_schema(path, schema_id, lambda text: field_ids_from_json(text, path))


def _of_schema(
    path: TablePath, schema_id: int, read: Callable[[bytes], ResultT]
) -> Call[tables_pb2.GetTableSchemaResponse, ResultT]:
    return Call(
        ApiKey.GET_TABLE_SCHEMA,
        tables_pb2.GetTableSchemaRequest(table_path=path_to_pb(path), schema_id=schema_id),
        tables_pb2.GetTableSchemaResponse,
        lambda response: read(response.schema_json),
        ServerKind.ANY,
    )
