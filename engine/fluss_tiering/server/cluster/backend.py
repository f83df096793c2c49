"""What a server is to the Fluss cluster whose tables it tiers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fluss_tiering.server.cluster.claims import ClusterClaims
from fluss_tiering.server.cluster.discovery import TableDiscovery
from fluss_tiering.server.cluster.lake import ClusterLakeSnapshots
from fluss_tiering.server.cluster.leases import ClusterLeases
from fluss_tiering.server.cluster.log_ends import ClusterLogEnds
from fluss_tiering.server.managers import Managers
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.fluss.rpc.async_client import AsyncFlussClient
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
        managers: Managers,
        check: Callable[[], None],
    ) -> ClusterRole:
        """Connects to nobody yet; `stack` closes what it will.

        Args:
            stack: takes what closes the connections.
            threads: of the server.
            storage: the cluster's tables.
            managers: whose tables become Pending when the cluster says so (`due_by_freshness` off).
            check: raises unless this server leads for sure.
        """
        link = storage.link
        client = AsyncFlussClient(link.bootstrap_servers, credentials=link.credentials)
        stack.push_async_callback(client.close)
        leases = ClusterLeases(client, threads, storage, managers)
        await leases.load()
        discovery = TableDiscovery(storage, managers, threads)
        return cls(
            discovery,
            ClusterClaims(client, threads, managers, discovery.run_once),
            leases,
            ClusterLakeSnapshots(client, threads, storage, managers, check),
            ClusterLogEnds(threads, storage, managers),
        )
