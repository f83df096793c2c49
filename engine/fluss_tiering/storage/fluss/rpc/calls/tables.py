"""Calls for the databases, tables, schemas and partitions of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from fluss_tiering.api.fluss.v1 import tables_pb2
from fluss_tiering.model.table import Column, TableDescriptor, TableInfo, TablePath, partition_name
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, ServerKind, command
from fluss_tiering.storage.fluss.rpc.calls.cluster import path_to_pb
from fluss_tiering.storage.fluss.rpc.table_json import columns_from_json, table_from_json, table_to_json

_SET: Final = 0
_DELETE: Final = 1
"""What is done with an option (`AlterConfigOpType`)."""
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a table.

    Attributes:
        partition_id: The partition's id.
        values: Partition key -> value, in the order of the keys.
        bucket_count: The number of buckets; None if the cluster does not tell it, as before Fluss 1.0.0.
    """

    partition_id: int
    values: Mapping[str, str]
    bucket_count: int | None = None

    @property
    def name(self) -> str:
        """The name that Fluss gives the partition."""
        return partition_name(tuple(self.values.values()))


def list_databases() -> Call[tables_pb2.ListDatabasesResponse, list[str]]:
    """Ask for the names of all databases."""
    return Call(
        ApiKey.LIST_DATABASES,
        tables_pb2.ListDatabasesRequest(),
        tables_pb2.ListDatabasesResponse,
        lambda response: list(response.database_name),
        ServerKind.ANY,
    )


def create_database(name: str, *, ignore_if_exists: bool = False) -> Call[tables_pb2.CreateDatabaseResponse, None]:
    """Create a database.

    Raises:
        FlussServerError: DATABASE_ALREADY_EXIST if there is one; INVALID_DATABASE_EXCEPTION if the name is not allowed.
    """
    return command(
        ApiKey.CREATE_DATABASE,
        tables_pb2.CreateDatabaseRequest(database_name=name, ignore_if_exists=ignore_if_exists),
        tables_pb2.CreateDatabaseResponse,
        repeatable=ignore_if_exists,
    )


def drop_database(name: str, *, ignore_if_not_exists: bool = False) -> Call[tables_pb2.DropDatabaseResponse, None]:
    """Drop a database that has no tables.

    Raises:
        FlussServerError: DATABASE_NOT_EXIST if there is no such database; DATABASE_NOT_EMPTY if it has tables.
    """
    return command(
        ApiKey.DROP_DATABASE,
        tables_pb2.DropDatabaseRequest(database_name=name, ignore_if_not_exists=ignore_if_not_exists, cascade=False),
        tables_pb2.DropDatabaseResponse,
        repeatable=ignore_if_not_exists,
    )


def database_created_time(name: str) -> Call[tables_pb2.GetDatabaseInfoResponse, int]:
    """Ask when a database was created, in ms since the epoch.

    Raises:
        FlussTieringError: DATABASE_NOT_EXIST if there is no such database.
    """
    return Call(
        ApiKey.GET_DATABASE_INFO,
        tables_pb2.GetDatabaseInfoRequest(database_name=name),
        tables_pb2.GetDatabaseInfoResponse,
        lambda response: response.created_time,
        ServerKind.ANY,
    )


def list_tables(database: str) -> Call[tables_pb2.ListTablesResponse, list[TablePath]]:
    """Ask for the tables of a database, ordered by name.

    Raises:
        FlussTieringError: DATABASE_NOT_EXIST if there is no such database.
    """
    return Call(
        ApiKey.LIST_TABLES,
        tables_pb2.ListTablesRequest(database_name=database),
        tables_pb2.ListTablesResponse,
        lambda response: sorted(TablePath(database, name) for name in response.table_name),
        ServerKind.ANY,
    )


def table(path: TablePath) -> Call[tables_pb2.GetTableInfoResponse, TableInfo]:
    """Ask for the table at this path.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TABLE if a column has a type that is not
            supported here.
    """
    return Call(
        ApiKey.GET_TABLE_INFO,
        tables_pb2.GetTableInfoRequest(table_path=path_to_pb(path)),
        tables_pb2.GetTableInfoResponse,
        lambda response: table_from_json(
            response.table_json,
            path=path,
            table_id=response.table_id,
            schema_id=response.schema_id,
            created_time=response.created_time,
            bucket_count_epoch=response.bucket_count_epoch,
        ),
        ServerKind.ANY,
    )


def create_table(
    path: TablePath,
    descriptor: TableDescriptor,
    *,
    ignore_if_exists: bool = False,
) -> Call[tables_pb2.CreateTableResponse, None]:
    """Create a table.

    Raises:
        FlussTieringError: TABLE_ALREADY_EXIST if there is one at this path; DATABASE_NOT_EXIST if its database does not
            exist; INVALID_TABLE if Fluss does not allow such a table; LAKE_TABLE_MISMATCH if the lake has another table
            at this path.
    """
    return command(
        ApiKey.CREATE_TABLE,
        tables_pb2.CreateTableRequest(
            table_path=path_to_pb(path),
            table_json=table_to_json(descriptor),
            ignore_if_exists=ignore_if_exists,
        ),
        tables_pb2.CreateTableResponse,
        repeatable=ignore_if_exists,
    )


def alter_table(path: TablePath, changes: Mapping[str, str | None]) -> Call[tables_pb2.AlterTableResponse, None]:
    """Set options of a table, and remove options whose value is None.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TABLE if an option cannot be changed.
    """
    return command(
        ApiKey.ALTER_TABLE,
        tables_pb2.AlterTableRequest(
            table_path=path_to_pb(path),
            ignore_if_not_exists=False,
            config_changes=[
                tables_pb2.PbAlterConfig(config_key=key, config_value=value, op_type=_DELETE if value is None else _SET)
                for key, value in changes.items()
            ],
        ),
        tables_pb2.AlterTableResponse,
    )


def drop_table(path: TablePath, *, ignore_if_not_exists: bool = False) -> Call[tables_pb2.DropTableResponse, None]:
    """Drop a table. Its lake table stays.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table.
    """
    return command(
        ApiKey.DROP_TABLE,
        tables_pb2.DropTableRequest(table_path=path_to_pb(path), ignore_if_not_exists=ignore_if_not_exists),
        tables_pb2.DropTableResponse,
        repeatable=False,  # A second call could drop another table with the same name.
    )


def list_partitions(path: TablePath) -> Call[tables_pb2.ListPartitionInfosResponse, list[Partition]]:
    """Ask for the partitions of a table.

    Raises:
        FlussServerError: TABLE_NOT_EXIST if there is no such table; TABLE_NOT_PARTITIONED_EXCEPTION if it is not
            partitioned.
    """
    return Call(
        ApiKey.LIST_PARTITION_INFOS,
        tables_pb2.ListPartitionInfosRequest(table_path=path_to_pb(path)),
        tables_pb2.ListPartitionInfosResponse,
        lambda response: [_partition(each) for each in response.partitions_info],
        ServerKind.ANY,
    )


def create_partition(
    path: TablePath, values: Mapping[str, str], *, ignore_if_exists: bool = False
) -> Call[tables_pb2.CreatePartitionResponse, None]:
    """Create a partition.

    Raises:
        FlussServerError: TABLE_NOT_EXIST if there is no such table; TABLE_NOT_PARTITIONED_EXCEPTION if it is not
            partitioned; PARTITION_ALREADY_EXISTS if it has the partition.
    """
    return command(
        ApiKey.CREATE_PARTITION,
        tables_pb2.CreatePartitionRequest(
            table_path=path_to_pb(path), partition_spec=_spec(values), ignore_if_not_exists=ignore_if_exists
        ),
        tables_pb2.CreatePartitionResponse,
        repeatable=ignore_if_exists,
    )


def drop_partition(
    path: TablePath, values: Mapping[str, str], *, ignore_if_not_exists: bool = False
) -> Call[tables_pb2.DropPartitionResponse, None]:
    """Drop a partition.

    Raises:
        FlussServerError: TABLE_NOT_EXIST if there is no such table; TABLE_NOT_PARTITIONED_EXCEPTION if it is not
            partitioned; PARTITION_NOT_EXISTS if it has no such partition.
    """
    return command(
        ApiKey.DROP_PARTITION,
        tables_pb2.DropPartitionRequest(
            table_path=path_to_pb(path), partition_spec=_spec(values), ignore_if_not_exists=ignore_if_not_exists
        ),
        tables_pb2.DropPartitionResponse,
        repeatable=False,  # A second call could drop another partition with the same values.
    )


def _partition(info: tables_pb2.PbPartitionInfo) -> Partition:
    values = {pair.key: pair.value for pair in info.partition_spec.partition_key_values}
    return Partition(info.partition_id, values, info.bucket_count if info.HasField("bucket_count") else None)


def _spec(values: Mapping[str, str]) -> tables_pb2.PbPartitionSpec:
    return tables_pb2.PbPartitionSpec(
        partition_key_values=[tables_pb2.PbKeyValue(key=key, value=value) for key, value in values.items()]
    )


def table_columns(path: TablePath, schema_id: int) -> Call[tables_pb2.GetTableSchemaResponse, tuple[Column, ...]]:
    """Ask for the columns of a table under one of its schemas.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; SCHEMA_NOT_EXIST if it has no such schema;
            INVALID_TABLE if a column has a type that is not supported here.
    """
    return Call(
        ApiKey.GET_TABLE_SCHEMA,
        tables_pb2.GetTableSchemaRequest(table_path=path_to_pb(path), schema_id=schema_id),
        tables_pb2.GetTableSchemaResponse,
        lambda response: columns_from_json(response.schema_json, path),
        ServerKind.ANY,
    )
