"""Acquires of so many snapshots that most are pinned before the acquire itself: what is there half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from manager_support import Managers

from engine_support import HOUR, MINUTE, VirtualClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import KvSnapshotLease, LeaseDrop
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.leases import turns

B0, B1, B2 = (TableBucket(1, number) for number in range(3))


def lease(managers: Managers, lease_id: str = "X") -> KvSnapshotLease:
    (found,) = managers.leases.leases(lease_id)
    return found


def test_what_is_pinned_ahead_is_on_the_disk_and_ends_with_its_duration(  # L1, L10, D5
    managers: Managers, clock: VirtualClock
) -> None:
    began = clock.now_ms()
    managers.leases.pin_ahead("X", HOUR, {B0: 5, B1: 6})
    clock.advance(MINUTE)
    for _ in range(2):
        assert lease(managers) == KvSnapshotLease("X", began, began + HOUR, 0, {B0: 5, B1: 6})
        assert managers.leases.protected() == {(B0, 5), (B1, 6)}
        managers.restart()
    clock.advance(HOUR)
    assert managers.leases.drop_expired() == ["X"]


def test_pinning_ahead_begins_no_attempt(managers: Managers) -> None:  # L22, D5
    token = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    managers.leases.drop("X", token)
    managers.leases.pin_ahead("X", HOUR, {B0: 6})
    assert lease(managers).attempt_token == token
    assert managers.attempts.require_current("X", None) == token


def test_pinning_ahead_leaves_what_the_lease_has_until_the_acquire(  # L2, L4, D5
    managers: Managers, clock: VirtualClock
) -> None:
    managers.acquire("X", HOUR, {B0: 5})
    before = lease(managers)
    clock.advance(MINUTE)
    managers.leases.pin_ahead("X", 5 * HOUR, {B0: 6, B1: 7})
    for _ in range(2):
        ahead = lease(managers)
        assert dict(ahead.snapshots) == {B0: 5, B1: 7}
        assert (ahead.acquired_time, ahead.expiration_time) == (before.acquired_time, before.expiration_time)
        managers.restart()
    managers.leases.pin_ahead("X", 5 * HOUR, {B0: 6, B1: 7})
    assert lease(managers) == ahead, "again changes nothing"
    managers.leases.acquire("X", 5 * HOUR, {B0: 6, B1: 7, B2: 8}, {})
    assert dict(lease(managers).snapshots) == {B0: 6, B1: 7, B2: 8}
    assert lease(managers).expiration_time == clock.now_ms() + 5 * HOUR


def test_what_cannot_be_acquired_is_not_pinned_ahead(managers: Managers) -> None:  # L20, D5
    managers.acquire("X", HOUR, {B0: 5})
    with pytest.raises(FlussTieringError, match="lease X mixes buckets") as refused:
        managers.leases.pin_ahead("X", HOUR, {TableBucket(1, 0, partition_id=3): 5})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    with managers.failing_disk(), pytest.raises(FlussTieringError):
        managers.leases.pin_ahead("X", HOUR, {B1: 5})
    assert managers.leases.protected() == {(B0, 5)}


@pytest.mark.parametrize(("snapshots", "calls"), [(0, []), (1, []), (2, []), (3, [2]), (4, [2]), (5, [2, 2])])
def test_the_acquire_itself_pins_what_one_call_may(  # D5
    managers: Managers, monkeypatch: pytest.MonkeyPatch, snapshots: int, calls: list[int]
) -> None:
    monkeypatch.setattr(turns, "PINS_AT_ONCE", 2)
    made: list[int] = []

    async def control(
        call: Callable[..., Any], lease_id: str, duration_ms: int, some: dict[TableBucket, int], attempt: None
    ) -> Any:
        assert (lease_id, duration_ms) == ("X", HOUR)
        made.append(len(some))
        assert attempt is None
        return call(lease_id, duration_ms, some)

    wanted = {TableBucket(1, number): number for number in range(snapshots)}
    asyncio.run(turns.pin_ahead(control, managers.leases, "X", HOUR, wanted))
    assert made == calls
    assert managers.leases.protected() == set(list(wanted.items())[: sum(calls)])


class Control:
    """Takes the place of the control thread, and keeps what it was asked to call."""

    def __init__(self, before: Callable[[int], object] = lambda _: None) -> None:
        self._before = before
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    async def __call__(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._before(len(self.calls))
        self.calls.append((call.__name__, arguments))
        return call(*arguments, **options)


@pytest.mark.parametrize("superseded_in_turn", [0, 1])
def test_a_stale_attempt_releases_nothing_in_any_turn(  # L22, D5
    managers: Managers, monkeypatch: pytest.MonkeyPatch, superseded_in_turn: int
) -> None:
    monkeypatch.setattr(turns, "PINS_AT_ONCE", 2)
    wanted = {TableBucket(1, number): number for number in range(5)}
    old = managers.acquire("X", HOUR, wanted).attempt_token

    def supersede(turn: int) -> None:
        if turn == superseded_in_turn:
            managers.acquire("X", HOUR, wanted)

    assert asyncio.run(turns.release(Control(supersede), managers.leases, "X", list(wanted), old)) is False
    assert managers.leases.protected() == set(wanted.items()), "the newer attempt has all of its pins"


@pytest.mark.parametrize(
    ("pins", "dropped"),
    [
        ([2, 2], [["0", "1"]]),
        ([2, 2, 2], [["0", "1"], ["2"]]),
        ([1, 4, 1], [["0"], ["1"], ["2"]]),
        ([3, 1, 4], [["0", "1"], ["2"]]),
        ([], [[]]),
    ],
)
def test_expired_leases_are_dropped_together_as_far_as_one_turn_allows(  # L9, D5
    managers: Managers, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, pins: list[int], dropped: list[list[str]]
) -> None:
    monkeypatch.setattr(turns, "PINS_AT_ONCE", 4)
    for lease_id, number in enumerate(pins):
        managers.acquire(str(lease_id), HOUR, {TableBucket(lease_id, each): 1 for each in range(number)})
    managers.acquire("lives", 2 * HOUR, {B0: 1})
    clock.advance(HOUR + 1)
    control = Control()
    asyncio.run(turns.drop_expired(control, managers.leases))
    assert [arguments[0] for name, arguments in control.calls if name == "drop_expired"] == dropped
    assert [each.lease_id for each in managers.leases.leases()] == ["lives"]


@pytest.mark.parametrize("pins", [1, 2, 3, 5])
def test_only_the_newest_attempt_drops_a_lease_however_many_pins_it_has(  # L22, D5
    managers: Managers, monkeypatch: pytest.MonkeyPatch, pins: int
) -> None:
    monkeypatch.setattr(turns, "PINS_AT_ONCE", 2)
    wanted = {TableBucket(1, number): number for number in range(pins)}
    old, new = (managers.acquire("X", HOUR, wanted).attempt_token for _ in range(2))
    assert asyncio.run(turns.drop(Control(), managers.leases, "X", old)) is LeaseDrop.STALE
    assert managers.leases.protected() == set(wanted.items())
    control = Control()
    assert asyncio.run(turns.drop(control, managers.leases, "X", new)) is LeaseDrop.DROPPED
    assert managers.leases.protected() == set()
    released = [name for name, _ in control.calls].count("release_some")
    assert released == 1 + (pins - 1) // 2, "each releases two, and the last one finds that the rest can be dropped"
    assert asyncio.run(turns.drop(Control(), managers.leases, "X", None)) is LeaseDrop.UNKNOWN


def test_old_attempts_are_forgotten_in_turns(  # L22, D5
    managers: Managers, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluss_tiering.server.leases.attempts._PRUNED_AT_ONCE", 2)
    for lease_id in ("A", "B", "C"):
        managers.acquire(lease_id, HOUR, {})
    clock.advance(8 * 24 * HOUR)

    def known() -> int:
        return sum(managers.attempts.newest(lease_id) is not None for lease_id in ("A", "B", "C"))

    assert managers.leases.prune_attempts()
    assert known() == 1
    while managers.leases.prune_attempts():
        """More are left."""
    assert known() == 0
