"""The plan of a round, made only from offsets, buckets and snapshots."""

from __future__ import annotations

import sys
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket
from fluss_tiering.spark.round.plan import LogPiece, PlanLimits, RoundPlan, SnapshotPiece, plan_round
from fluss_tiering.spark.round.waves import after, tasks_of, waves

MIB = 1 << 20


def bucket(number: int) -> TableBucket:
    return TableBucket(7, number)


def info(number: int, end: int, *, start: int = 0, size: int = 0) -> BucketInfo:
    return BucketInfo(bucket(number), start, end, size)


def snapshot(
    number: int, log_offset: int, *, rows: int = 1, size: int = 100, keys: tuple[bytes, ...] = ()
) -> KvSnapshot:
    return KvSnapshot(bucket(number), 3, log_offset, rows, size, "kv/3", keys)


def plan(buckets, *, key=False, tiered=None, snapshots=(), skip_missing_log=False, **limits) -> RoundPlan:
    return plan_round(
        has_primary_key=key,
        tiered={bucket(n): offset for n, offset in (tiered or {}).items()},
        buckets=buckets,
        snapshots={each.bucket: each for each in snapshots},
        limits=PlanLimits(**limits),
        skip_missing_log=skip_missing_log,
    )


def test_a_log_table_goes_on_from_what_is_tiered():
    planned = plan([info(0, 30), info(1, 10)], tiered={0: 20})

    assert planned.pieces == (LogPiece(bucket(0), 20, 30), LogPiece(bucket(1), 0, 10))
    assert planned.log_end_offsets == {bucket(0): 30, bucket(1): 10}
    assert planned.advances
    assert planned.complete


# S21
def test_nothing_new_in_any_bucket_is_an_empty_round():
    planned = plan([info(0, 20), info(1, 0)], tiered={0: 20, 1: -1})

    assert not planned.advances
    assert not planned.pieces
    assert planned.log_end_offsets == {bucket(0): 20}


# S21
def test_a_bucket_whose_snapshot_has_no_rows_advances_without_a_piece():
    planned = plan([info(0, 8)], key=True, snapshots=[snapshot(0, 8, rows=0)])

    assert not planned.pieces
    assert planned.advances
    assert planned.log_end_offsets == {bucket(0): 8}


def test_a_first_round_reads_the_snapshot_and_then_the_log_behind_it():
    leased = snapshot(0, 10)

    planned = plan([info(0, 15)], key=True, snapshots=[leased])

    assert planned.pieces == (SnapshotPiece(leased), LogPiece(bucket(0), 10, 15, ordinal=1, deletes=True))


def test_a_snapshot_of_unknown_size_is_read_whole_and_once():
    leased = snapshot(0, 10, rows=-1, size=0)

    planned = plan([info(0, 12)], key=True, snapshots=[leased], parallelism=2)

    assert planned.pieces == (SnapshotPiece(leased), LogPiece(bucket(0), 10, 12, ordinal=1, deletes=True))
    assert tasks_of(planned.pieces, 2) == 2


def test_without_a_snapshot_the_log_is_read_from_its_start_and_needs_no_deletes():
    planned = plan([info(0, 15)], key=True)

    assert planned.pieces == (LogPiece(bucket(0), 0, 15, ordinal=0, deletes=False),)


def test_a_leased_snapshot_whose_bucket_was_tiered_since_is_ignored():
    planned = plan([info(0, 15)], key=True, tiered={0: 12}, snapshots=[snapshot(0, 10)])

    assert planned.pieces == (LogPiece(bucket(0), 12, 15, ordinal=0, deletes=True),)


# regression: Fluss #2915, parallelism capped by the number of buckets
def test_one_large_bucket_of_a_log_table_is_cut_so_that_all_cores_have_work():
    planned = plan([info(0, 1000, size=400 * MIB)], parallelism=4)

    assert len(planned.pieces) == 4
    assert {piece.ordinal for piece in planned.pieces} == {0}


def test_small_buckets_are_not_cut():
    planned = plan([info(number, 1000, size=MIB) for number in range(3)], parallelism=8)

    assert len(planned.pieces) == 3


def test_small_pieces_share_tasks_and_large_ones_do_not():
    small = plan([info(number, 10, size=1000) for number in range(32)], parallelism=2)
    large = plan([info(number, 10, size=64 * MIB) for number in range(32)], parallelism=2)

    assert (len(small.pieces), tasks_of(small.pieces, 2)) == (32, 2)
    assert (len(large.pieces), tasks_of(large.pieces, 2)) == (32, 32)
    assert tasks_of(plan([info(0, 10)], parallelism=8).pieces, 8) == 1


def test_changes_of_one_bucket_are_cut_by_memory_alone_and_keep_their_order():
    planned = plan(
        [info(0, 1000, size=100 * MIB)], key=True, tiered={0: 0}, change_piece_bytes=30 * MIB, parallelism=64
    )

    assert [piece.ordinal for piece in planned.pieces] == [0, 1, 2, 3]
    assert [(piece.start_offset, piece.end_offset) for piece in planned.pieces] == [
        (0, 250),
        (250, 500),
        (500, 750),
        (750, 1000),
    ]
    assert all(piece.deletes for piece in planned.pieces)


def test_of_a_bucket_that_is_new_to_the_lake_all_pieces_but_the_first_delete():
    planned = plan([info(0, 1000, size=100 * MIB)], key=True, change_piece_bytes=30 * MIB)

    # What the pieces before have added is in the same commit.
    assert [(piece.ordinal, piece.deletes) for piece in planned.pieces] == [(0, False), (1, True), (2, True), (3, True)]


def test_a_large_snapshot_is_cut_at_its_keys():
    leased = snapshot(0, 10, size=90 * MIB, keys=(b"a", b"b", b"c", b"d", b"e"))

    planned = plan([info(0, 10)], key=True, snapshots=[leased], parallelism=3)

    assert [(piece.from_key, piece.to_key) for piece in planned.pieces] == [(None, b"b"), (b"b", b"d"), (b"d", None)]
    assert {piece.ordinal for piece in planned.pieces} == {0}


def test_a_snapshot_is_cut_into_no_more_pieces_than_its_keys_allow():
    leased = snapshot(0, 10, size=900 * MIB, keys=(b"a", b"b", b"c"))

    planned = plan([info(0, 10)], key=True, snapshots=[leased], parallelism=50)

    bounds = [(piece.from_key, piece.to_key) for piece in planned.pieces if isinstance(piece, SnapshotPiece)]
    assert bounds == [(None, b"a"), (b"a", b"b"), (b"b", b"c"), (b"c", None)]


@pytest.mark.parametrize("key", [True, False])
def test_the_sizes_of_the_pieces_add_up_to_what_the_round_reads(key):
    leased = snapshot(0, 40, size=100 * MIB, keys=(b"a", b"b", b"c", b"d"))
    buckets = [info(0, 100, start=20, size=80 * MIB), info(1, 30, size=30 * MIB)]
    tiered = {1: 10} if key else {0: 40, 1: 10}

    planned = plan(buckets, key=key, tiered=tiered, snapshots=[leased] if key else [], parallelism=4)

    sizes = {
        number: sum(each.size_bytes for each in planned.pieces if each.bucket == bucket(number)) for number in (0, 1)
    }
    assert sizes == {0: (160 if key else 60) * MIB, 1: 20 * MIB}


# A bucket whose offset is 0 has been looked at by a round: what the lake holds of it is known, and it is nothing.
def test_a_bucket_that_was_tiered_up_to_its_first_offset_goes_on_from_there():
    planned = plan([info(0, 5)], key=True, tiered={0: 0}, snapshots=[snapshot(0, 5)])
    assert planned.pieces == (LogPiece(bucket(0), 0, 5, deletes=True),)
    with pytest.raises(FlussTieringError, match="offsets 0 to 1"):
        plan([info(0, 5, start=2)], tiered={0: 0})
    skipped = plan([info(0, 5, start=5)], tiered={0: 0}, skip_missing_log=True)
    assert skipped.log_end_offsets == {bucket(0): 5}
    assert skipped.start_offsets == {bucket(0): 5}
    assert skipped.advances


# S8
@pytest.mark.parametrize(
    ("round_bytes", "tiered", "ends", "complete"),
    [
        # A limit that is not reached leaves nothing.
        (400, {}, (100, 300), True),
        (799, {}, (100, 300), True),
        # It cuts each bucket by the same share of what is not tiered yet, and by no less than a record.
        (200, {}, (50, 150), False),
        (120, {0: 60, 1: 100}, (80, 200), False),
        (1, {0: 4, 1: 299}, (5, 300), False),
    ],
)
def test_a_limit_cuts_every_bucket_by_the_same_share_and_leaves_the_rest_for_the_next_round(
    round_bytes, tiered, ends, complete
):
    planned = plan([info(0, 100, size=100), info(1, 300, size=300)], tiered=tiered, round_bytes=round_bytes)

    assert planned.log_end_offsets == {bucket(0): ends[0], bucket(1): ends[1]}
    assert planned.complete is complete


# S26: snapshot splits are not cut
def test_a_limit_leaves_snapshots_whole():
    leased = snapshot(0, 10, size=1000)

    planned = plan([info(0, 20, size=200)], key=True, snapshots=[leased], round_bytes=500)

    assert planned.pieces == (SnapshotPiece(leased),)
    assert planned.log_end_offsets == {bucket(0): 10}
    assert not planned.complete


@pytest.mark.parametrize(
    ("tiered", "start", "end", "said"),
    [({0: 3}, 5, 10, "offsets 3 to 4"), ({1: 3}, 5, 10, "offsets 0 to 4"), ({0: 30}, 0, 10, "it ends at 10")],
)
def test_a_log_that_does_not_go_with_the_lake_is_refused(tiered, start, end, said):
    with pytest.raises(FlussTieringError, match=said) as raised:
        plan([info(0, end, start=start)], tiered=tiered)
    assert raised.value.code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE


# D44
@pytest.mark.parametrize("tiered", [{}, {0: -1}])
@pytest.mark.parametrize("end", [5, 10])
def test_a_log_table_of_which_nothing_was_tiered_begins_where_its_log_begins(tiered, end):
    planned = plan([info(0, end, start=5), info(1, 3)], tiered=tiered)

    assert planned.pieces[-1] == LogPiece(bucket(1), 0, 3)
    assert planned.pieces[:-1] == ((LogPiece(bucket(0), 5, 10),) if end == 10 else ())
    assert planned.log_end_offsets == {bucket(0): end, bucket(1): 3}
    assert not planned.skipped


# D44
def test_what_is_missing_of_a_log_table_s_logs_is_named_and_can_be_skipped():
    buckets = [info(0, 10, start=5), info(1, 9, start=9), info(2, 4, start=1), info(3, 4)]
    tiered = {0: 3, 1: 0, 3: 2}
    with pytest.raises(FlussTieringError) as raised:
        plan(buckets, tiered=tiered)
    assert raised.value.code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE
    for said in (
        "in bucket 0 of table 7: offsets 3 to 4; in bucket 1 of table 7: offsets 0 to 8",
        "--skip-missing-log",
    ):
        assert said in raised.value.message

    planned = plan(buckets, tiered=tiered, skip_missing_log=True)

    assert planned.pieces == tuple(LogPiece(bucket(n), *ends) for n, ends in ((0, (5, 10)), (2, (1, 4)), (3, (2, 4))))
    assert planned.log_end_offsets == {bucket(0): 10, bucket(1): 9, bucket(2): 4, bucket(3): 4}
    assert [(each.info.bucket.bucket, each.start_offset) for each in planned.skipped] == [(0, 3), (1, 0), (2, 0)]
    assert not planned.read_again


# D44
def test_a_primary_key_table_s_bucket_with_a_gap_is_read_again_from_its_snapshot():
    buckets, leased = [info(0, 10, start=5), info(1, 4)], snapshot(0, 7)
    with pytest.raises(FlussTieringError, match=r"offsets 3 to 4.*from their KV snapshots"):
        plan(buckets, key=True, tiered={0: 3, 1: 2}, snapshots=[leased])
    with pytest.raises(FlussTieringError, match="no KV snapshot"):
        plan(buckets, key=True, tiered={0: 3, 1: 2}, skip_missing_log=True)

    planned = plan(buckets, key=True, tiered={0: 3, 1: 2}, snapshots=[leased], skip_missing_log=True)

    assert planned.pieces == (
        SnapshotPiece(leased),
        LogPiece(bucket(0), 7, 10, ordinal=1, deletes=True),
        LogPiece(bucket(1), 2, 4, deletes=True),
    )
    assert planned.read_again == ((0, ()),)
    assert planned.log_end_offsets == {bucket(0): 10, bucket(1): 4}


# D44
def test_a_primary_key_table_needs_a_snapshot_of_what_its_log_lacks():
    for snapshots in ((), (snapshot(0, 4),)):
        with pytest.raises(FlussTieringError, match="begins at offset 5, and no KV snapshot") as raised:
            plan([info(0, 10, start=5)], key=True, snapshots=snapshots, skip_missing_log=True)
        assert raised.value.code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE


@settings(deadline=None)
@given(
    ends=st.lists(st.integers(0, 500), min_size=1, max_size=5),
    tiered=st.lists(st.one_of(st.none(), st.integers(0, 500)), min_size=5, max_size=5),
    size=st.integers(0, 10**9),
    key=st.booleans(),
    parallelism=st.integers(1, 16),
    round_bytes=st.one_of(st.none(), st.integers(1, 10**9)),
)
def test_the_pieces_of_a_bucket_cover_its_range_once_and_in_order(ends, tiered, size, key, parallelism, round_bytes):
    known = {n: min(t, end) for n, (t, end) in enumerate(zip(tiered, ends, strict=False)) if t is not None}
    planned = plan(
        [info(n, end, size=size) for n, end in enumerate(ends)],
        key=key,
        tiered=known,
        parallelism=parallelism,
        round_bytes=round_bytes,
    )

    for number, end in enumerate(ends):
        pieces = [piece for piece in planned.pieces if piece.bucket == bucket(number)]
        reached = known.get(number, 0)
        for ordinal, piece in enumerate(pieces):
            assert piece.start_offset == reached < piece.end_offset
            assert piece.ordinal == (ordinal if key else 0)
            reached = piece.end_offset
        assert planned.log_end_offsets.get(bucket(number), 0) == reached
        assert reached <= end
        assert not planned.complete or reached == end


def in_partition(number: int, partition_id: int, value: str, end: int) -> BucketInfo:
    return BucketInfo(TableBucket(1, number, partition_id), 0, end, 0, partition_values=(value,))


def partitioned(
    buckets: list[BucketInfo],
    tiered: dict[TableBucket, int],
    *snapshots: KvSnapshot,
    replaced: Collection[TableBucket] = (),
) -> RoundPlan:
    return plan_round(
        has_primary_key=True,
        tiered=tiered,
        buckets=buckets,
        snapshots={each.bucket: each for each in snapshots},
        limits=PlanLimits(),
        replaced=replaced,
    )


def test_pieces_name_the_partition_whose_rows_they_are():
    first, second = in_partition(0, 7, "mon", 5), in_partition(0, 8, "tue", 6)
    planned = partitioned([first, second], {first.bucket: 5})

    assert planned.pieces == (LogPiece(second.bucket, 0, 6, partition_values=("tue",)),)
    assert planned.log_end_offsets == {first.bucket: 5, second.bucket: 6}
    assert planned.partition_values == ("tue",)


# D49
def test_offsets_of_a_dropped_partition_are_left_out_and_move_nothing():
    kept, gone = in_partition(0, 7, "mon", 5), TableBucket(1, 0, 6)
    planned = partitioned([kept], {kept.bucket: 5, gone: 9})

    assert not planned.advances
    assert planned.log_end_offsets == {kept.bucket: 5}


# D49
def test_a_new_partition_replaces_only_rows_that_the_lake_holds_for_its_buckets():
    log, snapped, new = in_partition(0, 8, "mon", 5), in_partition(0, 9, "tue", 4), in_partition(0, 10, "wed", 3)
    taken = KvSnapshot(snapped.bucket, 0, 4, 3, 100, "kv/0")
    dropped = {TableBucket(1, 0, 7): 9}
    planned = partitioned([log, snapped, new], dropped, taken, replaced={log.bucket, snapped.bucket})

    assert [piece.deletes for piece in planned.pieces] == [True, True, False]
    assert not any(piece.deletes for piece in partitioned([log, snapped], dropped, taken).pieces)


# D52
@pytest.mark.parametrize("gigabytes", [1, 10, 1000])
def test_a_hot_bucket_catches_up_in_a_bounded_number_of_pieces(gigabytes):
    planned = plan([info(0, 10**9, size=gigabytes << 30)], key=True, tiered={0: 5}, parallelism=64)

    assert len(planned.pieces) == 16
    assert [piece.ordinal for piece in planned.pieces] == list(range(16))
    # A bucket that is not hot is cut as before.
    small = plan([info(0, 1000, size=200 * MIB)], key=True, tiered={0: 0})
    assert len(small.pieces) == 4


# D51
@pytest.mark.parametrize("key", [True, False])
def test_the_work_of_planning_grows_with_the_number_of_buckets(key):
    def calls(count: int) -> int:
        buckets = [info(number, 1000, size=MIB) for number in range(count)]
        leased = [snapshot(number, 500) for number in range(0, count, 2)] if key else []
        seen = 0

        def count_call(frame: object, event: str, argument: object) -> None:
            nonlocal seen
            seen += event in {"call", "c_call"}

        sys.setprofile(count_call)
        try:
            planned = plan(buckets, key=key, snapshots=leased, parallelism=8, round_bytes=count * MIB // 2)
            list(waves(planned, PlanLimits(parallelism=8)))
            after(planned, planned.pieces[: count // 2])
        finally:
            sys.setprofile(None)
        return seen

    assert calls(800) < 9 * calls(100)
