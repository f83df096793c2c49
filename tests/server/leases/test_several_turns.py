"""Changes of so many pins that they take several turns: what is there half-way, and what comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from manager_support import Managers
from refusals import refused

from engine_support import HOUR, MINUTE, VirtualClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import AcquiredLease, KvSnapshotLease, LeaseDrop
from fluss_tiering.server.core.leases import turns
from fluss_tiering.server.core.leases.checks import LeaseLimits
from fluss_tiering.server.core.leases.manager import KvSnapshotLeaseManager

B0, B1, B2 = (TableBucket(1, number) for number in range(3))


def lease(managers: Managers, lease_id: str = "X") -> KvSnapshotLease:
    (found,) = managers.leases.leases(lease_id)
    return found


def acquire(
    control: Callable[..., Any], managers: Managers, snapshots: dict[TableBucket, int], duration_ms: int = HOUR
) -> AcquiredLease:
    """Acquire lease X as a server does, some snapshots in each turn."""

    def begin(first: Mapping[TableBucket, int]) -> AcquiredLease:
        return managers.leases.acquire("X", duration_ms, first, {})

    return asyncio.run(turns.acquire(control, begin, managers.leases.pin_rest, snapshots))


@pytest.mark.parametrize(
    ("snapshots", "calls"),
    [
        (0, ["begin"]),
        (1, ["begin"]),
        (2, ["begin"]),
        (3, ["begin", "pin_rest"]),
        (5, ["begin", "pin_rest", "pin_rest"]),
    ],
)
def test_an_acquire_takes_as_many_turns_as_it_needs(  # D5
    managers: Managers, monkeypatch: pytest.MonkeyPatch, snapshots: int, calls: list[str]
) -> None:
    monkeypatch.setattr(turns, "PINS_AT_ONCE", 2)
    control = Control()
    wanted = {TableBucket(1, number): number for number in range(snapshots)}
    acquired = acquire(control, managers, wanted)
    assert [name for name, _ in control.calls] == calls
    assert all(len(arguments[-1]) <= 2 for _, arguments in control.calls)
    assert (acquired.lease_id, acquired.attempt_token) == ("X", 1)
    managers.restart()
    assert set(managers.leases.pins) == set(wanted.items())


def test_each_turn_of_an_acquire_replaces_and_adds_pins(  # L2, L4, L10, D5
    managers: Managers, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PINS_AT_ONCE", 1)
    began = clock.now_ms()
    old = managers.acquire("X", HOUR, {B0: 5, B1: 6, B2: 7, TableBucket(1, 3): 8}).attempt_token
    clock.advance(MINUTE)
    halfway: list[KvSnapshotLease] = []

    def look(turn: int) -> None:
        managers.restart()
        halfway.append(lease(managers))
        assert managers.attempts.is_stale("X", old) is (turn > 0), "its pins go only after it was superseded"

    control = Control(look)

    def begin(first: Mapping[TableBucket, int]) -> AcquiredLease:
        return managers.leases.acquire("X", 5 * HOUR, first, {})

    def pin_rest(*arguments: Any) -> None:
        managers.leases.pin_rest(*arguments)

    wanted = {B0: 15, B1: 6, B2: 17}
    acquired = asyncio.run(turns.acquire(control, begin, pin_rest, wanted))
    assert [[each.snapshots[bucket] for bucket in wanted] for each in halfway] == [[5, 6, 7], [15, 6, 7], [15, 6, 7]]
    assert lease(managers) == KvSnapshotLease(
        "X", began, clock.now_ms() + 5 * HOUR, acquired.attempt_token, {**wanted, TableBucket(1, 3): 8}
    )
    assert set(managers.leases.pins) == {(B0, 15), (B1, 6), (B2, 17), (TableBucket(1, 3), 8)}


@pytest.mark.parametrize(
    ("beside", "code", "said"),
    [
        (lambda managers: managers.acquire("X", HOUR, {B0: 9}), ErrorCode.STALE_ATTEMPT, "attempt 1 of lease X was"),
        (
            lambda managers: managers.tiering.cancel("X", None, "no"),
            ErrorCode.STALE_ATTEMPT,
            "attempt 1 of lease X was",
        ),
        (
            lambda managers: managers.leases.drop("X", None),
            ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST,
            "lease X does not exist",
        ),
        (
            lambda managers: managers.clock.advance(HOUR + 1),
            ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST,
            "lease X expired at",
        ),
    ],
    ids=["superseded", "cancelled", "dropped", "expired"],
)
def test_an_acquire_that_is_overtaken_pins_nothing_more_and_says_so(  # L22, D5
    managers: Managers,
    monkeypatch: pytest.MonkeyPatch,
    beside: Callable[[Managers], object],
    code: ErrorCode,
    said: str,
) -> None:
    monkeypatch.setattr(turns, "PINS_AT_ONCE", 2)
    kept: list[object] = []

    def come_between(turn: int) -> None:
        if turn == 1:
            beside(managers)
            kept.append(managers.leases.leases())

    with pytest.raises(FlussTieringError) as refused:
        acquire(Control(come_between), managers, {TableBucket(1, number): 5 for number in range(5)})
    assert refused.value.code is code
    assert refused.value.message.startswith(said)
    assert managers.leases.leases() == kept[0]


# L9, D5
def test_an_acquire_of_the_last_moment_is_still_the_leases_own(managers: Managers, clock: VirtualClock) -> None:
    token = managers.acquire("X", HOUR, {B0: 5}).attempt_token
    clock.advance(HOUR)
    managers.leases.pin_rest("X", token, {B1: 6})
    assert set(managers.leases.pins) == {(B0, 5), (B1, 6)}


def test_what_cannot_be_acquired_is_not_pinned_by_a_later_turn(managers: Managers) -> None:  # L20, L10, D5, D8
    limits = LeaseLimits(snapshots=2)
    leases = KvSnapshotLeaseManager(managers.clock, managers.store, managers.attempts, limits)
    token = leases.acquire("X", HOUR, {B0: 5}, {}).attempt_token
    with refused(ErrorCode.INVALID_REQUEST, "lease X mixes buckets"):
        leases.pin_rest("X", token, {TableBucket(1, 0, partition_id=3): 5})
    with refused(ErrorCode.LIMIT_EXCEEDED):
        leases.pin_rest("X", token, {B1: 5, B2: 5})
    with managers.failing_disk():
        leases.pin_rest("X", token, {B0: 5})  # nothing is new, so that nothing is written
        with pytest.raises(FlussTieringError):
            leases.pin_rest("X", token, {B1: 5})
    assert set(leases.pins) == {(B0, 5)}


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
    assert set(managers.leases.pins) == set(wanted.items()), "the newer attempt has all of its pins"


@pytest.mark.parametrize(
    ("pins", "dropped"),
    [
        ([2, 2], [["0", "1"]]),
        ([2, 2, 2], [["0", "1"], ["2"]]),
        ([1, 4, 1], [["0"], ["1"], ["2"]]),
        ([3, 1, 4], [["0", "1"], ["2"]]),
        ([4, 3, 1], [["0"], ["1", "2"]]),
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
    assert "release_some" not in [name for name, _ in control.calls], "none has too many pins for one turn"
    assert [each.lease_id for each in managers.leases.leases()] == ["lives"]


@pytest.mark.parametrize("pins", [1, 2, 3, 5])
def test_only_the_newest_attempt_drops_a_lease_however_many_pins_it_has(  # L22, D5
    managers: Managers, monkeypatch: pytest.MonkeyPatch, pins: int
) -> None:
    monkeypatch.setattr(turns, "PINS_AT_ONCE", 2)
    wanted = {TableBucket(1, number): number for number in range(pins)}
    old, new = (managers.acquire("X", HOUR, wanted).attempt_token for _ in range(2))
    assert asyncio.run(turns.drop(Control(), managers.leases, "X", old)) is LeaseDrop.STALE
    assert set(managers.leases.pins) == set(wanted.items())
    control = Control()
    assert asyncio.run(turns.drop(control, managers.leases, "X", new)) is LeaseDrop.DROPPED
    assert set(managers.leases.pins) == set()
    released = [name for name, _ in control.calls].count("release_some")
    assert released == 1 + (pins - 1) // 2, "each releases two, and the last one finds that the rest can be dropped"
    assert asyncio.run(turns.drop(Control(), managers.leases, "X", None)) is LeaseDrop.UNKNOWN


def test_old_attempts_are_forgotten_in_turns(  # L22, D5
    managers: Managers, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluss_tiering.server.core.leases.attempts._PRUNED_AT_ONCE", 2)
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
