"""What every service works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fluss_tiering.server.cluster.backend import ClusterRole
from fluss_tiering.server.lake.catalog import LakeCatalog
from fluss_tiering.server.lake.service import LakeService, OwnLakeSnapshots
from fluss_tiering.server.leases.service import LeaseService, OwnLeases
from fluss_tiering.server.managers import Managers
from fluss_tiering.server.scans.manager import KvScannerManager
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.protocol import TableStorage


@dataclass(frozen=True, slots=True)
class ServerComponents:
    """The parts of a server behind its services; the coordinator only in `threads.control`, the storage in its pool.

    Attributes:
        check: raises NOT_LEADER_OR_FOLLOWER unless this server leads for sure.
        cluster: what this server is to the Fluss cluster whose tables it tiers; None on the embedded storage.
    """

    threads: ServerThreads
    storage: TableStorage
    managers: Managers
    catalog: LakeCatalog
    scanners: KvScannerManager
    check: Callable[[], None]
    cluster: ClusterRole | None = None

    def lease_service(self) -> LeaseService:
        """What pins KV snapshots."""
        return OwnLeases(self.threads, self.managers) if self.cluster is None else self.cluster.leases

    def lake_service(self) -> LakeService:
        """What knows of lake snapshots."""
        if self.cluster is not None:
            return self.cluster.lake
        return OwnLakeSnapshots(self.threads, self.storage, self.managers)
