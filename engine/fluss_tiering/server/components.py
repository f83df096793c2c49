"""The components of an active server: opened in order, closed in the opposite order."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import StorageDescription
from fluss_tiering.server.backends.backend import ActiveBackend, Backend
from fluss_tiering.server.core.background import Job, common_jobs
from fluss_tiering.server.core.definitions import SETTLE_INTERVAL_MS, TableDefinitions
from fluss_tiering.server.core.lake.catalog import LakeCatalogProperties
from fluss_tiering.server.core.leases.checks import LeaseLimits
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.scans.manager import KvScannerManager
from fluss_tiering.server.core.scans.scanner import ScannerLimits
from fluss_tiering.server.core.store.database import Fence
from fluss_tiering.server.core.store.note import DATABASE_FILE, StoreKind, check_kind, note_database
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.core.tiering.policy import TieringPolicy
from fluss_tiering.server.core.tiering.states import FailureBackoff
from fluss_tiering.server.edge.callers.executor_tokens import KEY_BYTES, KEY_NAME, ExecutorTokens, GrantsOf
from fluss_tiering.server.settings.server_settings import ServerSettings
from fluss_tiering.storage.protocol import TableStorage


@dataclass(frozen=True, slots=True)
class ServerComponents:
    """The components behind the services of an active server.

    Attributes:
        storage: The tables. It is called in the threads of the storage only.
        managers: The managers. They are called in the control thread only.
        catalog: The properties of the lake catalogs that tables are tiered into.
        scanners: The scanners of primary-key tables.
        check: Raises NOT_LEADER_OR_FOLLOWER unless this server certainly leads.
        backend: What depends on the kind of the storage.
        definitions: Creates, alters and drops tables.
        executor_tokens: Makes the tokens with which the executors of a round read its table; None if callers need none.
    """

    threads: ServerThreads
    storage: TableStorage
    managers: Managers
    catalog: LakeCatalogProperties
    scanners: KvScannerManager
    check: Callable[[], None]
    backend: ActiveBackend
    definitions: TableDefinitions
    executor_tokens: ExecutorTokens | None

    def jobs(self, settings: ServerSettings) -> list[Job]:
        """Return the background jobs of the server."""
        return [
            *common_jobs(self.threads, self.managers, self.scanners, settings, self.backend.allow_for_standstill),
            Job("settle changes of tables", SETTLE_INTERVAL_MS, self.definitions.settle),
            *self.backend.jobs,
        ]


async def open_components(
    settings: ServerSettings,
    backend: Backend[Any],
    stack: AsyncExitStack,
    *,
    clock: Clock,
    check: Callable[[], None],
    grants_of: GrantsOf,
    fence: Fence | None = None,
) -> ServerComponents:
    """Open the storage and the store, and load the managers.

    Args:
        backend: The kind of storage.
        stack: Closes what is opened.
        clock: The clock of the managers and of the storage.
        check: Raises an error unless this server may act.
        grants_of: Returns the roles that a caller has now, by the names by which the server's files know it.
        fence: The check that every transaction of the store must pass; None if no other server may take over.

    Raises:
        FlussTieringError: DATA_DIR_IN_USE if another server holds the data folder; CORRUPT_DATA if storage or store
            are damaged; INVALID_REQUEST if the store belongs to another storage, or if the data folder was used with
            another store; STORAGE if a file cannot be used; UNAVAILABLE if the storage or the store cannot be
            reached; NOT_LEADER_OR_FOLLOWER if the fence refuses.
    """
    threads = ServerThreads()
    stack.callback(threads.close)
    storage: TableStorage = await backend.open_storage(clock, threads, stack)
    stack.push_async_callback(threads.storage, storage.close)
    kind = store_kind(settings)
    await threads.control(check_kind, settings.data_dir, kind)
    store = await threads.control(SqlTieringStore.open, store_location(settings), fence)
    stack.push_async_callback(threads.control, store.close)
    stack.callback(_break_off_unless_leading, store, check)
    await threads.control(_bind, store, storage.describe(), settings.data_dir, kind)
    policy = _tiering_policy(settings, due_by_freshness=backend.due_by_freshness)
    managers = await threads.control(Managers, storage, store, clock, policy, _lease_limits(settings))
    active = await backend.open_active(storage, managers, threads, check, stack)
    scanners = KvScannerManager(clock, ScannerLimits.of(settings))
    definitions = TableDefinitions(threads, storage, managers, active.lake)
    executor_tokens = None
    if settings.asks_callers:
        key = await threads.control(store.secret, KEY_NAME, KEY_BYTES)
        executor_tokens = ExecutorTokens(key, managers.tiering.is_running, grants_of)
    return ServerComponents(
        threads, storage, managers, backend.catalog, scanners, check, active, definitions, executor_tokens
    )


def _bind(store: SqlTieringStore, storage: StorageDescription, data_dir: Path, kind: StoreKind) -> None:
    location = storage.data_dir or storage.bootstrap_servers
    is_new = not store.is_bound(storage.data_dir_id, location) and not store.has_statuses()
    note_database(data_dir, kind, store.name, is_new=is_new)
    store.bind(storage.data_dir_id, location)


def _break_off_unless_leading(store: SqlTieringStore, check: Callable[[], None]) -> None:
    """End what the control thread waits for, if the database may be the reason why this server no longer leads."""
    try:
        check()
    except FlussTieringError:
        store.break_off()


def store_kind(settings: ServerSettings) -> StoreKind:
    """Return the kind of database that the settings ask for."""
    return StoreKind.SQLITE if settings.store_url is None else StoreKind.POSTGRESQL


def store_location(settings: ServerSettings) -> Path | str:
    """Return where the store is: the path of a SQLite file, or the URL of a PostgreSQL database."""
    url = settings.store_url
    return settings.data_dir / DATABASE_FILE if url is None else url.get_secret_value()


def _lease_limits(settings: ServerSettings) -> LeaseLimits:
    return LeaseLimits(
        settings.kv_snapshot_lease_max, settings.kv_snapshot_lease_max_snapshots, settings.kv_snapshot_lease_max_ids
    )


def _tiering_policy(settings: ServerSettings, *, due_by_freshness: bool) -> TieringPolicy:
    backoff = FailureBackoff(
        settings.failure_backoff_base_ms,
        settings.failure_backoff_cap_ms,
        random.Random(),  # noqa: S311 - jitter
        settings.max_consecutive_failures,
    )
    return TieringPolicy(
        settings.heartbeat_timeout_ms,
        backoff,
        settings.kept_rounds,
        due_by_freshness,
        settings.max_round_duration_ms,
    )
