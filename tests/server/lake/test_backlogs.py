"""Backlogs, counted while tables are written and tiered, against a plain model that sums all buckets (D27)."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine_support import MINUTE, VirtualClock
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import BucketInfo, TableBucket
from fluss_tiering.server.core.lake.backlogs import Backlog, Backlogs

TABLE = 7


class Model:
    """A table: where its logs end, and the newest lake snapshot."""

    def __init__(self, clock: VirtualClock) -> None:
        self.ends: dict[TableBucket, int] = {}
        self.snapshot: LakeSnapshot | None = None
        self.backlogs = Backlogs(clock, lambda _: self.snapshot)

    def infos(self) -> list[BucketInfo]:
        return [BucketInfo(bucket, 0, end, end) for bucket, end in self.ends.items()]

    def write(self, bucket: TableBucket, records: int) -> None:
        self.ends[bucket] = self.ends.get(bucket, 0) + records
        self.backlogs.written({bucket: self.ends[bucket]})

    def tier(self, offsets: dict[TableBucket, int]) -> None:
        before = {} if self.snapshot is None else self.snapshot.log_end_offsets
        self.snapshot = LakeSnapshot(TABLE, 1, {**before, **offsets})
        self.backlogs.tiered(TABLE, offsets)

    def drop(self, partition_id: int) -> None:
        self.ends = {bucket: end for bucket, end in self.ends.items() if bucket.partition_id != partition_id}
        self.backlogs.partition_dropped(TABLE, partition_id)

    def waiting(self) -> int:
        tiered = {} if self.snapshot is None else self.snapshot.log_end_offsets
        return sum(max(0, end - tiered.get(bucket, 0)) for bucket, end in self.ends.items())

    def counted(self) -> Backlog:
        backlog = self.backlogs.of(TABLE)
        assert backlog is not None
        return backlog


@pytest.fixture
def model(clock: VirtualClock) -> Model:
    return Model(clock)


@pytest.mark.parametrize("seed", range(20))
def test_any_history_is_counted_as_the_model_sums_it(clock: VirtualClock, seed: int) -> None:  # D27
    chance, model = random.Random(seed), Model(clock)
    counted = seed % 2 == 0
    if counted:
        model.backlogs.created(TABLE)
    else:
        model.ends = {TableBucket(TABLE, number, 0): chance.randrange(5) for number in range(3)}
        model.backlogs.follow([TABLE])
    for step in range(300):
        clock.advance(chance.randrange(1000))
        match chance.randrange(8):
            case 0 if model.ends:
                some = chance.sample(list(model.ends), chance.randrange(1, len(model.ends) + 1))
                before = {} if model.snapshot is None else model.snapshot.log_end_offsets
                model.tier({each: chance.randint(before.get(each, 0), model.ends[each]) for each in some})
            case 1 if chance.random() < 0.2:
                model.drop(step // 40)
            case 2:
                # The look at the buckets is an old one, and a write comes in between.
                infos = model.infos()
                model.write(TableBucket(TABLE, 0, step // 40 + 1), 1)
                model.backlogs.count(TABLE, infos)
                counted = True
            case _:
                model.write(TableBucket(TABLE, chance.randrange(3), step // 40 + 1), chance.randrange(1, 5))
        if counted:
            assert model.counted().records == model.waiting()
            assert model.backlogs.may_wait(TABLE) is (model.waiting() > 0)
        else:
            assert model.backlogs.of(TABLE) is None


def test_nothing_is_known_of_a_table_before_it_was_counted(model: Model) -> None:  # D27
    bucket = TableBucket(TABLE, 0)
    assert model.backlogs.may_wait(TABLE), "a table that nobody follows"
    model.ends[bucket] = 3
    model.backlogs.follow([TABLE])
    assert not model.backlogs.may_wait(TABLE)
    model.write(bucket, 2)
    assert model.backlogs.may_wait(TABLE), "what is written now is not in the lake"
    assert model.backlogs.of(TABLE) is None
    model.backlogs.count(TABLE, model.infos())
    assert model.counted() == Backlog(5, None)
    model.backlogs.forget(TABLE)
    model.write(bucket, 1)
    assert model.backlogs.of(TABLE) is None


def test_a_table_that_cannot_be_counted_may_have_a_backlog(model: Model) -> None:  # D27
    model.backlogs.follow([TABLE])
    model.backlogs.cannot_count(TABLE)
    assert model.backlogs.may_wait(TABLE)
    model.backlogs.count(TABLE, [])
    assert not model.backlogs.may_wait(TABLE)
    model.backlogs.cannot_count(TABLE)
    assert not model.backlogs.may_wait(TABLE), "what was counted is still known"


def test_the_oldest_record_is_that_of_the_first_write_that_is_not_tiered(clock: VirtualClock, model: Model) -> None:
    bucket, times = TableBucket(TABLE, 0), []  # D27
    model.backlogs.created(TABLE)
    assert model.counted() == Backlog(0, None)
    for _ in range(4):
        clock.advance(MINUTE)
        times.append(clock.now_ms())
        model.write(bucket, 10)
    for tiered, oldest in ((0, 0), (9, 0), (10, 1), (25, 2), (39, 3)):
        model.tier({bucket: tiered})
        assert model.counted() == Backlog(40 - tiered, times[oldest])
    model.tier({bucket: 40})
    assert model.counted() == Backlog(0, None)
    clock.advance(MINUTE)
    model.write(bucket, 1)
    assert model.counted() == Backlog(1, clock.now_ms())


def test_after_very_many_writes_the_oldest_record_looks_no_younger_and_hardly_older(
    clock: VirtualClock, model: Model
) -> None:  # D27
    bucket, times = TableBucket(TABLE, 0), []
    model.backlogs.created(TABLE)
    for _ in range(10_000):
        clock.advance(1000)
        times.append(clock.now_ms())
        model.write(bucket, 1)
    for tiered in (0, 5000, 9999):
        model.tier({bucket: tiered})
        since = model.counted().since
        assert since is not None
        assert 0 <= times[tiered] - since <= (times[-1] - times[0]) / 16


def test_a_table_of_a_cluster_is_counted_anew(clock: VirtualClock, model: Model) -> None:  # D27
    first, second = TableBucket(TABLE, 0, 1), TableBucket(TABLE, 0, 2)
    model.ends = {first: 5, second: 3}
    model.backlogs.replace(TABLE, model.infos())
    assert model.counted() == Backlog(8, None)
    model.tier({first: 5, second: 3})
    clock.advance(MINUTE)
    model.ends[second] = 7
    model.backlogs.replace(TABLE, model.infos())
    assert model.counted() == Backlog(4, clock.now_ms())
    # A log without replicas lost its end, and a partition was dropped.
    model.ends = {first: 2}
    model.backlogs.replace(TABLE, model.infos())
    assert model.counted() == Backlog(0, None)


def test_a_write_that_is_noted_after_its_partition_was_dropped_does_not_count(model: Model) -> None:  # D27
    dropped, kept = TableBucket(TABLE, 0, 1), TableBucket(TABLE, 0, 2)
    model.backlogs.created(TABLE)
    model.write(dropped, 3)
    model.write(kept, 2)
    model.drop(1)
    model.backlogs.written({dropped: 5})
    model.backlogs.count(TABLE, [BucketInfo(dropped, 0, 6, 6), *model.infos()])
    assert model.counted().records == 2


def test_records_of_dropped_partitions_that_are_not_in_the_lake_are_lost(model: Model) -> None:  # E6
    backlogs, dropped, vanished, kept = model.backlogs, *(TableBucket(TABLE, 0, each) for each in (1, 2, 3))
    backlogs.created(TABLE)
    for bucket in (dropped, vanished, kept):
        model.write(bucket, 10)
    model.tier({dropped: 4, vanished: 10})
    assert backlogs.losing() == []
    model.drop(1)
    model.ends.pop(vanished)
    backlogs.replace(TABLE, model.infos())
    assert backlogs.losing() == [TABLE]
    assert backlogs.lost(TABLE) == {dropped: 6}, "all of the other one is in the lake"
    assert backlogs.untiered(TABLE) == 16

    # A look at the cluster from before the drop, and a round that read the partition before.
    model.backlogs.replace(TABLE, [*model.infos(), BucketInfo(dropped, 0, 10, 10)])
    model.backlogs.replace(TABLE, model.infos())
    model.tier({dropped: 9, kept: 10})
    assert backlogs.lost(TABLE) == {dropped: 1}
    backlogs.forget_lost(TABLE, [dropped])
    assert backlogs.losing() == []
    assert backlogs.lost(TABLE) == {}


def test_changed_tables_are_told_once(model: Model) -> None:  # D27
    assert model.backlogs.take_changed() == set()
    model.backlogs.created(TABLE)
    model.write(TableBucket(TABLE, 0), 1)
    assert model.backlogs.take_changed() == {TABLE}
    assert model.backlogs.take_changed() == set()


def test_a_commit_that_was_not_counted_is_found(model: Model) -> None:  # D27
    bucket = TableBucket(TABLE, 0)
    assert not model.backlogs.is_current(TABLE)
    model.backlogs.created(TABLE)
    model.write(bucket, 1)
    assert model.backlogs.is_current(TABLE)
    model.snapshot = LakeSnapshot(TABLE, 1, {bucket: 1})
    assert not model.backlogs.is_current(TABLE)
    model.backlogs.count(TABLE, model.infos())
    assert model.backlogs.is_current(TABLE)
    assert model.counted().records == 0


def test_writes_from_many_threads_are_all_counted(model: Model) -> None:  # D27
    model.backlogs.created(TABLE)

    def write(number: int) -> None:
        bucket = TableBucket(TABLE, number)
        for end in range(1, 2001):
            model.backlogs.written({bucket: end})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert model.counted().records == 8000
