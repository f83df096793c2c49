"""What a server is to the Fluss cluster whose tables it tiers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fluss_tiering.server.cluster.claims import ClusterClaims
from fluss_tiering.server.cluster.lake import ClusterLakeSnapshots
from fluss_tiering.server.cluster.leases import ClusterLeases
from fluss_tiering.server.cluster.log_ends import ClusterLogEnds
from fluss_tiering.server.coordinator import Coordinator
from fluss_tiering.server.discovery import TableDiscovery
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.fluss.async_client import AsyncFlussClient
from fluss_tiering.storage.fluss.storage import FlussStorage


@dataclass(frozen=True, slots=True)
class ClusterRole:
    """The parts of it; they belong to the event loop."""

    discovery: TableDiscovery
    claims: ClusterClaims
    leases: ClusterLeases
    lake: ClusterLakeSnapshots
    log_ends: ClusterLogEnds

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        *,
        threads: ServerThreads,
        storage: FlussStorage,
        coordinator: Coordinator,
        check: Callable[[], None],
    ) -> ClusterRole:
        """Connects to nobody yet; `stack` closes what it will.

        Args:
            stack: takes what closes the connections.
            threads: of the server.
            storage: the cluster's tables.
            coordinator: whose tables become Pending when the cluster says so (`due_by_freshness` off).
            check: raises unless this server leads for sure.
        """
        link = storage.link
        client = AsyncFlussClient(link.bootstrap_servers, credentials=link.credentials)
        stack.push_async_callback(client.close)
        leases = ClusterLeases(client, threads, storage, coordinator)
        await leases.load()
        discovery = TableDiscovery(storage, coordinator, threads)
        return cls(
            discovery,
            ClusterClaims(client, threads, coordinator, discovery.turn),
            leases,
            ClusterLakeSnapshots(client, threads, storage, coordinator, check),
            ClusterLogEnds(threads, storage, coordinator),
        )
