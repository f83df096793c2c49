"""A round with a time limit reads in waves, and every prefix of them can be committed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_support import Tiering, named, replace_stage

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import application
from fluss_tiering.spark.round.plan import LogPiece, PlanLimits, RoundPlan, SnapshotPiece, plan_round
from fluss_tiering.spark.round.stage import run_stage
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
def test_a_table_whose_limit_is_no_duration_is_refused_when_it_is_made(tiering: Tiering):
    with pytest.raises(FlussTieringError, match=r"table.datalake.max-round-duration: 'soon'") as refused:
        tiering.table(properties={"table.datalake.max-round-duration": "soon"})
    assert refused.value.code is ErrorCode.INVALID_TABLE


@pytest.fixture
def small_waves(monkeypatch):
    """Make pieces and waves so small that a few rows need many of them."""
    monkeypatch.setattr(
        application,
        "PlanLimits",
        lambda **given: PlanLimits(**given, append_piece_bytes=1, change_piece_bytes=200, wave_bytes=1),
    )


# S26
@pytest.mark.usefixtures("small_waves")
def test_what_is_read_when_the_time_is_over_is_committed_and_the_rest_is_due_at_once(tiering: Tiering):
    table = tiering.table(num_buckets=2, freshness="1d", properties={"table.datalake.max-round-duration": "1ms"})
    expected = {}
    for step in range(3):
        tiering.write(table, named(range(step, step + 20), f"first {step}"))
        expected.update(named(range(step, step + 20), f"first {step}"))
    tiering.client.take_kv_snapshots([table.path])
    from_snapshot = sorted(expected.items())
    for step in range(4):
        tiering.write(table, named(range(step, step + 10), f"second {step}"))
        expected.update(named(range(step, step + 10), f"second {step}"))
    ends = tiering.log_ends(table)

    first = tiering.tier(table)

    # Snapshots are not cut; of the log nothing was read in the first wave.
    assert not first.complete
    assert tiering.lake_rows(table) == from_snapshot
    (status,) = tiering.client.list_tiering_statuses(table.path)
    assert status.state is TieringState.PENDING
    assert tiering.rounds(table)[0].force_finished
    rounds = 0
    committed = tiering.client.lake_snapshot(table.path).log_end_offsets
    while committed != ends:
        before, rounds = committed, rounds + 1
        assert tiering.tier(table).complete == (tiering.client.lake_snapshot(table.path).log_end_offsets == ends)
        committed = tiering.client.lake_snapshot(table.path).log_end_offsets
        assert committed != before
        assert rounds < 20
    assert rounds > 1
    assert tiering.lake_rows(table) == sorted(expected.items())


# S26
@pytest.mark.usefixtures("small_waves")
def test_a_round_within_its_time_reads_everything_in_its_waves(tiering: Tiering, monkeypatch):
    stages = []

    def counting(*args):
        stages.append(args)
        return run_stage(*args)

    replace_stage(monkeypatch, counting)
    table = tiering.table(primary_key=False, num_buckets=2)
    for step in range(3):
        tiering.write(table, named(range(step * 10, step * 10 + 10), "row"))

    limited = tiering.tier(table, max_round_duration="1h")

    assert limited.complete
    assert len(stages) > 1
    assert tiering.lake_rows(table) == sorted(named(range(30), "row").items())
    assert len(set(tiering.files(table))) == limited.stats.files


@pytest.mark.usefixtures("small_waves")
def test_a_later_wave_that_fails_leaves_no_files_of_the_earlier_ones(tiering: Tiering, monkeypatch):
    table = tiering.table(primary_key=False, num_buckets=2)
    tiering.write(table, named(range(30), "row"))
    file_writer = IcebergTable.file_writer
    calls = iter(range(100))
    on_disk = []

    def second_fails(lake):
        if next(calls) == 1:
            on_disk.extend(tiering.files_on_disk(table))
            raise FlussTieringError(ErrorCode.STORAGE, "the lake is away")
        return file_writer(lake)

    monkeypatch.setattr(IcebergTable, "file_writer", second_fails)
    (result,) = tiering.tier_all(table, max_round_duration="1h")

    assert result.error == "the lake is away"
    assert on_disk
    assert tiering.files_on_disk(table) == []
    assert TieringClient.lake_snapshot(tiering.client, table.path) is None
