"""Jobs that the server repeats in the background, and pauses of the server that give clients their time back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from fluss_tiering.model.clock import uptime_s
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.server.core.leases.manager import KvSnapshotLeaseManager
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.scans.manager import KvScannerManager
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.settings.server_settings import ServerSettings

_NOTICED_MS: Final = 1000
"""A pause that is shorter is normal on a busy machine."""

T = TypeVar("T")

logger = structlog.get_logger(__name__)


class Standstill:
    """Notices pauses of the control thread. It is used in the control thread only.

    Args:
        interval_ms: The time between two looks while nothing stands still, in ms.
        allow: Called with the length of a pause, in ms. Each adds it to the time that clients have.
        seconds: A clock in seconds that cannot be set.
    """

    def __init__(
        self, interval_ms: int, allow: Sequence[Callable[[int], None]], seconds: Callable[[], float] = uptime_s
    ) -> None:
        self._interval_ms = interval_ms
        self._allow = allow
        self._seconds = seconds
        self._seen = seconds()

    def look(self) -> None:
        """Notice a pause that has just ended. Call this once in an interval, and before clients are found silent."""
        now = self._seconds()
        pause_ms, self._seen = round((now - self._seen) * 1000) - self._interval_ms, now
        if pause_ms >= _NOTICED_MS:
            logger.warning("server stood still: clients get the time back", ms=pause_ms)
            for allow in self._allow:
                allow(pause_ms)

    def before(self, function: Callable[[], T]) -> Callable[[], T]:
        """Return a function that looks first."""

        def looking() -> T:
            self.look()
            return function()

        return looking


_DUE_TABLES_INTERVAL_MS: Final = 200
"""The precision with which freshness is kept. Fluss's timer has the same interval."""
_BACKLOGS_INTERVAL_MS: Final = 1000
_DROPPED_TABLES_INTERVAL_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Job:
    """One job that is repeated.

    Attributes:
        name: The name of the job, for the log.
        interval_ms: The time between the end of one run and the start of the next, in ms.
        run: Runs the job once.
        after_interval: Whether the first run waits for the interval too.
    """

    name: str
    interval_ms: int
    run: Callable[[], Awaitable[object]]
    after_interval: bool = False


def common_jobs(
    threads: ServerThreads,
    managers: Managers,
    scanners: KvScannerManager,
    settings: ServerSettings,
    allow_for_standstill: Sequence[Callable[[int], None]] = (),
) -> list[Job]:
    """Return the jobs that every server has, whichever storage it has. Each of them runs once at the start too.

    From now on the control thread notices before each call that the server stood still: the first call after a pause
    may be one that finds a client silent.

    Args:
        managers: The managers that the jobs call.
        scanners: The scanners of primary-key tables.
        settings: The intervals of the jobs.
        allow_for_standstill: Further functions that give clients time back; see `Standstill`.
    """
    tiering = managers.tiering
    standstill = Standstill(
        _DUE_TABLES_INTERVAL_MS,
        [tiering.allow_for_standstill, scanners.allow_for_standstill, *allow_for_standstill],
    )
    threads.before_turn = standstill.look
    return [
        Job(
            "drop expired leases",
            settings.kv_snapshot_lease_expiration_check_interval_ms,
            lambda: _drop_expired(threads, managers.leases),
        ),
        Job(
            "fail silent rounds",
            settings.heartbeat_check_interval_ms,
            lambda: threads.control(standstill.before(tiering.end_overdue_rounds)),
        ),
        Job(
            "move due tables",
            _DUE_TABLES_INTERVAL_MS,
            lambda: threads.control(standstill.before(tiering.move_due_tables)),
        ),
        Job(
            "tell of backlogs",
            _BACKLOGS_INTERVAL_MS,
            lambda: threads.control(tiering.tell_of_backlogs),
        ),
        Job("count what was dropped", _BACKLOGS_INTERVAL_MS, lambda: threads.control(tiering.note_lost)),
        Job(
            "forget outcomes of dropped tables",
            _DROPPED_TABLES_INTERVAL_MS,
            lambda: threads.control(tiering.prune_dropped),
        ),
        Job(
            "close idle scanners",
            settings.kv_scanner_expiration_interval_ms,
            lambda: _close_idle(threads, standstill, scanners),
        ),
    ]


async def _drop_expired(threads: ServerThreads, leases: KvSnapshotLeaseManager) -> None:
    await threads.control(leases.drop_expired)
    await threads.control(leases.prune_attempts)


async def _close_idle(threads: ServerThreads, standstill: Standstill, scanners: KvScannerManager) -> None:
    await threads.control(standstill.look)
    await threads.storage(scanners.drop_expired)


class BackgroundJobs:
    """Jobs, each in a task of its own. A job that fails is logged and runs again after its interval.

    Args:
        check: Raises an error while no job may run.
    """

    def __init__(self, jobs: Sequence[Job], check: Callable[[], None]) -> None:
        self._jobs = jobs
        self._check = check
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start all jobs."""
        self._tasks = [asyncio.create_task(_repeat(job, self._check), name=job.name) for job in self._jobs]

    async def stop(self) -> None:
        """Stop all jobs."""
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
            if _is_logged(failures):
                logger.error(
                    "background job failed",
                    job=job.name,
                    code=error.code.value,
                    error=error.message,
                    failures_in_a_row=failures,
                )
        except Exception:
            failures += 1
            if _is_logged(failures):
                logger.exception("background job failed", job=job.name, failures_in_a_row=failures)
        else:
            failures = 0
        await asyncio.sleep(job.interval_ms / 1000)


def _is_logged(failures: int) -> bool:
    # True for the 1st, 2nd, 4th, 8th failure and so on, because a job that often fails must not flood the log.
    return failures & (failures - 1) == 0
