"""What every service works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fluss_tiering.server.coordinator import Coordinator
from fluss_tiering.server.lake_catalog import LakeCatalog
from fluss_tiering.server.scans.manager import KvScannerManager
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.fluss.link import ClusterLink
from fluss_tiering.storage.protocol import TableStorage


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The parts of a server behind its services; the coordinator only in `threads.control`, the storage in its pool.

    Attributes:
        check: raises NOT_LEADER_OR_FOLLOWER unless this server leads for sure.
        link: to the Fluss cluster whose tables are tiered; None on the embedded storage.
    """

    threads: ServerThreads
    storage: TableStorage
    coordinator: Coordinator
    catalog: LakeCatalog
    scanners: KvScannerManager
    check: Callable[[], None]
    link: ClusterLink | None = None
