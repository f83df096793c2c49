"""Which parts of logs are lost, and which of them an error names."""

from __future__ import annotations

import pytest

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import BucketInfo, TableBucket
from fluss_tiering.spark.round.lost_log import LostLog, lost_error


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
