"""When leases are renewed and heartbeats are sent, on a clock that only waiting moves, and which rounds hear what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import (
    Claim,
    HeartbeatAnswer,
    HeartbeatEntry,
    StatusChanges,
    TieringState,
    TieringStatus,
)
from fluss_tiering.spark.round.keepalive import HEARTBEAT_INTERVAL_S, KeepAlive, RoundGuard
from fluss_tiering.spark.runtime import Runtime

LEASE_S = 600
RETRY_S = 5.0
AWAY = FlussTieringError(ErrorCode.UNAVAILABLE, "away")
FENCED = FlussTieringError(ErrorCode.FENCED_TIERING_EPOCH, "superseded")
GONE = FlussTieringError(ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST, "expired")


class Time:
    """A clock that a waiting thread moves at once. The thread runs in `start`, until the time is over."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.end = 0.0
        self.waiting: Callable[[], None] = lambda: None

    def runtime(self) -> Runtime:
        return Runtime(lambda: self.now, lambda: _Closed(self), _Thread)

    def wait(self, seconds: float) -> bool:
        self.waiting()
        self.now += seconds
        return self.now >= self.end


class _Closed:
    def __init__(self, time: Time) -> None:
        self._time = time
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        return self._set or self._time.wait(timeout)


class _Thread:
    def __init__(self, target: Callable[[], None], name: str) -> None:
        del name
        self._target = target

    def start(self) -> None:
        self._target()

    def join(self, timeout: float | None = None) -> None:
        del timeout


class Server:
    """What the keep-alive calls, with answers that the test chooses. It keeps what was asked, and when."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.heartbeats: list[tuple[float, list[HeartbeatEntry]]] = []
        self.failures: list[tuple[float, list[HeartbeatEntry]]] = []
        self.renewals: list[tuple[float, dict[str, int]]] = []
        self.faults: Iterator[FlussTieringError | None] = iter(())
        self.fenced: dict[int, FlussTieringError] = {}
        self.gone: dict[str, FlussTieringError] = {}

    def heartbeat(
        self, *, tiering: Sequence[HeartbeatEntry] = (), failed: Sequence[HeartbeatEntry] = ()
    ) -> HeartbeatAnswer:
        assert bool(tiering) != bool(failed), "a failure that cannot be recorded keeps no round from being heard"
        (self.failures if failed else self.heartbeats).append((self._time.now - 1000.0, list(failed or tiering)))
        self._fail()
        return HeartbeatAnswer(0, None, dict(self.fenced), {}, {})

    def renew_leases(self, durations_ms: Mapping[str, int]) -> dict[str, int | FlussTieringError]:
        self.renewals.append((self._time.now - 1000.0, dict(durations_ms)))
        self._fail()
        return {lease_id: self.gone.get(lease_id, 0) for lease_id in durations_ms}

    def _fail(self) -> None:
        if fault := next(self.faults, None):
            raise fault


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def server(time: Time) -> Server:
    return Server(time)


@pytest.fixture
def keepalive(time: Time, server: Server) -> KeepAlive:
    return kept_alive(time, server, LEASE_S)


def kept_alive(time: Time, server: Any, lease_s: int) -> KeepAlive:
    return KeepAlive(server, lease_s * 1000, retry_s=RETRY_S, runtime=time.runtime())


def live(time: Time, keepalive: KeepAlive, seconds: float) -> None:
    """Let so many seconds go by."""
    time.end = time.now + seconds
    with keepalive:
        """The time has gone by."""


def guard(time: Time, table_id: int, stop: Callable[[], None] = lambda: None) -> RoundGuard:
    claim = Claim(table_id, TablePath("db", f"t{table_id}"), 7, coordinator_epoch=3)
    return RoundGuard(claim, stop, time.runtime())


def times(calls: Sequence[tuple[float, object]]) -> list[float]:
    return [each for each, _ in calls]


# Leases


# L16, D17
def test_a_lease_is_renewed_every_third_of_its_duration(time: Time, server: Server, keepalive: KeepAlive) -> None:
    keepalive.hold("X", 1)
    keepalive.hold("Y", 2)
    live(time, keepalive, 3 * LEASE_S)
    assert times(server.renewals) == [200, 400, 600, 800, 1000, 1200, 1400, 1600]
    assert all(durations == {"X": LEASE_S * 1000, "Y": LEASE_S * 1000} for _, durations in server.renewals)
    assert server.heartbeats == []


def test_a_renewal_that_fails_is_tried_again_soon(time: Time, server: Server, keepalive: KeepAlive) -> None:  # L16
    keepalive.hold("X", 1)
    server.faults = iter([AWAY, AWAY])
    live(time, keepalive, LEASE_S)
    assert times(server.renewals) == [200, 205, 210, 410]


# L16, L24
def test_a_lease_is_renewed_while_any_of_its_tables_holds_it(time: Time, server: Server, keepalive: KeepAlive) -> None:
    for table_id in (1, 2):
        keepalive.hold("X", table_id)
    keepalive.hold("Y", 1)
    keepalive.let_go("X", 1)
    keepalive.let_go("Y", 1)
    keepalive.let_go("unknown", 1)
    live(time, keepalive, 201)
    assert [set(durations) for _, durations in server.renewals] == [{"X"}]
    keepalive.let_go("X", 2)
    live(time, kept_alive(time, server, LEASE_S), 1000)
    assert len(server.renewals) == 1


def test_a_lease_that_is_gone_stops_the_rounds_that_hold_it_and_no_other(  # L5, L24
    time: Time, server: Server, keepalive: KeepAlive
) -> None:
    guards = {table_id: guard(time, table_id) for table_id in (1, 2, 3)}
    for table_id, lease_id in ((1, "X"), (2, "X"), (3, "Y"), (9, "X")):
        keepalive.hold(lease_id, table_id)
    for each in guards.values():
        keepalive.watch(each)
    server.gone = {"X": GONE}
    live(time, keepalive, 500)
    assert [guards[table_id].lost for table_id in (1, 2, 3)] == [GONE, GONE, None]
    assert [set(durations) for _, durations in server.renewals] == [{"X", "Y"}, {"Y"}], "it is not renewed any more"


# Heartbeats


# S4
def test_one_heartbeat_every_half_minute_is_of_all_rounds(time: Time, server: Server, keepalive: KeepAlive) -> None:
    for table_id in (1, 2):
        keepalive.watch(guard(time, table_id))
    live(time, keepalive, 130)
    assert HEARTBEAT_INTERVAL_S == 30, "a quarter of the server's time-out"
    assert times(server.heartbeats) == [30, 60, 90, 120]
    for _, entries in server.heartbeats:
        assert [(each.table_id, each.tiering_epoch) for each in entries] == [(1, 7), (2, 7)]
        assert {each.coordinator_epoch for each in entries} == {3}, "by it the server knows claims of before a restart"
    assert server.renewals == []


def test_a_heartbeat_that_fails_is_sent_again_soon(time: Time, server: Server, keepalive: KeepAlive) -> None:
    # S4, Fluss #3681
    watched = guard(time, 1)
    keepalive.watch(watched)
    server.faults = iter([AWAY, FlussTieringError(ErrorCode.STORAGE, "disk full"), None])
    live(time, keepalive, 80)
    assert times(server.heartbeats) == [30, 35, 40, 70]
    watched.check()


def test_no_round_is_told_of_after_its_end(time: Time, server: Server, keepalive: KeepAlive) -> None:
    ended, runs = guard(time, 1), guard(time, 2)
    for each in (ended, runs):
        keepalive.watch(each)
    keepalive.unwatch(ended)
    keepalive.unwatch(guard(time, 99))
    live(time, keepalive, 31)
    ((_, entries),) = server.heartbeats
    assert [each.table_id for each in entries] == [2]


def test_a_fenced_round_is_stopped_and_no_other(time: Time, server: Server, keepalive: KeepAlive) -> None:  # S5
    guards = [guard(time, table_id) for table_id in (1, 2)]
    for each in guards:
        keepalive.watch(each)
    server.fenced = {1: FENCED}
    live(time, keepalive, 31)
    assert [each.lost for each in guards] == [FENCED, None]


@pytest.mark.parametrize("then", ["ended", "began anew"])
def test_a_round_that_ended_while_its_heartbeat_was_on_its_way_is_not_stopped(  # S5
    time: Time, server: Server, keepalive: KeepAlive, then: str
) -> None:
    first, second = guard(time, 1), guard(time, 1)
    keepalive.watch(first)
    server.fenced = {1: FENCED}

    def end() -> Iterator[None]:
        keepalive.unwatch(first)
        if then == "began anew":
            keepalive.watch(second)
        yield None

    server.faults = end()
    live(time, keepalive, 31)
    assert len(server.heartbeats) == 1
    assert first.lost is None
    assert second.lost is None


# Failures that could not be recorded


FULL = FlussTieringError(ErrorCode.STORAGE, "disk full")


def failure(table_id: int, epoch: int = 7) -> HeartbeatEntry:
    return HeartbeatEntry(table_id, epoch, error_message="broken", coordinator_epoch=3)


def test_a_failure_is_reported_again_until_the_server_answers(time: Time, server: Server, keepalive: KeepAlive) -> None:
    for table_id in (1, 2):
        keepalive.report_later(failure(table_id))
    server.faults = iter([FULL, AWAY, None])
    live(time, keepalive, 120)
    assert times(server.failures) == [30, 35, 40]
    assert all(entries == [failure(1), failure(2)] for _, entries in server.failures)
    assert server.heartbeats == []


def test_rounds_are_heard_of_while_a_failure_cannot_be_recorded(
    time: Time, server: Server, keepalive: KeepAlive
) -> None:
    keepalive.watch(guard(time, 2))
    keepalive.report_later(failure(1))
    server.faults = iter([None, FULL, None, FULL])
    live(time, keepalive, 75)
    assert times(server.failures) == [30, 35, 40]
    assert times(server.heartbeats) == [30, 35, 40, 70]


def test_a_failure_that_comes_while_the_last_one_is_reported_is_not_forgotten(
    time: Time, server: Server, keepalive: KeepAlive
) -> None:
    def fail_again() -> Iterator[None]:
        keepalive.report_later(failure(1, epoch=8))
        yield None

    keepalive.report_later(failure(1))
    server.faults = fail_again()
    live(time, keepalive, 100)
    assert server.failures == [(30, [failure(1)]), (60, [failure(1, epoch=8)])]


# Both


def test_renewals_and_heartbeats_keep_their_own_times(time: Time, server: Server) -> None:
    keepalive = kept_alive(time, server, 150)
    keepalive.hold("X", 1)
    keepalive.watch(guard(time, 1))
    server.faults = iter([None, AWAY])
    live(time, keepalive, 125)
    assert times(server.heartbeats) == [30, 60, 90, 120]
    assert times(server.renewals) == [50, 55, 105]


def test_all_rounds_are_stopped_when_the_application_ends(time: Time, keepalive: KeepAlive) -> None:
    guards = [guard(time, table_id) for table_id in (1, 2)]
    for each in guards:
        keepalive.watch(each)
    keepalive.stop_rounds(AWAY)
    assert [each.lost for each in guards] == [AWAY, AWAY]


def test_a_round_is_stopped_once_and_keeps_the_first_reason(time: Time) -> None:
    stops: list[int] = []
    watched = guard(time, 1, lambda: stops.append(1))
    assert watched.began == 1000.0
    watched.check()
    watched.lose(FENCED)
    watched.lose(AWAY)
    assert (stops, watched.lost) == ([1], FENCED)
    with pytest.raises(FlussTieringError) as raised:
        watched.check()
    assert raised.value is FENCED


def test_closing_waits_for_the_thread_to_end() -> None:
    client: Any = None
    before = set(threading.enumerate())
    with KeepAlive(client, LEASE_S * 1000):
        # Threads of other tests may end meanwhile.
        (started,) = set(threading.enumerate()) - before
        assert started.is_alive()
    assert not started.is_alive()


# News of statuses


@pytest.mark.parametrize(
    ("state", "epoch", "table_id", "asks"),
    [
        (TieringState.PENDING, 7, 1, False),
        (TieringState.TIERING, 7, 1, False),
        (TieringState.FAILED, 7, 1, True),
        (TieringState.SCHEDULED, 7, 1, True),
        (TieringState.FAILED, 6, 1, False),
        (TieringState.SCHEDULED, 6, 1, False),
        (TieringState.PENDING, 8, 1, True),
        (TieringState.TIERING, 8, 1, True),
        (TieringState.SCHEDULED, 0, 2, True),
    ],
)
def test_news_from_before_a_claim_are_told_from_those_of_its_end(  # D66
    time: Time, server: Server, keepalive: KeepAlive, state: TieringState, epoch: int, table_id: int, asks: bool
) -> None:
    path = TablePath("db", "t1")
    keepalive.watch(guard(time, 1))
    keepalive.hear(StatusChanges((TieringStatus(table_id, path, state, 0, epoch),)))
    assert len(server.heartbeats) == asks


# D66
def test_news_of_tables_without_a_round_ask_for_nothing(time: Time, server: Server, keepalive: KeepAlive) -> None:
    ended, other = guard(time, 1), TablePath("db", "t2")
    news = StatusChanges((TieringStatus(2, other, TieringState.FAILED, 0, 9),), removed=(TablePath("db", "t3"),))
    keepalive.hear(news)
    keepalive.watch(ended)
    keepalive.hear(news)
    assert server.heartbeats == []
    keepalive.hear(StatusChanges(removed=(ended.claim.path,)))
    assert len(server.heartbeats) == 1
    keepalive.unwatch(ended)
    keepalive.hear(StatusChanges(removed=(ended.claim.path,)))
    assert len(server.heartbeats) == 1


def test_a_round_that_reports_its_end_is_not_stopped_by_news_of_it(  # D66
    time: Time, server: Server, keepalive: KeepAlive
) -> None:
    stopped: list[str] = []
    ended, other = guard(time, 1, lambda: stopped.append("ended")), guard(time, 2)
    for each in (ended, other):
        keepalive.watch(each)
    ended.reports_its_end = True
    keepalive.hear(StatusChanges((TieringStatus(1, ended.claim.path, TieringState.SCHEDULED, 0, 7),)))
    assert server.heartbeats == []
    server.fenced = {1: FENCED}
    keepalive.hear(StatusChanges((TieringStatus(2, other.claim.path, TieringState.FAILED, 0, 7),)))
    ((_, sent),) = server.heartbeats
    assert [each.table_id for each in sent] == [1, 2], "both are still alive for the server"
    assert stopped == []


def test_the_answer_to_a_heartbeat_decides_whether_a_round_has_ended(  # D66
    time: Time, server: Server, keepalive: KeepAlive
) -> None:
    stopped: list[str] = []
    ended, going = guard(time, 1, lambda: stopped.append("ended")), guard(time, 2, lambda: stopped.append("going"))
    for each in (ended, going):
        keepalive.watch(each)
    news = StatusChanges((TieringStatus(1, ended.claim.path, TieringState.FAILED, 0, 7),))
    server.faults = iter([AWAY])
    keepalive.hear(news)
    assert stopped == [], "the server did not answer"
    keepalive.hear(news)
    assert stopped == [], "the server says that both go on"
    server.fenced = {1: FENCED}
    keepalive.hear(news)
    assert stopped == ["ended"]
    assert ended.lost is FENCED
