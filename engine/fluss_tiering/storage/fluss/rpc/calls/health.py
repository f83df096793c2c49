"""The call for the health of a cluster, which Fluss has since 1.0."""

from __future__ import annotations

from typing import Final

from fluss_tiering.api.fluss.v1 import cluster_pb2
from fluss_tiering.model.cluster import ClusterHealth, ClusterHealthStatus
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, ServerKind

_STATUSES: Final = {0: ClusterHealthStatus.GREEN, 1: ClusterHealthStatus.YELLOW, 2: ClusterHealthStatus.RED}
"""The numbers of `PbClusterHealthStatus`. Others mean that the status is not known."""


def cluster_health() -> Call[cluster_pb2.GetClusterHealthResponse, ClusterHealth]:
    """Ask the coordinator for the health of the cluster, which it finds by looking at every bucket.

    Raises:
        FlussTieringError: UNSUPPORTED_VERSION if the cluster is older than Fluss 1.0.
        FlussServerError: AUTHORIZATION_EXCEPTION if the user may not describe the cluster.
    """
    return Call(
        ApiKey.GET_CLUSTER_HEALTH,
        cluster_pb2.GetClusterHealthRequest(),
        cluster_pb2.GetClusterHealthResponse,
        lambda response: ClusterHealth(
            _STATUSES.get(response.status, ClusterHealthStatus.UNKNOWN),
            response.num_replicas,
            response.in_sync_replicas,
            response.num_leader_replicas,
            response.active_leader_replicas,
        ),
        ServerKind.COORDINATOR,
    )
