"""What a server that is the active one works with: opened in order, closed in the opposite one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

from fluss_tiering.model.clock import Clock
from fluss_tiering.server.background import BackgroundJobs, jobs_of
from fluss_tiering.server.coordinator import Coordinator
from fluss_tiering.server.lake_catalog import LakeCatalog
from fluss_tiering.server.scans.limits import ScannerLimits
from fluss_tiering.server.scans.manager import KvScannerManager
from fluss_tiering.server.servicers.parts import ServerParts
from fluss_tiering.server.settings import ServerSettings
from fluss_tiering.server.store.store import SqlTieringStore
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.embedded.storage import EmbeddedStorage

DATABASE_FILE: Final = "server.db"


async def open_parts(settings: ServerSettings, clock: Clock, stack: AsyncExitStack) -> ServerParts:
    """Opens storage and store and loads the managers; `stack` closes all of it.

    Raises:
        FlussTieringError: DATA_DIR_IN_USE, CORRUPT_DATA, STORAGE.
    """
    threads = ServerThreads()
    stack.callback(threads.close)
    storage = await threads.storage(
        EmbeddedStorage.open,
        settings.data_dir,
        clock=clock,
        num_retained_snapshots=settings.kv_snapshot_num_retained,
    )
    stack.push_async_callback(threads.storage, storage.close)
    store = await threads.control(SqlTieringStore.open, settings.data_dir / DATABASE_FILE)
    stack.push_async_callback(threads.control, store.close)
    description = storage.describe()
    await threads.control(store.bind, description.data_dir_id, description.data_dir)
    catalog = LakeCatalog(settings)
    await threads.storage(catalog.make_folders)
    coordinator = await threads.control(Coordinator, settings, storage, store, clock)
    scanners = KvScannerManager(clock, ScannerLimits.of(settings))
    return ServerParts(threads, storage, coordinator, catalog, scanners)


def start_jobs(parts: ServerParts, settings: ServerSettings, stack: AsyncExitStack) -> None:
    """Starts what the server does by itself; `stack` stops it."""
    jobs = BackgroundJobs(jobs_of(parts, settings))
    jobs.start()
    stack.push_async_callback(jobs.stop)
