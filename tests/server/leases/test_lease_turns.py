"""Leases with many pins: each call does work for what it changes, and lets others come in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from manager_support import Managers, Turns, rows_written

from engine_support import HOUR, VirtualClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import AcquiredLease, LeaseDrop
from fluss_tiering.server.core.leases import turns
from fluss_tiering.server.core.leases.checks import LeaseLimits
from fluss_tiering.server.core.leases.manager import PINS_AT_ONCE, KvSnapshotLeaseManager
from fluss_tiering.server.core.store.records import LeaseAttempt

MANY = {TableBucket(number // 16, number % 16): number for number in range(3 * PINS_AT_ONCE + 1)}
FEW = {TableBucket(1, number): 7 for number in range(3)}


def pinned(managers: Managers, lease_id: str = "X") -> dict[TableBucket, int]:
    return {bucket: id_ for lease in managers.leases.leases(lease_id) for bucket, id_ in lease.snapshots.items()}


@pytest.mark.parametrize("pins", [10, 2 * len(MANY) // 3])
def test_a_change_of_few_pins_writes_few_rows_however_many_there_are(managers: Managers, pins: int) -> None:  # D5
    managers.acquire("X", HOUR, dict(list(MANY.items())[:pins]))
    changes: list[Callable[[], object]] = [
        lambda: managers.leases.release("X", [TableBucket(0, 3)], None),
        lambda: managers.leases.release("X", [TableBucket(0, 3), TableBucket(77, 99)], None),
        lambda: managers.leases.renew([("X", 2 * HOUR)]),
        lambda: managers.acquire("X", HOUR, {TableBucket(0, 5): 12345}),
        lambda: managers.acquire("X", HOUR, {}),
    ]
    for change in changes:
        with rows_written(managers) as rows:
            change()
        assert rows["rows"] <= 5
    before = pinned(managers)
    assert before[TableBucket(0, 5)] == 12345
    managers.restart()
    assert pinned(managers) == before


def test_many_pins_are_changed_in_turns(managers: Managers, clock: VirtualClock) -> None:  # D5
    leases = managers.leases

    def run(steps: Any) -> tuple[Any, list[int]]:
        return asyncio.run(steps), control.rows

    def begin(first: Mapping[TableBucket, int]) -> AcquiredLease:
        return leases.acquire("X", HOUR, first, {})

    changed = {bucket: id_ + 1 for bucket, id_ in MANY.items()}
    for wanted in (MANY, changed):
        control = Turns(managers)
        acquired, rows_of_turns = run(turns.acquire(control, begin, leases.pin_rest, wanted))
        token = acquired.attempt_token
        assert len(rows_of_turns) == 4
        assert max(rows_of_turns) <= PINS_AT_ONCE + 5
        assert pinned(managers) == wanted

    control = Turns(managers)
    released, rows_of_turns = run(turns.release(control, leases, "X", list(MANY)[:-3], token))
    assert released
    assert len(rows_of_turns) >= 3
    assert max(rows_of_turns) <= PINS_AT_ONCE + 5
    assert pinned(managers) == dict(list(changed.items())[-3:])

    managers.acquire("X", HOUR, MANY)
    control = Turns(managers)
    dropped, rows_of_turns = run(turns.drop(control, leases, "X", None))
    assert dropped is LeaseDrop.DROPPED
    assert max(rows_of_turns) <= PINS_AT_ONCE + 5
    assert not set(managers.leases.pins)

    for number in range(3):
        managers.acquire(f"expires {number}", HOUR, MANY if number == 1 else FEW)
    managers.acquire("stays", 3 * HOUR, FEW)
    clock.advance(2 * HOUR)
    control = Turns(managers)
    _, rows_of_turns = run(turns.drop_expired(control, leases))
    assert max(rows_of_turns) <= PINS_AT_ONCE + 20
    assert [lease.lease_id for lease in leases.leases()] == ["stays"]
    managers.restart()
    assert [lease.lease_id for lease in managers.leases.leases()] == ["stays"]


def test_a_lease_on_a_cluster_is_recorded_in_turns(managers: Managers) -> None:  # D5
    leases = managers.leases
    tokens = []
    for wanted in (MANY, {bucket: id_ + 1 for bucket, id_ in MANY.items()}):
        control = Turns(managers)
        attempt, _ = leases.reserve("X", wanted)

        def begin(first: Mapping[TableBucket, int], attempt: LeaseAttempt = attempt) -> AcquiredLease:
            return leases.acquire("X", HOUR, first, {}, attempt)

        acquired = asyncio.run(turns.acquire(control, begin, leases.pin_rest, wanted))
        assert len(control.rows) == 4
        assert max(control.rows) <= PINS_AT_ONCE + 5
        # The cluster knows a lease by its attempt, so the record has the new one from the first turn on.
        (lease,) = leases.leases("X")
        assert lease.attempt_token == acquired.attempt_token == attempt.attempt_token
        assert lease.snapshots == wanted
        tokens.append(attempt.attempt_token)
    assert tokens == sorted(tokens)


@pytest.mark.parametrize("way", ["drop", "expire"])
def test_a_newer_attempt_keeps_its_pins_while_the_lease_is_dropped(  # D5, L22
    managers: Managers, clock: VirtualClock, way: str
) -> None:
    token = managers.acquire("X", HOUR, MANY).attempt_token
    newer = dict(list(MANY.items())[-5:])
    begun: list[int] = []

    def begin_once() -> None:
        if not begun:
            begun.append(0)
            begun.append(managers.acquire("X", 9 * HOUR, newer).attempt_token)

    control = Turns(managers, begin_once)
    if way == "drop":
        assert asyncio.run(turns.drop(control, managers.leases, "X", token)) is LeaseDrop.STALE
    else:
        clock.advance(2 * HOUR)
        asyncio.run(turns.drop_expired(control, managers.leases))
    assert pinned(managers).items() >= newer.items()
    (lease,) = managers.leases.leases("X")
    assert lease.attempt_token == begun[1]


# Limits


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (LeaseLimits(leases=2), "3 leases, and kv-snapshot-lease-max allows 2;"),
        (LeaseLimits(snapshots=4), "5 pinned KV snapshots, and kv-snapshot-lease-max-snapshots allows 4;"),
        (LeaseLimits(lease_ids=2), "3 lease ids, and kv-snapshot-lease-max-ids allows 2;"),
    ],
)
def test_a_server_keeps_no_more_than_its_limits(managers: Managers, limits: LeaseLimits, named: str) -> None:  # D8
    leases = KvSnapshotLeaseManager(managers.clock, managers.store, managers.attempts, limits)
    one = {TableBucket(1, 0): 7}
    for lease_id in ("a", "b"):
        leases.acquire(lease_id, HOUR, {**one, TableBucket(1, 1): 7}, {})
    before = leases.leases()
    with pytest.raises(FlussTieringError) as refused:
        leases.acquire("c", HOUR, one, {})
    assert refused.value.code is ErrorCode.LIMIT_EXCEEDED
    assert refused.value.message.startswith(f"lease c would be more than the server keeps: {named}")
    assert leases.leases() == before
    # Who is inside goes on: with its next attempt, and with fewer or as many pins.
    leases.acquire("a", HOUR, one, {})
    leases.drop("b", None)
    if limits.lease_ids > 2:
        leases.acquire("c", HOUR, one, {})
