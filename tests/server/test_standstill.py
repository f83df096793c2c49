"""A server that stands still, and clocks that somebody sets: no healthy round fails by either."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from manager_support import HEARTBEAT_TIMEOUT, Managers

from engine_support import HOUR, MINUTE, ServerProcess, ServerThread, VirtualClock, new_table
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.clock import SystemClock
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState
from fluss_tiering.server.backends.cluster.backend import ActiveClusterBackend
from fluss_tiering.server.backends.embedded.backend import ActiveEmbeddedBackend
from fluss_tiering.server.core.background import Standstill, common_jobs
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.settings.server_settings import ServerSettings
from waiting import wait_until

YEAR = 365 * 24 * HOUR


class Drivers(threading.Thread):
    """Sends the heartbeats of several rounds, and keeps what was refused."""

    def __init__(self, target: str, claims: Sequence[Claim], every_s: float) -> None:
        super().__init__(daemon=True)
        self._target = target
        self._entries = [HeartbeatEntry(each.table_id, each.tiering_epoch) for each in claims]
        self._every_s = every_s
        self.refused: list[FlussTieringError] = []
        self.heard = 0
        self.ended = threading.Event()

    def run(self) -> None:
        with TieringClient(self._target, timeout=30) as client:
            while not self.ended.wait(self._every_s):
                self.refused.extend(client.heartbeat(tiering=self._entries).tiering_errors.values())
                self.heard += 1


@contextmanager
def drivers(target: str, claims: Sequence[Claim], every_s: float) -> Iterator[Drivers]:
    running = Drivers(target, claims, every_s)
    running.start()
    yield running
    running.ended.set()
    running.join(60)


def claimed(client: TieringClient, tables: int) -> list[Claim]:
    claims = client.claim_tables([new_table(client).path for _ in range(tables)], "X", None, "driver")
    assert all(isinstance(each, Claim) for each in claims)
    return claims  # type: ignore[return-value]


@pytest.mark.system
@pytest.mark.long
def test_no_round_fails_because_the_server_was_suspended(tmp_path: Path) -> None:  # D3
    settings = {"FLUSS_TIERING_HEARTBEAT_TIMEOUT": "4s", "FLUSS_TIERING_HEARTBEAT_CHECK_INTERVAL": "100ms"}
    server = ServerProcess(tmp_path, **settings).start()
    try:
        with TieringClient(server.target) as client, drivers(server.target, claimed(client, 10), 1.0) as running:
            wait_until(lambda: running.heard)
            assert server.process is not None
            for _ in range(2):
                server.process.send_signal(signal.SIGSTOP)
                time.sleep(6)
                server.process.send_signal(signal.SIGCONT)
                heard = running.heard
                wait_until(lambda heard=heard: running.heard > heard + 1)
            assert running.refused == []
            assert {each.state for each in client.list_tiering_rounds()} == {TieringState.TIERING}
    finally:
        server.kill()


@pytest.mark.slow
def test_no_round_fails_because_the_clock_is_set(tmp_path: Path) -> None:  # D3
    ahead_ns = 0
    clock = SystemClock(lambda: time.time_ns() + ahead_ns)
    settings = {"heartbeat_timeout": 20_000, "heartbeat_check_interval": 50, "kv_scanner_expiration_interval": 50}
    with (
        ServerThread(tmp_path, clock=clock, kv_snapshot_lease_expiration_check_interval=50, **settings) as running,
        TieringClient(running.target) as client,
    ):
        table = new_table(client, [1])
        lease_latest_snapshots(client, "Y", [table.path], HOUR)
        leases = client.list_leases()
        with drivers(running.target, claimed(client, 10), 0.1) as beating:
            for step_ms in (130_000, -HOUR, YEAR, -YEAR):
                ahead_ns += step_ms * 1_000_000
                heard = beating.heard
                wait_until(lambda heard=heard: beating.heard > heard + 3)
        assert beating.refused == []
        assert client.list_leases() == leases
        states = {each.state for each in client.list_tiering_rounds()}
        assert states == {TieringState.TIERING}


def test_silence_does_not_count_while_the_server_stands_still(managers: Managers) -> None:  # D3
    table = managers.add_table(1)
    managers.claim(table)
    seconds = 0.0
    standstill = Standstill(200, [managers.tiering.allow_for_standstill], lambda: seconds)

    def let_pass(ms: int) -> None:
        nonlocal seconds
        managers.clock.advance(ms)
        seconds += ms / 1000

    def run(ms: int) -> None:
        for _ in range(ms // 200):
            let_pass(200)
            standstill.look()

    run(HEARTBEAT_TIMEOUT // 2)
    let_pass(HEARTBEAT_TIMEOUT)
    standstill.before(managers.tiering.end_overdue_rounds)()
    assert managers.state(table) is TieringState.TIERING
    run(HEARTBEAT_TIMEOUT // 2 + 1000)
    managers.tiering.end_overdue_rounds()
    assert managers.state(table) is TieringState.FAILED, "a driver that is silent while the server runs is lost"


async def test_a_lease_that_could_not_be_renewed_while_the_server_stood_still_goes_on(managers: Managers) -> None:  # D3
    bucket = TableBucket(1, 0)
    managers.acquire("over", MINUTE, {bucket: 6})
    managers.clock.advance(2 * MINUTE)
    managers.acquire("X", HOUR, {bucket: 7})
    seconds = 0.0
    threads = ServerThreads()
    threads.before_turn = Standstill(200, [managers.leases.allow_for_standstill], lambda: seconds).look
    await threads.control(managers.leases.leases)
    managers.clock.advance(3 * HOUR)
    seconds += 3 * HOUR / 1000
    # The first call after the pause may be the renewal, or the job that drops expired leases.
    assert await threads.control(managers.leases.drop_expired) == ["over"]
    (renewed,) = await threads.control(managers.leases.renew, [("X", HOUR)])
    assert renewed == managers.clock.now_ms() + HOUR
    threads.close()


@pytest.mark.slow
async def test_the_first_turn_after_a_pause_notices_it(managers: Managers, tmp_path: Path) -> None:  # D3
    allowed: list[int] = []
    scanners: Any = SimpleNamespace(allow_for_standstill=allowed.append)
    threads = ServerThreads()
    common_jobs(threads, managers, scanners, ServerSettings(data_dir=tmp_path), [allowed.append])  # type: ignore[arg-type]
    await threads.control(managers.leases.leases)
    assert allowed == []
    await asyncio.sleep(1.3)
    await threads.control(managers.leases.leases)
    assert len(allowed) == 2
    threads.close()


def test_only_the_storage_s_own_leases_get_the_time_back(managers: Managers) -> None:
    parts: Any = SimpleNamespace(leases=managers.leases, tiering=managers.tiering, backlogs=None, lake=managers.lake)
    nothing: Any = SimpleNamespace()
    own = ActiveEmbeddedBackend(nothing, parts, nothing, 1000)
    assert list(own.allow_for_standstill) == [managers.leases.allow_for_standstill]
    cluster = ActiveClusterBackend(nothing, nothing, parts, nothing, lambda: None)
    assert list(cluster.allow_for_standstill) == [], "the leases at the cluster end by the cluster's own clock"


@pytest.mark.parametrize("ahead_ms", [HOUR, YEAR])
def test_times_from_the_future_are_not_waited_for(managers: Managers, ahead_ms: int) -> None:  # D3
    """What a server stored whose clock was ahead, loaded by one whose clock is right."""
    right = managers.clock.now_ms()
    managers.clock.advance(ahead_ms)
    tiered, failed, running, created = (managers.add_table(table_id) for table_id in range(4))
    managers.finish(managers.claim(tiered))
    managers.fail(managers.claim(failed))
    managers.claim(running)
    managers.acquire("X", HOUR, {TableBucket(tiered.table_id, 0): 1})

    managers.clock = VirtualClock(right)
    managers.restart()
    (lease,) = managers.leases.leases()
    assert lease.expiration_time == right + HOUR
    managers.clock.advance(3 * MINUTE)
    managers.tiering.move_due_tables()
    assert {managers.state(each) for each in (tiered, failed, created)} == {TieringState.PENDING}
    assert managers.status(tiered).state_since == right + 3 * MINUTE
    assert managers.state(running) is TieringState.TIERING
    managers.tiering.end_overdue_rounds()
    assert managers.state(running) is TieringState.FAILED
