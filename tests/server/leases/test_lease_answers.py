"""What callers and operators are told about leases: the values that calls return, the errors, and the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from manager_support import Managers
from structlog.testing import capture_logs

from engine_support import HOUR, MINUTE, VirtualClock
from fluss_tiering.model.clock import iso_time
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.core.leases import turns

B0, B1 = TableBucket(1, 0), TableBucket(1, 1)


def damage(managers: Managers, lease_id: str) -> None:
    """Make a lease one that cannot be loaded, and open the server again."""
    with managers.store._database.engine.begin() as connection:
        connection.exec_driver_sql(f"DELETE FROM leased_snapshots WHERE lease_id = '{lease_id}'")
    managers.restart()


def test_a_lease_says_since_when_it_exists_however_often_it_is_acquired(  # L1, L4
    managers: Managers, clock: VirtualClock
) -> None:
    began = clock.now_ms()
    assert managers.acquire("X", HOUR, {B0: 5}).lease_id == "X"
    managers.acquire("Y", HOUR, {B0: 5})
    clock.advance(MINUTE)
    acquired = managers.acquire("X", HOUR, {B1: 6})
    for _ in range(2):
        (lease,) = managers.leases.leases("X")
        assert (lease.acquired_time, lease.expiration_time) == (began, clock.now_ms() + HOUR)
        assert lease.attempt_token == acquired.attempt_token
        managers.restart()
    assert managers.leases.leases("unknown") == []


def test_a_lease_can_be_renewed_up_to_the_millisecond_of_its_end(managers: Managers, clock: VirtualClock) -> None:  # L5
    end = managers.acquire("X", HOUR, {B0: 5}).expiration_time
    clock.advance(HOUR)
    assert managers.leases.renew([("X", HOUR)]) == [clock.now_ms() + HOUR]
    clock.advance(HOUR + 1)
    (expired,) = managers.leases.renew([("X", HOUR)])
    assert isinstance(expired, FlussTieringError)
    assert expired.message.startswith(f"lease X expired at {iso_time(end + HOUR)}: ")


def test_one_lease_that_cannot_be_renewed_keeps_no_other_from_it(managers: Managers) -> None:  # L4, L5
    for lease_id in ("A", "damaged", "Z"):
        managers.acquire(lease_id, HOUR, {B0: 5})
    damage(managers, "damaged")
    asked = ["A", "damaged", "unknown", "Z"]
    first, damaged, unknown, last = managers.leases.renew((lease_id, 2 * HOUR) for lease_id in asked)
    assert first == last == managers.clock.now_ms() + 2 * HOUR
    assert isinstance(damaged, FlussTieringError)
    assert damaged.code is ErrorCode.CORRUPT_DATA
    assert damaged.message.startswith("lease damaged cannot be loaded")
    assert "fluss-tiering leases drop damaged" in damaged.message
    assert isinstance(unknown, FlussTieringError)
    assert unknown.message.startswith("lease unknown does not exist: ")


def test_many_leases_are_renewed_in_turns_and_answered_in_their_order(  # L4
    managers: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PINS_AT_ONCE", 2)
    for lease_id in ("A", "B", "D"):
        managers.acquire(lease_id, HOUR, {B0: 5})
    asked = [("A", HOUR), ("B", 2 * HOUR), ("unknown", HOUR), ("D", 3 * HOUR), ("A", 4 * HOUR)]
    calls: list[int] = []

    async def control(call: Callable[..., Any], durations_ms: Sequence[tuple[str, int]]) -> Any:
        calls.append(len(durations_ms))
        return call(durations_ms)

    answers = asyncio.run(turns.renew(control, managers.leases, asked))
    now = managers.clock.now_ms()
    assert calls == [2, 2, 1]
    assert isinstance(answers.pop(2), FlussTieringError)
    assert answers == [now + HOUR, now + 2 * HOUR, now + 3 * HOUR, now + 4 * HOUR]
    assert asyncio.run(turns.renew(control, managers.leases, [])) == []


def test_a_lease_that_cannot_be_loaded_is_in_the_log_when_the_server_starts(managers: Managers) -> None:  # L11
    managers.acquire("X", HOUR, {B0: 5})
    with capture_logs() as sound:
        managers.restart()
    assert sound == []
    with capture_logs() as damaged:
        damage(managers, "X")
    (entry,) = damaged
    assert entry["log_level"] == "error"
    assert entry["reason"] == managers.leases.collection_stopped_reason


def test_snapshots_that_do_not_exist_are_in_the_log(managers: Managers) -> None:  # L7
    with capture_logs() as log:
        managers.leases.acquire("X", HOUR, {B0: 5}, {B1: 4})
    (warning,) = (entry for entry in log if entry["log_level"] == "warning")
    assert (warning["lease_id"], warning["unavailable"]) == ("X", [f"snapshot 4 of {B1}"])
    (acquired,) = (entry for entry in log if entry["log_level"] == "info")
    assert (acquired["lease_id"], acquired["snapshots"]) == ("X", 1)


def test_a_lease_that_ends_by_itself_is_in_the_log(managers: Managers, clock: VirtualClock) -> None:  # L9
    end = managers.acquire("X", HOUR, {B0: 5}).expiration_time
    clock.advance(HOUR + 1)
    with capture_logs() as log:
        managers.leases.drop_expired()
    told = [(entry["log_level"], entry["lease_id"], entry.get("expiration_time")) for entry in log]
    assert told == [("warning", "X", end), ("info", "X", None)]
