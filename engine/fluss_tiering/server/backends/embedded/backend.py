"""The backend of a server that has tables of its own in its data folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from fluss_tiering.model.clock import Clock
from fluss_tiering.server.backends.backend import StorageIdentity
from fluss_tiering.server.backends.embedded.catalog import (
    LAKE_FOLDER,
    check_lake_is_own,
    default_catalog,
    make_lake_folders,
)
from fluss_tiering.server.backends.embedded.jobs import TableOpening, take_kv_snapshots
from fluss_tiering.server.backends.embedded.lake import OwnLakeSnapshots
from fluss_tiering.server.backends.embedded.leases import OwnLeases
from fluss_tiering.server.core.background import Job
from fluss_tiering.server.core.lake.catalog import LakeCatalogProperties
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.settings.server_settings import ServerSettings
from fluss_tiering.storage.data_dir import read_data_dir_id
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from fluss_tiering.storage.protocol import TableStorage


class EmbeddedBackend:
    """A `Backend` with tables in the data folder.

    Attributes:
        catalog: The catalog properties of the settings, or the default catalog. A table's own properties win.
    """

    due_by_freshness: Final = True

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._lake_dir = None if settings.lake_catalog else settings.data_dir / LAKE_FOLDER
        properties = settings.lake_catalog if self._lake_dir is None else default_catalog(self._lake_dir)
        self.catalog = LakeCatalogProperties(properties, server_wins=False)

    def identity(self) -> StorageIdentity:
        """Return the id and the path of the data folder."""
        folder = self._settings.data_dir
        return StorageIdentity(read_data_dir_id(folder), str(folder))

    async def open_storage(self, clock: Clock, threads: ServerThreads, stack: AsyncExitStack) -> EmbeddedStorage:
        """Open the data folder: see `Backend`."""
        del stack
        if self._lake_dir is not None:
            await threads.storage(check_lake_is_own, self._lake_dir)
        storage = await threads.storage(
            EmbeddedStorage.open,
            self._settings.data_dir,
            clock=clock,
            num_retained_snapshots=self._settings.kv_snapshot_num_retained,
            lazily=True,
        )
        try:
            await threads.storage(storage.settle)
        except BaseException:
            await threads.storage(storage.close)
            raise
        return storage

    async def open_active(
        self,
        storage: EmbeddedStorage,
        managers: Managers,
        threads: ServerThreads,
        check: Callable[[], None],
        stack: AsyncExitStack,
    ) -> ActiveEmbeddedBackend:
        """Make the folders of the default catalog: see `Backend`."""
        del check, stack
        storage.listen(managers.backlogs)
        if self._lake_dir is not None:
            await threads.storage(make_lake_folders, self._lake_dir)
        return ActiveEmbeddedBackend(storage, managers, threads, self._settings.kv_snapshot_interval_ms)


class ActiveEmbeddedBackend:
    """An `ActiveBackend` whose leases and lake snapshots are known to this server alone.

    Args:
        kv_snapshot_interval_ms: The time between two KV snapshots of a bucket, in ms.
    """

    def __init__(
        self, storage: TableStorage, managers: Managers, threads: ServerThreads, kv_snapshot_interval_ms: int
    ) -> None:
        self._storage = storage
        self.leases = OwnLeases(threads, storage, managers)
        self.lake = OwnLakeSnapshots(threads, storage, managers)
        self.allow_for_standstill = (managers.leases.allow_for_standstill,)
        self.jobs = (
            Job("open tables", kv_snapshot_interval_ms, TableOpening(threads, storage, managers.backlogs).run_once),
            Job(
                "take KV snapshots",
                kv_snapshot_interval_ms,
                lambda: take_kv_snapshots(threads, storage, managers),
                after_interval=True,
            ),
        )

    def table_count(self) -> int:
        """Return the number of tables in the data folder."""
        return len(self._storage.tables())

    async def refresh_tables(self) -> None:
        """Do nothing: only this server changes its tables."""
