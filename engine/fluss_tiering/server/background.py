"""What the server does by itself, again and again: time-outs, due tables, KV snapshots, a cluster's tables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.server import gc_tuning
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.settings import ServerSettings
from fluss_tiering.storage.protocol import TableStorage

_DUE_TABLES_INTERVAL_MS: Final = 200
"""As fine as freshness is kept; Fluss's timer ticks as often."""
_DISCOVERY_INTERVAL_MS: Final = 2000
_CLAIMS_INTERVAL_MS: Final = 500
_TIDY_INTERVAL_MS: Final = 1000
_LOG_ENDS_INTERVAL_MS: Final = 10_000
"""For metrics, which are scraped about as often."""
_OPENED_AT_ONCE: Final = 10
"""Tables that one call to the storage opens: a call for each would keep the event loop busy for seconds."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """One thing that is done again and again.

    Attributes:
        interval_ms: between the end of one turn and the start of the next.
        after_interval: whether the first turn waits for the interval too.
    """

    name: str
    interval_ms: int
    run: Callable[[], Awaitable[object]]
    after_interval: bool = False


def jobs_of(components: ServerComponents, settings: ServerSettings) -> list[Job]:
    """All jobs; the first look at expired leases and due tables is at the start (L9)."""
    control, managers = components.threads.control, components.managers
    jobs = [
        Job(
            "drop expired leases",
            settings.kv_snapshot_lease_expiration_check_interval,
            lambda: control(managers.leases.drop_expired),
        ),
        Job(
            "fail silent rounds",
            settings.heartbeat_check_interval,
            lambda: control(managers.tiering.fail_silent_rounds),
        ),
        Job("move due tables", _DUE_TABLES_INTERVAL_MS, lambda: control(managers.tiering.move_due_tables)),
        Job(
            "close idle scanners",
            settings.kv_scanner_expiration_interval,
            lambda: components.threads.storage(components.scanners.drop_expired),
        ),
    ]
    if components.cluster is not None:
        cluster = components.cluster
        return [
            *jobs,
            Job("follow the cluster's tables", _DISCOVERY_INTERVAL_MS, cluster.discovery.run_once),
            Job("take due tables from the cluster", _CLAIMS_INTERVAL_MS, cluster.claims.run_once),
            Job("release snapshots at the cluster", _TIDY_INTERVAL_MS, cluster.leases.tidy),
            Job("look how far logs reach", _LOG_ENDS_INTERVAL_MS, cluster.log_ends.run_once),
        ]
    return [
        *jobs,
        Job("open tables", settings.kv_snapshot_interval, lambda: _open_tables(components)),
        Job(
            "take KV snapshots",
            settings.kv_snapshot_interval,
            lambda: _take_kv_snapshots(components),
            after_interval=True,
        ),
    ]


class BackgroundJobs:
    """The jobs, each in a task of its own; one that fails is logged and tried again at its next turn."""

    def __init__(self, jobs: Sequence[Job], check: Callable[[], None]) -> None:
        """The jobs run while `check` does not raise."""
        self._jobs = jobs
        self._check = check
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts all."""
        self._tasks = [asyncio.create_task(_repeat(job, self._check), name=job.name) for job in self._jobs]

    async def stop(self) -> None:
        """Stops all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _repeat(job: Job, check: Callable[[], None]) -> None:
    if job.after_interval:
        await asyncio.sleep(job.interval_ms / 1000)
    failures = 0
    while True:
        try:
            check()
            await job.run()
        except FlussTieringError as error:
            failures += 1
            if _is_told(failures):
                logger.error(
                    "background job failed",
                    job=job.name,
                    code=error.code.value,
                    error=error.message,
                    failures_in_a_row=failures,
                )
        except Exception:
            failures += 1
            if _is_told(failures):
                logger.exception("background job failed", job=job.name, failures_in_a_row=failures)
        else:
            failures = 0
        await asyncio.sleep(job.interval_ms / 1000)


def _is_told(failures: int) -> bool:
    # The 1st, 2nd, 4th, 8th and so on: a job that fails five times a second must not flood the log.
    return failures & (failures - 1) == 0


async def _open_tables(components: ServerComponents) -> None:
    """Finds damaged tables before somebody needs them; those that are open stay so."""
    tables = await components.threads.storage(components.storage.tables)
    for at in range(0, len(tables), _OPENED_AT_ONCE):
        started = time.perf_counter()
        await components.threads.storage(_open, components.storage, tables[at : at + _OPENED_AT_ONCE])
        gc_tuning.keep_all()
        # Calls come first: no more than half of the time.
        await asyncio.sleep(time.perf_counter() - started)


def _open(storage: TableStorage, tables: Iterable[TableInfo]) -> None:
    for table in tables:
        try:
            storage.buckets(table.path)
        except FlussTieringError as error:
            if error.code is not ErrorCode.TABLE_NOT_EXIST:
                logger.error("table cannot be used", table=str(table.path), code=error.code.value, error=error.message)


async def _take_kv_snapshots(components: ServerComponents) -> None:
    threads, storage = components.threads, components.storage
    for table in await threads.storage(storage.tables):
        if not table.has_primary_key:
            continue
        try:
            await threads.storage(storage.take_kv_snapshots, table.path)
        except FlussTieringError as error:
            if error.code is not ErrorCode.TABLE_NOT_EXIST:
                logger.error("KV snapshot failed", table=str(table.path), code=error.code.value, error=error.message)
    await threads.control(components.managers.collect_kv_snapshots)
