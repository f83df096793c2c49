"""What the lake's metadata says in text: properties of tables, summaries of commits, offsets, and files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_tiering.formats.lake_offsets import offsets_from_json, offsets_to_json
from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, VectorPlace
from fluss_tiering.lake.iceberg.content_file import ContentFiles
from fluss_tiering.lake.iceberg.metadata.properties import WriteProperties, write_properties
from fluss_tiering.lake.iceberg.metadata.summary import COMMIT_ID, from_summary, offsets_fit, to_summary
from fluss_tiering.lake.protocol import ForeignCommit, LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket

CODEC = "write.parquet.compression-codec"
LEVEL = "write.parquet.compression-level"
SIZE = "write.target-file-size-bytes"


# Properties of tables


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, WriteProperties("zstd", None, 512 << 20)),
        ({CODEC: "GZIP"}, WriteProperties("gzip", None, 512 << 20)),
        ({CODEC: "uncompressed"}, WriteProperties("none", None, 512 << 20)),
        ({LEVEL: "3"}, WriteProperties("zstd", 3, 512 << 20)),
        ({CODEC: "gzip", LEVEL: "9"}, WriteProperties("gzip", 9, 512 << 20)),
        ({CODEC: "gzip", LEVEL: "1"}, WriteProperties("gzip", 1, 512 << 20)),
        ({LEVEL: "-5"}, WriteProperties("zstd", -5, 512 << 20)),
        # The level of a codec that was there before has no meaning for these.
        ({CODEC: "snappy", LEVEL: "9"}, WriteProperties("snappy", None, 512 << 20)),
        ({CODEC: "uncompressed", LEVEL: "3"}, WriteProperties("none", None, 512 << 20)),
        ({SIZE: "1"}, WriteProperties("zstd", None, 1)),
        ({SIZE: "999999999999999999"}, WriteProperties("zstd", None, 999999999999999999)),
        ({"commit.retry.num-retries": "0"}, WriteProperties("zstd", None, 512 << 20)),
        ({"commit.status-check.max-wait-ms": "+60000000000"}, WriteProperties("zstd", None, 512 << 20)),
        ({"write.format.default": "orc", "owner": "me"}, WriteProperties("zstd", None, 512 << 20)),
    ],
)
def test_files_are_written_as_the_table_s_properties_say(properties: dict[str, str], expected: WriteProperties):
    assert write_properties("c.db.t", properties) == expected


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({CODEC: "lzo"}, "one of zstd, gzip, snappy, lz4, brotli, uncompressed"),
        ({CODEC: "none"}, "one of zstd"),
        ({CODEC: "gzip", LEVEL: "10"}, "a whole number from 1 to 9 for gzip"),
        ({CODEC: "gzip", LEVEL: "0"}, "a whole number from 1 to 9 for gzip"),
        ({LEVEL: "fast"}, "a whole number"),
        ({LEVEL: "3.0"}, "a whole number"),
        ({LEVEL: "12345678901"}, "a whole number"),
        ({SIZE: "0"}, "a whole number of bytes above 0"),
        ({SIZE: "-1"}, "a whole number of bytes above 0"),
        ({SIZE: "128MB"}, "a whole number of bytes above 0"),
        ({SIZE: "1000000000000000000"}, "a whole number of bytes above 0"),
        ({"encryption.key-id": "k"}, "no encryption"),
        ({"commit.manifest.target-size-bytes": "8MB"}, f"a whole number of at most {2**63 - 1}"),
        ({"commit.manifest.min-count-to-merge": "2147483648"}, "a whole number of at most 2147483647"),
        ({"write.metadata.previous-versions-max": "1e3"}, "a whole number of at most 2147483647"),
        ({"write.summary.partition-limit": ""}, "a whole number of at most 2147483647"),
    ],
)
def test_a_property_by_which_no_file_can_be_written_is_named_with_its_remedy(properties: dict[str, str], expected: str):
    with pytest.raises(FlussTieringError) as refused:
        write_properties("c.db.t", properties)
    assert refused.value.code is ErrorCode.LAKE_TABLE_MISMATCH
    key, value = list(properties.items())[-1]
    for said in (f"the property {key} of the lake table c.db.t is {value!r}", expected):
        assert said in refused.value.message
    assert refused.value.message.endswith(f"ALTER TABLE c.db.t UNSET TBLPROPERTIES ('{key}')")


@pytest.mark.parametrize("value", ["abc", "-1"])
@pytest.mark.parametrize("key", ["num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms"])
def test_a_property_that_spark_cannot_remove_has_another_remedy(key, value):
    message = f"the property commit.retry.{key} of the lake table .* is '{value}': expected a whole number from 0 to "
    with pytest.raises(FlussTieringError, match=message) as it:
        write_properties("c.db.t", {f"commit.retry.{key}": value})
    assert it.value.code is ErrorCode.LAKE_TABLE_MISMATCH
    assert "TableOperations.commit" in it.value.message


# Commits

BUCKETS = st.builds(TableBucket, st.just(7), st.integers(0, 40), st.none()) | st.builds(
    TableBucket, st.just(7), st.integers(0, 40), st.integers(0, 10**9)
)


def specs(*fields: int) -> list[dict[str, Any]]:
    return [{"spec-id": 6, "fields": [{"field-id": field} for field in fields]}]


def commit_of(offsets: dict[TableBucket, int], **further: Any) -> LakeCommit:
    return LakeCommit(7, 5, "an-id", "/offsets/1", offsets, **further)


@given(st.dictionaries(BUCKETS, st.integers(0, 2**62), max_size=20))
def test_a_commit_comes_back_from_its_summary(offsets):
    commit = commit_of(offsets)
    assert from_summary(to_summary(commit)) == commit


def test_the_summary_is_what_fluss_and_its_readers_look_for():
    summary = to_summary(commit_of({TableBucket(7, 3): 12, TableBucket(7, 1, 17): 4}))
    assert summary == {
        "commit-user": "__fluss_lake_tiering",
        "fluss-offsets": "/offsets/1",
        COMMIT_ID: "an-id",
        "fluss-tiering.table-id": "7",
        "fluss-tiering.epoch": "5",
        "fluss-tiering.offsets": '{"3":12,"17/1":4}',
    }


def test_a_commit_of_many_buckets_names_the_file_with_its_offsets():
    commit = commit_of({TableBucket(7, 3): 12}, lake_offsets="file:/lake/offsets.json")
    summary = to_summary(commit)
    assert "fluss-tiering.offsets" not in summary
    assert from_summary(summary) == commit_of({}, lake_offsets="file:/lake/offsets.json")


def test_the_commits_of_others_are_told_apart():
    assert from_summary({}) is None
    assert from_summary({"commit-user": "me", "fluss-offsets": "/x"}) is None
    assert from_summary({COMMIT_ID: "inside of a commit"}) is None
    flink = {"commit-user": "__fluss_lake_tiering", "fluss-offsets": "/x"}
    assert from_summary(flink) == ForeignCommit("/x")
    assert from_summary({"commit-user": "__fluss_lake_tiering"}) == ForeignCommit("")


def test_a_summary_stays_small(monkeypatch):
    assert offsets_fit(commit_of({TableBucket(7, number): 10**6 for number in range(500)}))
    assert not offsets_fit(commit_of({TableBucket(7, number): 10**6 for number in range(1000)}))
    monkeypatch.setattr("fluss_tiering.lake.iceberg.metadata.summary._MAX_OFFSETS_LENGTH", len('{"3":12}'))
    assert offsets_fit(commit_of({TableBucket(7, 3): 12}))
    assert not offsets_fit(commit_of({TableBucket(7, 3): 123}))


# Offsets


def test_an_offsets_file_has_the_form_of_fluss_s_own():
    assert offsets_to_json(7, {TableBucket(7, 2): 30, TableBucket(7, 0): 10}) == (
        b'{"version":1,"table_id":7,"bucket_offsets":[10,-1,30]}'
    )
    of_partitions = {TableBucket(7, 1, 20): 5, TableBucket(7, 0, 3): 6, TableBucket(7, 0, 20): 7}
    assert json.loads(offsets_to_json(7, of_partitions)) == {
        "version": 1,
        "table_id": 7,
        "partition_offsets": [
            {"partition_id": 3, "bucket_offsets": [6]},
            {"partition_id": 20, "bucket_offsets": [7, 5]},
        ],
    }
    assert offsets_from_json(offsets_to_json(7, of_partitions)) == of_partitions


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"version":1}',
        b'{"version":2,"table_id":7,"bucket_offsets":[1]}',
        b'{"version":1,"table_id":7,"bucket_offsets":3}',
        b'{"version":1,"table_id":7,"partition_offsets":[{"bucket_offsets":[1]}]}',
    ],
)
def test_another_content_is_no_offsets_file(content: bytes):
    with pytest.raises(ValueError):
        offsets_from_json(content)


def test_an_offsets_file_of_another_version_is_named_as_such():
    with pytest.raises(ValueError, match=r"^version 2, expected 1$"):
        offsets_from_json(b'{"version":2,"table_id":7,"bucket_offsets":[1]}')


# Descriptions of files

METRICS = FileMetrics(
    3,
    (4, 900),
    column_sizes={1: 40, 2: 50},
    value_counts={1: 3, 2: 3},
    null_value_counts={2: 1},
    nan_value_counts={2: 0},
    lower_bounds={1: b"\x01\x00\x00\x00", 2: b"a\xff"},
    upper_bounds={1: b"\x09\x00\x00\x00"},
)


def test_a_data_file_is_described_as_iceberg_parses_it():
    file = LakeFile(FileContent.DATA, 3, "file:/lake/a.parquet", 1234, METRICS, ("mon", "eu"))
    assert json.loads(ContentFiles((2, 1), 6, specs(1000, 1001, 1002)).to_json(file)) == {
        "spec-id": 6,
        "content": "DATA",
        "file-path": "file:/lake/a.parquet",
        "file-format": "PARQUET",
        "partition": {"1000": "mon", "1001": "eu", "1002": 3},
        "file-size-in-bytes": 1234,
        "record-count": 3,
        "column-sizes": {"keys": [1, 2], "values": [40, 50]},
        "value-counts": {"keys": [1, 2], "values": [3, 3]},
        "null-value-counts": {"keys": [2], "values": [1]},
        "nan-value-counts": {"keys": [2], "values": [0]},
        "lower-bounds": {"keys": [1, 2], "values": ["01000000", "61FF"]},
        "upper-bounds": {"keys": [1], "values": ["09000000"]},
        "split-offsets": [4, 900],
    }


def test_a_file_of_a_table_without_buckets_has_only_the_values_of_its_partition():
    file = LakeFile(FileContent.DATA, 3, "file:/lake/a.parquet", 1234, METRICS, ("mon",))
    described = json.loads(ContentFiles((), 6, specs(1000), by_bucket=False).to_json(file))
    assert described["partition"] == {"1000": "mon"}


def test_an_equality_delete_names_the_key_columns_in_ascending_order():
    file = LakeFile(FileContent.EQUALITY_DELETES, 3, "file:/lake/d.parquet", 12, FileMetrics(1))
    described = json.loads(ContentFiles((2, 1), 6, specs(1000)).to_json(file))
    assert (described["content"], described["equality-ids"]) == ("EQUALITY_DELETES", [1, 2])
    assert "equality-ids" not in json.loads(ContentFiles((2, 1), 6, specs(1000)).to_json(_data(file)))


@pytest.mark.parametrize(
    ("referenced", "vector", "described"),
    [
        (("file:/a",), None, {"file-format": "PARQUET", "referenced-data-file": "file:/a"}),
        (("file:/a", "file:/b"), None, {"file-format": "PARQUET"}),
        (
            ("file:/a",),
            VectorPlace(40, 44),
            {
                "file-format": "PUFFIN",
                "referenced-data-file": "file:/a",
                "content-offset": 40,
                "content-size-in-bytes": 44,
            },
        ),
    ],
    ids=["one data file", "many data files", "vector"],
)
def test_a_position_delete_names_its_data_file_and_the_place_of_its_vector(referenced, vector, described):
    file = LakeFile(
        FileContent.POSITION_DELETES, 3, "file:/lake/d", 12, FileMetrics(2), referenced=referenced, vector=vector
    )
    content = json.loads(ContentFiles((2, 1), 6, specs(1000)).to_json(file))
    assert (content["content"], content["record-count"]) == ("POSITION_DELETES", 2)
    optional = {"referenced-data-file", "content-offset", "content-size-in-bytes", "equality-ids", "file-format"}
    assert {key: value for key, value in content.items() if key in optional} == described


def _data(file: LakeFile) -> LakeFile:
    return LakeFile(FileContent.DATA, file.bucket, file.location, file.size_bytes, file.metrics)


def test_a_packed_file_has_the_same_description_in_less_memory():
    files = ContentFiles((1,), 6, specs(1000))
    long = FileMetrics(3, lower_bounds=dict.fromkeys(range(200), b"x" * 100))
    file = LakeFile(FileContent.DATA, 3, "file:/lake/a.parquet", 1234, long)
    packed = files.packed(file)
    assert files.to_json(packed) == files.to_json(file)
    assert packed.metrics == FileMetrics(0)
    assert len(packed.packed) < len(files.to_json(file)) / 10
    assert (packed.location, packed.bucket, packed.size_bytes, packed.content) == (
        file.location,
        file.bucket,
        file.size_bytes,
        file.content,
    )


def test_a_file_whose_place_does_not_go_with_the_spec_is_refused():
    file = LakeFile(FileContent.DATA, 3, "file:/lake/a.parquet", 1234, METRICS, ("mon",))
    with pytest.raises(ValueError, match="zip"):
        ContentFiles((), 6, specs(1000)).to_json(file)
