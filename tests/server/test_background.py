"""How long the background jobs let an expired lease and a silent round live, measured on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from manager_support import Managers

from engine_support import HOUR, MINUTE
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.server.core import background
from fluss_tiering.server.core.background import BackgroundJobs, common_jobs
from fluss_tiering.server.settings.server_settings import ServerSettings

LEASE_CHECK = 10 * MINUTE
HEARTBEAT_CHECK = 15_000
HEARTBEAT_TIMEOUT = 120_000


class Calls:
    """Stands for the server's threads: a call runs at once."""

    async def control(self, function: Callable[..., object], *args: object) -> object:
        return function(*args)

    storage = control


class Turns:
    """Runs one job of a server with the default settings. Its pauses are over at once, and move the clock."""

    def __init__(self, managers: Managers, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        scanners: Any = SimpleNamespace(allow_for_standstill=None)
        jobs = common_jobs(Calls(), managers, scanners, ServerSettings(data_dir=folder))  # type: ignore[arg-type]
        self._jobs = {job.name: job for job in jobs}
        self._clock = managers.clock
        self._monkeypatch = monkeypatch

    def run(
        self, name: str, ms: int, after_each: Callable[[], object], check: Callable[[], None] = lambda: None
    ) -> None:
        """Run the job for so long on the clock. It runs at once, and then after each of its pauses."""
        end = self._clock.now_ms() + ms

        async def run() -> None:
            over = asyncio.Event()

            async def pause(seconds: float) -> None:
                after_each()
                self._clock.advance(round(seconds * 1000))
                if self._clock.now_ms() > end:
                    over.set()
                    await asyncio.Event().wait()

            patched: Any = SimpleNamespace(**{**vars(asyncio), "sleep": pause})
            self._monkeypatch.setattr(background, "asyncio", patched)
            jobs = BackgroundJobs([self._jobs[name]], check)
            jobs.start()
            await over.wait()
            await jobs.stop()

        asyncio.run(run())


@pytest.fixture
def turns(managers: Managers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Turns:
    return Turns(managers, tmp_path, monkeypatch)


def test_no_lease_lives_longer_than_its_duration_and_one_interval(managers: Managers, turns: Turns) -> None:  # L9, D17
    began = managers.clock.now_ms()
    ends = {f"lease of {minutes} minutes": minutes * MINUTE for minutes in range(1, 100, 7)}
    ends["ends on a check"] = 2 * LEASE_CHECK
    for number, (lease_id, duration) in enumerate(ends.items()):
        managers.acquire(lease_id, duration, {TableBucket(1, number): 1})
    ended: dict[str, int] = {}

    def note() -> None:
        held = {lease.lease_id for lease in managers.leases.leases()}
        for lease_id in ends.keys() - held - ended.keys():
            ended[lease_id] = managers.clock.now_ms() - began

    turns.run("drop expired leases", 3 * HOUR, note)
    assert ended.keys() == ends.keys()
    longest = max(ended[lease_id] - ends[lease_id] for lease_id in ends)
    assert 0 < longest <= LEASE_CHECK
    assert all(ended[lease_id] > ends[lease_id] for lease_id in ends), "no lease ends before its time"
    assert longest == ended["ends on a check"] - ends["ends on a check"], "it has not expired at the check itself"


def test_what_expired_while_no_server_ran_is_dropped_at_the_start(managers: Managers, turns: Turns) -> None:  # L9, D17
    managers.acquire("X", HOUR, {TableBucket(1, 0): 1})
    managers.clock.advance(2 * HOUR)
    managers.restart()
    counts: list[int] = []
    turns.run("drop expired leases", 0, lambda: counts.append(managers.leases.lease_count))
    assert counts == [0]


def test_a_check_that_fails_is_made_again_after_its_interval(managers: Managers, turns: Turns) -> None:  # L9, D17
    managers.acquire("X", MINUTE, {TableBucket(1, 0): 1})
    managers.clock.advance(2 * MINUTE)
    fails = iter([True, True, False])
    counts: list[int] = []

    def check() -> None:
        if next(fails, False):
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "the database is away")

    turns.run("drop expired leases", 2 * LEASE_CHECK, lambda: counts.append(managers.leases.lease_count), check)
    assert counts == [1, 1, 0]


def test_a_silent_round_fails_within_one_check_after_its_time_out(managers: Managers, turns: Turns) -> None:  # S4, D17
    heard: dict[int, int] = {}
    for table_id in range(1, 12):
        table = managers.add_table(table_id)
        managers.claim(table)
        heard[table_id] = managers.clock.now_ms()
        managers.clock.advance(1_700)
    on_a_check = managers.add_table(99)
    managers.claim(on_a_check)
    heard[99] = managers.clock.now_ms()
    turns.run("fail silent rounds", 3 * MINUTE, lambda: None)
    silent: dict[int, int] = {}
    for table_id, table in managers.tables.items():
        status = managers.status(table)
        assert status.state is TieringState.FAILED
        assert status.last_error is not None
        assert status.last_error.startswith("heartbeat timed out after ")
        assert status.last_error_time is not None
        silent[table_id] = status.last_error_time - heard[table_id]
    assert silent[99] == HEARTBEAT_TIMEOUT
    assert min(silent.values()) == HEARTBEAT_TIMEOUT
    assert max(silent.values()) < HEARTBEAT_TIMEOUT + HEARTBEAT_CHECK
