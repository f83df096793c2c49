"""The backend of a server that tiers the tables of a Fluss cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from fluss_tiering.model.clock import Clock
from fluss_tiering.server.backends.cluster.claims import ClusterClaims
from fluss_tiering.server.backends.cluster.connect import open_fluss
from fluss_tiering.server.backends.cluster.discovery import ClusterLogEnds, TableDiscovery
from fluss_tiering.server.backends.cluster.lake import ClusterLakeSnapshots
from fluss_tiering.server.backends.cluster.leases import ClusterLeases
from fluss_tiering.server.core.background import Job
from fluss_tiering.server.core.lake.catalog import LakeCatalogProperties
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.settings.server_settings import ServerSettings
from fluss_tiering.storage.fluss.rpc.client import AsyncFlussClient
from fluss_tiering.storage.fluss.storage import FlussStorage

_DISCOVERY_INTERVAL_MS: Final = 2000
_CLAIMS_INTERVAL_MS: Final = 500
_TIDY_INTERVAL_MS: Final = 1000
_LOG_ENDS_INTERVAL_MS: Final = 10_000
"""About the interval in which metrics are scraped."""


class ClusterBackend:
    """A `Backend` whose tables are those of a Fluss cluster.

    Attributes:
        catalog: The catalog properties of the settings. The cluster gives every table the properties of the cluster's
            lake, without secrets; those of the settings complete and override them.
    """

    due_by_freshness: Final = False

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.catalog = LakeCatalogProperties(settings.lake_catalog, server_wins=True)

    def identity(self) -> None:
        """Return None: only the cluster's servers can tell which cluster it is."""

    async def open_storage(self, clock: Clock, threads: ServerThreads, stack: AsyncExitStack) -> FlussStorage:
        """Connect to the cluster and hold the data folder: see `Backend`."""
        del clock
        return await open_fluss(self._settings, threads, stack)

    async def open_active(
        self,
        storage: FlussStorage,
        managers: Managers,
        threads: ServerThreads,
        check: Callable[[], None],
        stack: AsyncExitStack,
    ) -> ActiveClusterBackend:
        """Load what is pinned at the cluster, without a call to it: see `Backend`."""
        link = storage.link
        client = AsyncFlussClient(link.bootstrap_servers, credentials=link.credentials)
        stack.push_async_callback(client.close)
        backend = ActiveClusterBackend(client, storage, managers, threads, check)
        await backend.leases.load()
        return backend


class ActiveClusterBackend:
    """An `ActiveBackend` that is the tiering service of a Fluss cluster.

    Args:
        client: A client of the cluster for the event loop.
        storage: The tables of the cluster.
        managers: The managers. Their tables become Pending when the cluster says so.
        check: Raises an error unless this server certainly leads.

    Attributes:
        discovery: Follows the tables of the cluster.
        claims: Takes due tables from the cluster's coordinator.
        log_ends: Knows how far the logs of the tables reach.
    """

    def __init__(
        self,
        client: AsyncFlussClient,
        storage: FlussStorage,
        managers: Managers,
        threads: ServerThreads,
        check: Callable[[], None],
    ) -> None:
        self.leases = ClusterLeases(client, threads, storage, managers)
        # The leases at the cluster end by the cluster's own clock, and those that are recorded must not outlast them.
        self.allow_for_standstill: tuple[Callable[[int], None], ...] = ()
        self.lake = ClusterLakeSnapshots(client, threads, storage, managers, check)
        self.discovery = TableDiscovery(storage, managers, threads)
        self.claims = ClusterClaims(client, threads, managers, self.discovery.run_once)
        self.log_ends = ClusterLogEnds(threads, storage, managers)
        self.jobs = (
            Job("follow the cluster's tables", _DISCOVERY_INTERVAL_MS, self.discovery.run_once),
            Job("take due tables from the cluster", _CLAIMS_INTERVAL_MS, self.claims.run_once),
            Job("release snapshots at the cluster", _TIDY_INTERVAL_MS, self.leases.tidy),
            Job("look how far logs reach", _LOG_ENDS_INTERVAL_MS, self.log_ends.run_once),
        )

    def table_count(self) -> int:
        """Return the number of tables that can be used, as of the last look at the cluster."""
        return self.discovery.table_count

    async def refresh_tables(self) -> None:
        """Look at the cluster's tables now: see `ActiveBackend`."""
        await self.discovery.run_once()
