"""What the server does by itself, again and again: time-outs, due tables, KV snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.servicers.parts import ServerParts
from fluss_tiering.server.settings import ServerSettings

_DUE_TABLES_INTERVAL_MS: Final = 200
"""As fine as freshness is kept; Fluss's timer ticks as often."""

log = structlog.get_logger(__name__)


class BackgroundJobs:
    """The jobs, each in a task of its own; one that fails is logged and tried again at its next turn."""

    def __init__(self, parts: ServerParts, settings: ServerSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts all; the first look at expired leases and due tables is now (L9)."""
        control, coordinator, settings = self._parts.threads.control, self._parts.coordinator, self._settings
        self._repeat(
            "drop expired leases", settings.lease_check_interval, lambda: control(coordinator.leases.drop_expired)
        )
        self._repeat(
            "fail silent rounds",
            settings.heartbeat_check_interval,
            lambda: control(coordinator.tiering.fail_silent_rounds),
        )
        self._repeat("move due tables", _DUE_TABLES_INTERVAL_MS, lambda: control(coordinator.tiering.move_due_tables))
        self._repeat("take KV snapshots", settings.kv_snapshot_interval, self._take_kv_snapshots, after_interval=True)

    async def stop(self) -> None:
        """Stops all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _repeat(
        self, name: str, interval_ms: int, job: Callable[[], Awaitable[object]], *, after_interval: bool = False
    ) -> None:
        async def repeat() -> None:
            if after_interval:
                await asyncio.sleep(interval_ms / 1000)
            while True:
                try:
                    await job()
                except FlussTieringError as error:
                    log.error("background job failed", job=name, code=error.code.value, error=error.message)
                except Exception:
                    log.exception("background job failed", job=name)
                await asyncio.sleep(interval_ms / 1000)

        self._tasks.append(asyncio.create_task(repeat(), name=name))

    async def _take_kv_snapshots(self) -> None:
        threads, storage = self._parts.threads, self._parts.storage
        for table in await threads.storage(storage.tables):
            if not table.has_primary_key:
                continue
            try:
                await threads.storage(storage.take_kv_snapshots, table.path)
            except FlussTieringError as error:
                if error.code is not ErrorCode.TABLE_NOT_EXIST:
                    log.error("KV snapshot failed", table=str(table.path), code=error.code.value, error=error.message)
        await threads.control(self._parts.coordinator.collect_kv_snapshots)
