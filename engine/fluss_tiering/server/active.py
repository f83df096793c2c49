"""What a server that is the active one works with: opened in order, closed in the opposite one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.background import BackgroundJobs, jobs_of
from fluss_tiering.server.cluster.backend import ClusterRole
from fluss_tiering.server.cluster.connect import open_fluss
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.lake.catalog import LakeCatalog
from fluss_tiering.server.managers import Managers
from fluss_tiering.server.rpc.roles import ActiveRole
from fluss_tiering.server.rpc.services import handlers_of
from fluss_tiering.server.scans.limits import ScannerLimits
from fluss_tiering.server.scans.manager import KvScannerManager
from fluss_tiering.server.settings import ServerSettings
from fluss_tiering.server.store.store import Fence, SqlTieringStore
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from fluss_tiering.storage.fluss.storage import FlussStorage
from fluss_tiering.storage.protocol import TableStorage

_DATABASE_FILE: Final = "server.db"
_STOPPING: Final = FlussTieringError(ErrorCode.UNAVAILABLE, "the server is stopping: watch again when it is back")


def store_location(settings: ServerSettings) -> Path | str:
    """Where the store is: a SQLite file, or the URL of a PostgreSQL database."""
    url = settings.store_url
    return settings.data_dir / _DATABASE_FILE if url is None else url.get_secret_value()


async def open_components(
    settings: ServerSettings,
    clock: Clock,
    stack: AsyncExitStack,
    check: Callable[[], None],
    fence: Fence | None = None,
) -> ServerComponents:
    """Opens storage and store and loads the managers; `stack` closes all of it.

    Args:
        settings: where they are.
        clock: of the managers and the storage.
        stack: takes what closes them.
        check: raises unless this server may act.
        fence: what every transaction of the store must pass; None where no other server may take over.

    Raises:
        FlussTieringError: DATA_DIR_IN_USE, CORRUPT_DATA, STORAGE, UNAVAILABLE; NOT_LEADER_OR_FOLLOWER behind the fence.
    """
    threads = ServerThreads()
    stack.callback(threads.close)
    storage = await _open_storage(settings, clock, threads, stack)
    stack.push_async_callback(threads.storage, storage.close)
    store = await threads.control(SqlTieringStore.open, store_location(settings), fence)
    stack.push_async_callback(threads.control, store.close)
    description = storage.describe()
    await threads.control(store.bind, description.data_dir_id, description.data_dir or description.bootstrap_servers)
    catalog = LakeCatalog(settings)
    await threads.storage(catalog.make_folders)
    due_by_freshness = not isinstance(storage, FlussStorage)
    managers = await threads.control(Managers, settings, storage, store, clock, due_by_freshness=due_by_freshness)
    cluster = None
    if isinstance(storage, FlussStorage):
        cluster = await ClusterRole.open(stack, threads=threads, storage=storage, managers=managers, check=check)
    scanners = KvScannerManager(clock, ScannerLimits.of(settings))
    return ServerComponents(threads, storage, managers, catalog, scanners, check, cluster)


async def _open_storage(
    settings: ServerSettings, clock: Clock, threads: ServerThreads, stack: AsyncExitStack
) -> TableStorage:
    if settings.fluss:
        return await open_fluss(settings, threads, stack)
    return await threads.storage(
        EmbeddedStorage.open,
        settings.data_dir,
        clock=clock,
        num_retained_snapshots=settings.kv_snapshot_num_retained,
        lazily=True,
    )


def start_jobs(
    components: ServerComponents, settings: ServerSettings, stack: AsyncExitStack, check: Callable[[], None]
) -> None:
    """Starts what the server does by itself, as long as `check` does not raise; `stack` stops it."""
    jobs = BackgroundJobs(jobs_of(components, settings), check)
    jobs.start()
    stack.push_async_callback(jobs.stop)


def active_role(components: ServerComponents, check: Callable[[], None]) -> ActiveRole:
    """The role that answers with these parts, as long as `check` does not raise."""
    return ActiveRole(handlers_of(components), check, lambda: components.managers.tiering.broadcaster.end(_STOPPING))
