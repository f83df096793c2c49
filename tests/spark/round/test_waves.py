"""A round with a time limit reads in waves, and every prefix of them can be committed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_rounds import Application, named

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket
from fluss_tiering.spark.round.plan import LogPiece, PlanLimits, RoundPlan, SnapshotPiece, plan_round
from fluss_tiering.spark.round.waves import after, time_limit_s, waves


def bucket(number: int) -> TableBucket:
    return TableBucket(7, number)


def plan_of(ends: list[int], *, size: int, limits: PlanLimits, key: bool, snapshot_at: int | None) -> RoundPlan:
    snapshots = {}
    if key and snapshot_at is not None:
        snapshots = {
            bucket(n): KvSnapshot(bucket(n), 3, min(snapshot_at, end), 1, 1000, "kv")
            for n, end in enumerate(ends)
            if end > 0
        }
    buckets = [BucketInfo(bucket(n), 0, end, size) for n, end in enumerate(ends)]
    return plan_round(has_primary_key=key, tiered={}, buckets=buckets, snapshots=snapshots, limits=limits)


# S26
@settings(deadline=None, max_examples=60)
@given(
    ends=st.lists(st.integers(0, 300), min_size=1, max_size=4),
    size=st.integers(0, 10**8),
    key=st.booleans(),
    snapshot_at=st.one_of(st.none(), st.integers(1, 300)),
    wave_bytes=st.integers(1, 10**8),
    parallelism=st.integers(1, 4),
)
def test_after_each_wave_every_bucket_is_read_up_to_the_offset_that_would_be_committed(
    ends, size, key, snapshot_at, wave_bytes, parallelism
):
    limits = PlanLimits(parallelism=parallelism, change_piece_bytes=10**6, wave_bytes=wave_bytes)
    plan = plan_of(ends, size=size, limits=limits, key=key, snapshot_at=snapshot_at)
    parts = list(waves(plan, limits))

    assert sorted(map(repr, plan.pieces)) == sorted(repr(piece) for part in parts for piece in part)
    assert not any(isinstance(piece, SnapshotPiece) for part in parts[1:] for piece in part)
    done = []
    for part in parts:
        done += part
        committed = after(plan, done)
        assert committed.complete == (len(done) == len(plan.pieces))
        for number in range(len(ends)):
            reached = plan.start_offsets.get(bucket(number), 0)
            for piece in (piece for piece in done if piece.bucket == bucket(number)):
                if not isinstance(piece, SnapshotPiece):
                    assert piece.start_offset == reached
                    reached = piece.end_offset
            assert committed.log_end_offsets.get(bucket(number), 0) == reached
    if parts:
        assert committed.log_end_offsets == plan.log_end_offsets


def test_all_buckets_reach_their_ends_together():
    def pieces_of(number: int, count: int) -> list[LogPiece]:
        return [LogPiece(bucket(number), at, at + 1, size_bytes=10) for at in range(count)]

    pieces = (*pieces_of(0, 2), *pieces_of(1, 6))
    plan = RoundPlan(pieces, {}, {bucket(0): 2, bucket(1): 6}, advances=True)

    parts = list(waves(plan, PlanLimits(parallelism=2, wave_bytes=10)))

    reached = [
        {piece.bucket.bucket: piece.end_offset for piece in part if isinstance(piece, LogPiece)} for part in parts
    ]
    assert reached == [{1: 2}, {0: 1, 1: 3}, {1: 5}, {0: 2, 1: 6}]
    assert [len(part) for part in parts] == [2, 2, 2, 2], "a wave is as large as it may be"


def test_the_plan_of_what_was_read_has_its_pieces_in_the_order_of_the_results():
    pieces = tuple(LogPiece(bucket(number), 0, 5) for number in range(3))
    plan = RoundPlan(pieces, {}, {bucket(number): 5 for number in range(3)}, advances=True)
    assert after(plan, pieces[::-1]).pieces == pieces[::-1]
    assert after(plan, pieces[::-1]).log_end_offsets == plan.log_end_offsets
    assert after(plan, [pieces[2]]).pieces == (pieces[2],)
    assert after(plan, [pieces[2]]).log_end_offsets == {bucket(2): 5}


def test_a_small_plan_is_one_wave():
    limits = PlanLimits(parallelism=2)

    assert len(list(waves(plan_of([100] * 8, size=1 << 20, limits=limits, key=False, snapshot_at=None), limits))) == 1


# S26
@pytest.mark.parametrize(
    ("properties", "option", "expected"),
    [
        ({}, None, None),
        ({"table.datalake.max-round-duration": "90s"}, None, 90),
        ({"table.datalake.max-round-duration": "90s"}, "2min", 120),
        ({}, "freshness", 180),
        ({"table.datalake.freshness": "10s"}, "freshness", 10),
    ],
)
def test_the_application_s_limit_counts_before_the_table_s(properties, option, expected):
    assert time_limit_s(properties, option) == expected


# S26
def test_a_table_whose_limit_is_no_duration_is_refused_when_it_is_made(application: Application):
    with pytest.raises(FlussTieringError, match=r"table.datalake.max-round-duration: 'soon'") as refused:
        application.table(properties={"table.datalake.max-round-duration": "soon"})
    assert refused.value.code is ErrorCode.INVALID_TABLE


SMALL = PlanLimits(append_piece_bytes=1, change_piece_bytes=200, wave_bytes=1)
"""Pieces and waves so small that a few rows need many of them."""


# S26
def test_a_round_within_its_time_reads_everything_in_its_waves(application: Application):
    table = application.table(key=False, num_buckets=2)
    for step in range(3):
        application.write(table, named(range(step * 10, step * 10 + 10), "row"))

    limited = application.tier(table, limits=SMALL, max_round_duration="1h")

    assert limited.complete
    assert len(application.jobs) > 1
    assert application.rows(table) == sorted(named(range(30), "row").items())
    assert len(application.lake.files_on_disk()) == limited.stats.files


def test_a_later_wave_that_fails_leaves_no_files_of_the_earlier_ones(application: Application):
    table = application.table(key=False, num_buckets=2)
    application.write(table, named(range(30), "row"))
    on_disk: list[set[str]] = []

    def second_fails(*_: object) -> None:
        on_disk.append(application.lake.files_on_disk())
        if len(on_disk) == 2:
            raise FlussTieringError(ErrorCode.STORAGE, "the lake is away")

    application.on_stage = second_fails
    assert application.fail(table, limits=SMALL, max_round_duration="1h") == "the lake is away"
    assert on_disk[1]
    assert application.lake.files_on_disk() == set()
    assert application.client.lake_snapshot(table.path) is None
