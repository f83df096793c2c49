"""Conversions between what is said of a storage and its messages."""

from __future__ import annotations

from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.model.table import ClusterHealth, ClusterHealthStatus, StorageDescription


def description_to_pb(description: StorageDescription) -> tables_pb2.DescribeStorageResponse:
    """Return the message of a server's storage."""
    return tables_pb2.DescribeStorageResponse(
        kind=description.kind,
        data_dir=description.data_dir,
        data_dir_id=description.data_dir_id,
        server_version=description.server_version,
        bootstrap_servers=description.bootstrap_servers,
    )


def description_from_pb(message: tables_pb2.DescribeStorageResponse) -> StorageDescription:
    """Return the server's storage of a message."""
    return StorageDescription(
        kind=message.kind,
        data_dir=message.data_dir,
        data_dir_id=message.data_dir_id,
        server_version=message.server_version,
        bootstrap_servers=message.bootstrap_servers,
    )


def health_to_pb(health: ClusterHealth | None) -> tables_pb2.GetClusterHealthResponse:
    """Return the message of a cluster's health."""
    if health is None:
        return tables_pb2.GetClusterHealthResponse()
    return tables_pb2.GetClusterHealthResponse(
        health=tables_pb2.PbClusterHealth(
            status=health.status.value,
            replicas=health.replicas,
            in_sync_replicas=health.in_sync_replicas,
            buckets=health.buckets,
            active_leaders=health.active_leaders,
        )
    )


def health_from_pb(message: tables_pb2.GetClusterHealthResponse) -> ClusterHealth | None:
    """Return the cluster's health of a message."""
    if not message.HasField("health"):
        return None
    health = message.health
    known = health.status in set(ClusterHealthStatus)
    return ClusterHealth(
        # A newer server may know more verdicts.
        ClusterHealthStatus(health.status) if known else ClusterHealthStatus.UNKNOWN,
        health.replicas,
        health.in_sync_replicas,
        health.buckets,
        health.active_leaders,
    )
