"""Lake snapshots: the fence, offsets that only go forwards, repetition; seeds S5, S10, S21."""

from __future__ import annotations

import pytest
from manager_support import Managers
from refusals import refused

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import BucketInfo, TableBucket, TableInfo
from fluss_tiering.server.core.lake import manager as lake_manager
from fluss_tiering.server.core.lake.merging import (
    CommitRegistration,
    merge_commit,
    prepared_offsets,
    require_same_offsets,
)

B0, B1, B2 = (TableBucket(1, bucket) for bucket in range(3))


@pytest.fixture
def table(managers: Managers) -> TableInfo:
    return managers.add_table(1, num_buckets=3, primary_key=False)


def buckets(*log_ends: int) -> list[BucketInfo]:
    return [BucketInfo(TableBucket(1, bucket), 0, log_end, log_end * 8) for bucket, log_end in enumerate(log_ends)]


def commit(managers: Managers, table: TableInfo, snapshot_id: int, offsets: dict[TableBucket, int]) -> None:
    registered(
        managers,
        CommitRegistration(table, 1, snapshot_id, offsets, f"commit {snapshot_id}", "/offsets"),
        buckets(100, 100, 100),
    )


def registered(managers: Managers, commit: CommitRegistration, present: list[BucketInfo]) -> None:
    """As a server of its own storage registers a commit, in one thread."""
    known = managers.lake.known(commit.table.table_id, commit.snapshot_id)
    if known is not None:
        require_same_offsets(commit, known.unpack())
    else:
        newest = managers.lake.newest(commit.table.table_id)
        assert managers.lake.commit(merge_commit(commit, present, newest))


def prepare(
    managers: Managers, table: TableInfo, present: list[BucketInfo], offsets: dict[TableBucket, int]
) -> dict[TableBucket, int]:
    return prepared_offsets(table, present, managers.lake.newest(table.table_id), offsets)


def known(managers: Managers, snapshot_id: int) -> LakeSnapshot | None:
    found = managers.lake.known(1, snapshot_id)
    return None if found is None else found.unpack()


def test_offsets_are_merged_with_the_newest_snapshot(managers: Managers, table: TableInfo) -> None:
    commit(managers, table, 900, {B0: 10})
    commit(managers, table, 5, {B1: 20})
    managers.restart()
    assert managers.lake.newest(1) == LakeSnapshot(1, 5, {B0: 10, B1: 20}), "the newest, though its id is smaller"
    assert known(managers, 900) == LakeSnapshot(1, 900, {B0: 10})
    prepared = prepare(managers, table, buckets(100, 100, 100), {B1: 30})
    assert prepared == {B0: 10, B1: 30, B2: -1}
    prepared = prepared_offsets(table, buckets(100, 100, 100), None, {B1: 15})
    assert prepared == {B0: -1, B1: 15, B2: -1}


@pytest.mark.parametrize(
    ("offsets", "code", "named"),
    [
        ({B0: 9}, ErrorCode.INVALID_REQUEST, "before 10"),
        ({B0: 101}, ErrorCode.LOG_OFFSET_OUT_OF_RANGE, "past the log's end, 100"),
        ({TableBucket(1, 3): 1}, ErrorCode.INVALID_REQUEST, "buckets are 0 to 2"),
    ],
)
def test_wrong_offsets_are_refused(
    managers: Managers, table: TableInfo, offsets: dict[TableBucket, int], code: ErrorCode, named: str
) -> None:
    commit(managers, table, 1, {B0: 10})
    for step in (
        lambda: prepare(managers, table, buckets(100, 100, 100), offsets),
        lambda: commit(managers, table, 2, offsets),
    ):
        with refused(code, named):
            step()
    assert managers.lake.newest(1) == LakeSnapshot(1, 1, {B0: 10})


def test_lake_snapshots_of_a_table_are_bounded_by_their_offsets(  # D15
    managers: Managers, table: TableInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_manager, "_KEPT_SNAPSHOTS", 4)
    monkeypatch.setattr(lake_manager, "_KEPT_OFFSETS", 9)

    def kept() -> list[int]:
        return [each for each in range(1, 20) if known(managers, each) is not None]

    for snapshot_id in range(1, 7):
        commit(managers, table, snapshot_id, {B0: snapshot_id})
    assert kept() == [3, 4, 5, 6]
    assert len(managers.lake.offsets_paths(1)) == 4
    # Three offsets in each: three snapshots have nine.
    for snapshot_id in range(7, 12):
        commit(managers, table, snapshot_id, {B0: snapshot_id, B1: snapshot_id, B2: snapshot_id})
    assert kept() == [9, 10, 11]
    monkeypatch.setattr(lake_manager, "_KEPT_OFFSETS", 1)
    commit(managers, table, 12, {B0: 12})
    assert kept() == [11, 12], "the last one is kept beside the newest in any case"


def test_a_repeated_commit_changes_nothing(managers: Managers, table: TableInfo) -> None:  # S21
    commit(managers, table, 1, {B0: 10})
    commit(managers, table, 2, {B0: 20})
    commit(managers, table, 1, {B0: 10})
    managers.restart()
    assert managers.lake.newest(1) == LakeSnapshot(1, 2, {B0: 20})
    commit(managers, table, 3, {B0: 20})
    assert managers.lake.newest(1) == LakeSnapshot(1, 3, {B0: 20}), "the same offsets may be committed again"
    with refused(ErrorCode.INVALID_REQUEST):
        commit(managers, table, 2, {B0: 30})


def test_what_cannot_be_persisted_did_not_happen(managers: Managers, table: TableInfo) -> None:  # L10
    commit(managers, table, 1, {B0: 10})
    with managers.failing_disk(), refused(ErrorCode.STORAGE):
        commit(managers, table, 2, {B0: 20})
    assert managers.lake.newest(1) == LakeSnapshot(1, 1, {B0: 10})
    commit(managers, table, 2, {B0: 20})


def test_a_dropped_table_has_no_lake_snapshot(managers: Managers, table: TableInfo) -> None:  # S12
    commit(managers, table, 1, {B0: 10})
    managers.drop_table(1)
    assert managers.lake.newest(1) is None
    managers.restart()
    assert managers.lake.newest(1) is None
    assert known(managers, 1) is None


def test_a_partition_that_was_dropped_in_mid_round_does_not_stop_it(managers: Managers) -> None:
    table = managers.add_table(1, primary_key=False)
    kept, dropped = (TableBucket(1, 0, partition_id) for partition_id in (7, 8))
    present = [BucketInfo(kept, 0, 100, 800)]
    planned = {kept: 50, dropped: 20}
    # D49: what is dropped is forgotten. Who tiers a later partition of its values asks the lake for its rows.
    assert prepare(managers, table, present, planned) == {kept: 50}
    committed = CommitRegistration(table, 1, 1, planned, "commit", "/offsets")
    for _ in range(2):
        registered(managers, committed, present)
    assert managers.lake.newest(1) == LakeSnapshot(1, 1, {kept: 50})
    # A cluster has forgotten the partition; the commit is the same.
    require_same_offsets(committed, LakeSnapshot(1, 1, {kept: 50}))
    with pytest.raises(FlussTieringError, match="other offsets"):
        require_same_offsets(committed, LakeSnapshot(1, 1, {kept: 49}))
    with pytest.raises(FlussTieringError, match="has no"):
        prepare(managers, table, present, {TableBucket(1, 1, 7): 1})


def test_a_log_that_lost_its_end_takes_nothing_back(managers: Managers, table: TableInfo) -> None:
    commit(managers, table, 1, {B0: 10})
    shorter = buckets(4, 100, 100)
    assert prepare(managers, table, shorter, {B0: 10, B1: 5}) == {B0: 10, B1: 5, B2: -1}
    with pytest.raises(FlussTieringError, match="past the log's end, 4"):
        prepare(managers, table, shorter, {B0: 11})
