"""The call that asks which servers there are, and which of them lead a table's buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fluss_tiering.api.fluss.v1 import tables_pb2
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, ServerAddress, ServerKind


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A server's view of the cluster.

    Attributes:
        coordinator: The address of the coordinator; None while there is none.
        tablet_servers: Server id -> address of the tablet servers that are alive.
        leaders: Bucket -> id of the leading server, for the tables asked for; None while no leader is elected.
        hidden: Those of the tables asked for that the server left out, because the user may not describe them.
    """

    coordinator: ServerAddress | None
    tablet_servers: Mapping[int, ServerAddress]
    leaders: Mapping[TableBucket, int | None] = field(default_factory=dict)
    hidden: frozenset[TablePath] = frozenset()


def metadata(
    tables: Iterable[TablePath] = (), partition_ids: Iterable[int] = (), *, asked: ServerKind = ServerKind.ANY
) -> Call[tables_pb2.MetadataResponse, ClusterMetadata]:
    """Ask for the servers, and for the leaders of the buckets of these tables and of these partitions of theirs.

    Args:
        asked: Who is asked. The coordinator elects the leaders, and tablet servers learn of them later.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if one of the tables does not exist; PARTITION_NOT_EXIST if one of the
            partitions does not exist.
    """
    wanted = frozenset(tables)
    return Call(
        ApiKey.GET_METADATA,
        tables_pb2.MetadataRequest(table_path=[path_to_pb(path) for path in wanted], partitions_id=partition_ids),
        tables_pb2.MetadataResponse,
        lambda response: _metadata(response, wanted),
        asked,
    )


def path_to_pb(path: TablePath) -> tables_pb2.PbTablePath:
    """Return the path as Fluss's message."""
    return tables_pb2.PbTablePath(database_name=path.database, table_name=path.table)


def _metadata(response: tables_pb2.MetadataResponse, asked: frozenset[TablePath]) -> ClusterMetadata:
    answered = {
        TablePath(each.table_path.database_name, each.table_path.table_name) for each in response.table_metadata
    }
    leaders: dict[TableBucket, int | None] = {}
    for table in response.table_metadata:
        leaders.update(_leaders(table.table_id, None, table.bucket_metadata))
    for partition in response.partition_metadata:
        leaders.update(_leaders(partition.table_id, partition.partition_id, partition.bucket_metadata))
    return ClusterMetadata(
        _address(response.coordinator_server) if response.HasField("coordinator_server") else None,
        {node.node_id: _address(node) for node in response.tablet_servers},
        leaders,
        asked - answered,
    )


def _leaders(
    table_id: int, partition_id: int | None, buckets: Iterable[tables_pb2.PbBucketMetadata]
) -> dict[TableBucket, int | None]:
    return {
        TableBucket(table_id, each.bucket_id, partition_id): each.leader_id if each.HasField("leader_id") else None
        for each in buckets
    }


def _address(node: tables_pb2.PbServerNode) -> ServerAddress:
    return ServerAddress(node.host, node.port)
