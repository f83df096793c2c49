"""What the history of a lake table says: which commit is the newest one, and with which offsets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import pytest
from table_support import (
    commit_of,
    compact,
    insert,
    name,
    piece,
)

from fluss_tiering.formats.lake_offsets import offsets_from_json, offsets_to_json
from fluss_tiering.lake.iceberg.metadata import summary
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket


def test_the_newest_commit_that_the_storage_does_not_know_is_found_with_its_own_offsets(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    known = lake.commit([piece(lake, {1: "a"})], commit_of(1))
    lake = catalogs.open_table(keyed)
    commit = commit_of(2)
    newest = lake.commit([piece(lake, {1: "b"}, delete=True)], commit)

    lake = catalogs.open_table(keyed)
    for registered in (known, None):
        found = lake.unregistered_commit(registered)
        assert found is not None
        assert (found.snapshot_id, found.commit) == (newest, commit)
    assert lake.unregistered_commit(newest) is None


# D49: Iceberg keeps the summaries of all snapshots in each metadata file
def test_the_offsets_of_many_buckets_lie_in_a_file_that_the_summary_names(spark, catalogs, keyed):
    offsets = {TableBucket(1, number): 10**12 + number for number in range(16_384)}
    commit = replace(commit_of(1), log_end_offsets=offsets)
    lake = catalogs.open_table(keyed)
    landed = lake.commit([piece(lake, {1: "a"})], commit)

    said = spark.sql(f"SELECT summary FROM {name(keyed)}.snapshots").first().summary
    assert sum(len(key) + len(value) for key, value in said.items()) < 2_000
    found = catalogs.open_table(keyed).unregistered_commit(None)
    assert (found.snapshot_id, found.commit.commit_id) == (landed, commit.commit_id)
    assert found.commit.log_end_offsets == offsets
    # A few buckets stay in the summary, as before.
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {2: "a"})], commit_of(2))
    assert catalogs.open_table(keyed).newest_commit().commit.lake_offsets is None


# D49
@pytest.mark.parametrize(("content", "code"), [(None, ErrorCode.STORAGE), (b"{}", ErrorCode.CORRUPT_DATA)])
def test_an_offsets_file_that_is_gone_or_damaged_is_named(catalogs, keyed, monkeypatch, content, code):
    monkeypatch.setattr(summary, "_MAX_OFFSETS_LENGTH", 0)
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a"})], commit_of(1))
    (path,) = Path(urlparse(lake.data_location()).path).glob("*-offsets.json")
    path.unlink()
    for beside in path.parent.glob(f".{path.name}*"):
        beside.unlink()
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(FlussTieringError, match=path.name) as refused:
        catalogs.open_table(keyed).unregistered_commit(None)
    assert refused.value.code is code


# D49
def test_the_offsets_file_of_a_commit_that_lost_goes(catalogs, keyed, monkeypatch):
    monkeypatch.setattr(summary, "_MAX_OFFSETS_LENGTH", 0)
    stale, lake = catalogs.open_table(keyed), catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a"})], commit_of(1))
    folder = Path(urlparse(lake.data_location()).path)
    assert len(list(folder.glob("*-offsets.json"))) == 1

    with pytest.raises(FlussTieringError) as refused:
        stale.commit([piece(stale, {1: "b"})], commit_of(1))
    assert refused.value.code is ErrorCode.LAKE_CONFLICT
    assert len(list(folder.glob("*-offsets.json"))) == 1


# D49
@pytest.mark.parametrize(
    "offsets",
    [
        {},
        {TableBucket(7, 3): 5},
        {TableBucket(7, 0): 0, TableBucket(7, 2): 9},
        {TableBucket(7, 1, 40): 3, TableBucket(7, 0, 12): 2**62, TableBucket(7, 4, 12): 1},
    ],
)
def test_offsets_come_back_from_their_file(offsets):
    assert offsets_from_json(offsets_to_json(7, offsets)) == offsets


def test_a_compaction_on_top_hides_nothing(spark, catalogs, log):
    lake = catalogs.open_table(log)
    known = lake.commit([piece(lake, {1: "a"}) + piece(lake, {2: "a"})], commit_of(2))
    compact(spark, log)

    assert catalogs.open_table(log).base() != known
    assert catalogs.open_table(log).unregistered_commit(known) is None


def test_a_lake_that_was_rolled_back_is_refused(spark, catalogs, keyed):
    lake = catalogs.open_table(keyed)
    first = lake.commit([piece(lake, {1: "a"})], commit_of(1))
    lake = catalogs.open_table(keyed)
    second = lake.commit([piece(lake, {2: "a"})], commit_of(2))
    catalog = keyed.lake_catalog_properties["name"]
    spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{keyed.path}', {first})")

    with pytest.raises(FlussTieringError, match=f"does not hold the snapshot {second}.* was rolled back") as raised:
        catalogs.open_table(keyed).unregistered_commit(second)
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH
    # What the error says to do is the remedy.
    spark.sql(raised.value.message.partition("the current one again: ")[2])
    assert catalogs.open_table(keyed).base() == second
    assert catalogs.open_table(keyed).unregistered_commit(second) is None


def test_another_lake_table_under_the_name_is_refused(catalogs, keyed):
    catalogs.open_table(keyed).commit([], commit_of(1))
    with pytest.raises(FlussTieringError, match="another lake table has this name now") as raised:
        catalogs.open_table(keyed).unregistered_commit(12345)
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_a_lake_of_a_table_that_was_dropped_and_created_again_is_refused(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a"})], commit_of(1, table_id=99))

    with pytest.raises(FlussTieringError, match=r"id 99.*id 1") as raised:
        catalogs.open_table(keyed).unregistered_commit(None)
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_a_lake_with_somebody_else_s_rows_is_not_begun(spark, catalogs, log):
    catalogs.open_table(log)
    insert(spark, log, 1)

    with pytest.raises(FlussTieringError, match="rows that tiering did not write") as raised:
        catalogs.open_table(log).unregistered_commit(None)
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_a_lake_table_that_somebody_emptied_is_begun(spark, catalogs, log):
    catalogs.open_table(log)
    insert(spark, log, 1)
    spark.sql(f"DELETE FROM {name(log)}")

    assert catalogs.open_table(log).unregistered_commit(None) is None
