"""The partitions of a scan, and the options of the source."""

from __future__ import annotations

import pytest

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import BucketInfo, TableBucket
from fluss_tiering.spark.source.options import SourceOptions
from fluss_tiering.spark.source.table_reader import log_partitions


@pytest.mark.parametrize(
    ("start", "end", "size", "expected"),
    [
        (0, 0, 0, [(0, 0)]),
        (5, 5, 100, [(5, 5)]),
        (5, 25, 100, [(5, 25)]),
        (5, 25, 101, [(5, 15), (15, 25)]),
        (0, 2, 1000, [(0, 1), (1, 2)]),
    ],
)
def test_a_log_is_cut_into_parts_of_like_length(start, end, size, expected):
    bucket = TableBucket(1, 0)
    parts = log_partitions([BucketInfo(bucket, start, end, size)], max_bytes=100)
    assert [(part.start_offset, part.end_offset) for part in parts] == expected
    assert {part.bucket for part in parts} == {bucket}


def test_options_may_be_written_in_any_case_and_have_defaults():
    options = SourceOptions.read({"TABLE": "db.t", "maxpartitionbytes": "7 kb"}, {"FLUSS_TIERING_SERVER": "there:1"})
    assert (options.table, options.max_partition_bytes, options.server) == ("db.t", 7 << 10, "there:1")
    assert SourceOptions.read({"table": "db.t"}, {}).server == "127.0.0.1:9133"


@pytest.mark.parametrize(
    "options", [{}, {"table": ""}, {"table": "t", "maxPartitionBytes": "0"}, {"table": "t", "maxPartitionBytes": "1xb"}]
)
def test_wrong_options_are_refused(options):
    with pytest.raises(FlussTieringError, match='option "'):
        SourceOptions.read(options, {})
