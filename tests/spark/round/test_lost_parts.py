"""Which parts of logs are lost, and which of them an error names."""

from __future__ import annotations

import pytest

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import BucketInfo, TableBucket
from fluss_tiering.spark.round.lost_log import LostLog, begins_at_log_start, lost_error, lost_logs, no_snapshot_error


def bucket(number: int) -> TableBucket:
    return TableBucket(7, number)


def info(number: int, start: int, values: tuple[str, ...] = ()) -> BucketInfo:
    return BucketInfo(bucket(number), start, 20, 0, partition_values=values)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("key", [True, False])
def test_an_error_names_three_buckets_and_counts_the_others(count: int, key: bool):
    error = lost_error([LostLog(info(number, 10 + number), number) for number in range(count)], has_primary_key=key)
    assert error.code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE
    assert "--skip-missing-log" in error.message
    assert ("KV snapshots" in error.message) is key
    for number in range(count):
        named = f"bucket {number} of table 7: offsets {number} to {9 + number}"
        assert (named in error.message) is (number < 3)
    last, others = min(count, 3) - 1, {4: " and in 1 more bucket", 6: " and in 3 more buckets"}.get(count, "")
    assert f"offsets {last} to {9 + last}{others}: expected it to be kept until then" in error.message


def test_a_bucket_of_a_partition_is_named_with_the_partition():
    assert "(monday, 7): offsets 3 to 4" in str(LostLog(info(0, 5, ("monday", "7")), 3))
    assert str(LostLog(info(0, 5), 3)) == f"{bucket(0)}: offsets 3 to 4"


def test_a_missing_snapshot_names_where_the_log_begins():
    error = no_snapshot_error(info(2, 5))
    assert error.code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE
    assert f"{bucket(2)}: its log begins at offset 5" in error.message


@pytest.mark.parametrize(
    ("tiered", "key", "begins"),
    [
        ({}, False, True),
        ({0: -1}, False, True),
        ({0: 0}, False, False),
        ({0: -1, 1: 3}, False, False),
        ({}, True, False),
    ],
)
def test_only_a_log_table_of_which_nothing_was_tiered_begins_where_its_log_begins(tiered, key: bool, begins: bool):
    assert begins_at_log_start({bucket(n): end for n, end in tiered.items()}, has_primary_key=key) is begins


@pytest.mark.parametrize(
    ("tiered", "key", "lost"),
    [
        # Nothing was tiered of any bucket.
        ({}, False, []),
        ({}, True, []),
        # Of a bucket that is new beside one that was tiered, a log table has lost all that is gone.
        ({0: 3}, False, [(0, 3), (1, 0)]),
        ({0: 3, 1: -1}, False, [(0, 3), (1, 0)]),
        # A bucket of a primary-key table begins with its KV snapshot.
        ({0: 3}, True, [(0, 3)]),
        ({0: 3, 1: -1}, True, [(0, 3)]),
        ({0: 0, 1: 4}, True, [(0, 0), (1, 4)]),
        # Nothing is missing.
        ({0: 5, 1: 5}, False, []),
        ({0: 6, 1: 5}, True, []),
    ],
)
def test_what_is_lost_lies_between_what_was_tiered_and_where_the_log_begins(tiered, key: bool, lost):
    buckets = [info(0, 5), info(1, 5)]
    found = lost_logs(buckets, {bucket(n): end for n, end in tiered.items()}, has_primary_key=key)
    assert [(each.info.bucket.bucket, each.start_offset) for each in found] == lost
