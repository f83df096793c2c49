"""Random calls on leases, compared after each call with a plain model, and lists, limits and pins one by one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from manager_support import Managers

from engine_support import HOUR, MINUTE, VirtualClock
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.core.leases.book import PinnedSnapshots

B0, B1, OTHER = TableBucket(1, 0), TableBucket(1, 1), TableBucket(2, 0, partition_id=5)
LEASES = ("A", "B", "C", "D")


@dataclass
class Model:
    """What leases pin and when they end, kept in the simplest way."""

    now: int
    pins: dict[str, dict[TableBucket, int]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)

    def acquire(self, lease_id: str, duration: int, snapshots: dict[TableBucket, int]) -> None:
        pinned = {**self.pins.get(lease_id, {}), **snapshots}
        if pinned:
            self.pins[lease_id], self.ends[lease_id] = pinned, self.now + duration

    def release(self, lease_id: str, buckets: list[TableBucket]) -> None:
        left = {bucket: id_ for bucket, id_ in self.pins.get(lease_id, {}).items() if bucket not in buckets}
        self.pins[lease_id] = left
        self.tidy()

    def tidy(self) -> None:
        self.pins = {lease_id: pinned for lease_id, pinned in self.pins.items() if pinned}
        self.ends = {lease_id: self.ends[lease_id] for lease_id in self.pins}


def compare(managers: Managers, model: Model) -> None:
    leases = managers.leases.leases()
    assert {each.lease_id: dict(each.snapshots) for each in leases} == model.pins
    assert {each.lease_id: each.expiration_time for each in leases} == model.ends
    assert [each.lease_id for each in leases] == sorted(model.pins)
    every = [(bucket, id_) for pinned in model.pins.values() for bucket, id_ in pinned.items()]
    assert set(managers.leases.pins) == set(every)
    assert managers.leases.leased_snapshot_count == len(managers.leases.pins) == len(every)
    assert managers.leases.lease_count == len(model.pins)
    assert set(managers.leases.pins.table_ids) == {bucket.table_id for bucket, _ in every}


@pytest.mark.parametrize("seed", range(3))
def test_leases_do_what_a_simple_model_does(managers: Managers, clock: VirtualClock, seed: int) -> None:
    # L1, L2, L3, L4, L5, L8, L9, L11, S24
    chance = random.Random(seed)
    model = Model(clock.now_ms())
    buckets = [TableBucket(table_id, number) for table_id in (1, 2, 3) for number in range(3)]
    for _ in range(60):
        lease_id, some = chance.choice(LEASES), chance.sample(buckets, chance.randrange(0, 5))
        duration = chance.randrange(1, 5) * MINUTE
        match chance.choice(["acquire", "acquire", "release", "drop", "renew", "table", "expire", "restart"]):
            case "acquire":
                snapshots = {bucket: chance.randrange(4) for bucket in some}
                managers.leases.acquire(lease_id, duration, snapshots, {})
                model.acquire(lease_id, duration, snapshots)
            case "release":
                assert managers.leases.release(lease_id, some, None)
                model.release(lease_id, some)
            case "drop":
                managers.leases.drop(lease_id, None)
                model.pins.pop(lease_id, None)
                model.tidy()
            case "renew":
                (answer,) = managers.leases.renew([(lease_id, duration)])
                if model.ends.get(lease_id, -1) >= model.now:
                    assert answer == model.now + duration
                    model.ends[lease_id] = model.now + duration
                else:
                    assert isinstance(answer, FlussTieringError)
            case "table":
                dropped = chance.randrange(1, 4)
                managers.leases.release_tables(frozenset({dropped}))
                for each in list(model.pins):
                    model.release(each, [bucket for bucket in buckets if bucket.table_id == dropped])
            case "expire":
                clock.advance(chance.randrange(3) * MINUTE)
                model.now = clock.now_ms()
                ended = sorted(each for each, end in model.ends.items() if end < model.now)
                assert sorted(managers.leases.drop_expired()) == ended
                for each in ended:
                    del model.pins[each]
                model.tidy()
            case "restart":
                managers.restart()
        compare(managers, model)


def test_leases_come_in_pages(managers: Managers) -> None:  # L1
    for lease_id in ("b", "a", "d", "c"):
        managers.acquire(lease_id, HOUR, {B0: 1, B1: 1})

    def page(after: str, max_leases: int, max_snapshots: int) -> list[str]:
        return [each.lease_id for each in managers.leases.page(after, max_leases, max_snapshots)]

    assert page("", 10, 1000) == ["a", "b", "c", "d"]
    assert page("", 2, 1000) == ["a", "b"]
    assert page("b", 2, 1000) == ["c", "d"]
    assert page("d", 2, 1000) == []
    assert page("", 10, 1) == ["a"], "one at least, even if it has more"
    assert page("", 10, 2) == ["a"]
    assert page("", 10, 3) == ["a", "b"]


def test_the_time_that_is_left_is_never_below_none(managers: Managers, clock: VirtualClock) -> None:  # L9
    managers.acquire("X", HOUR, {B0: 1})
    (lease,) = managers.leases.leases()
    assert managers.leases.left_ms(lease) == HOUR
    clock.advance(HOUR - 1)
    assert managers.leases.left_ms(lease) == 1
    clock.advance(HOUR)
    assert managers.leases.left_ms(lease) == 0


def test_what_a_caller_gets_of_a_lease_does_not_change_with_it(managers: Managers) -> None:  # L21
    managers.acquire("X", HOUR, {B0: 1})
    (before,) = managers.leases.leases("X")
    present = managers.leases.present("X")
    managers.acquire("X", HOUR, {B1: 2})
    assert present is not None
    assert dict(before.snapshots) == dict(present.snapshots) == {B0: 1}


# Pins


def test_a_snapshot_is_free_when_nobody_pins_or_is_about_to() -> None:  # L3
    pins = PinnedSnapshots()
    pins.add("X", {B0: 1})
    pins.add("Y", {B0: 1})
    held = {B0: 2, B1: 1}
    assert pins.hold(held) == held
    assert pins.hold({B0: 2}) == {B0: 2}, "two acquires at once"
    assert pins.claim_for_collection([(B0, 1), (B0, 2), (B1, 1), (B0, 3)]) == [(B0, 3)]
    pins.let_go({B0: 2})
    assert pins.claim_for_collection([(B0, 2)]) == []
    pins.let_go(held)
    pins.remove("X", {B0: 1})
    assert pins.claim_for_collection([(B0, 1), (B0, 2)]) == [(B0, 2)]
    pins.remove("Y", {B0: 1})
    assert pins.claim_for_collection([(B0, 1)]) == [(B0, 1)]
    assert pins.hold({B0: 1, B1: 7}) == {B1: 7}, "it is being collected"
    pins.collected([(B0, 1)])
    assert pins.hold({B0: 1}) == {B0: 1}


def test_pins_are_found_by_table() -> None:  # L24
    pins = PinnedSnapshots()
    pins.add("X", {B0: 1, B1: 1, OTHER: 1})
    pins.add("Y", {B0: 2})
    assert pins.of_table(1) == {"X": {B0, B1}, "Y": {B0}}
    assert pins.of_table(9) == {}
    assert (pins.any_of(2, "X"), pins.any_of(2, "Y"), pins.any_of(9, "X")) == (OTHER, None, None)
    assert len(pins) == 4
    pins.remove("X", {B0: 1, B1: 1})
    assert pins.of_table(1) == {"Y": {B0}}
    pins.remove("Y", {B0: 2})
    assert set(pins.table_ids) == {2}
    assert set(pins) == {(OTHER, 1)}
