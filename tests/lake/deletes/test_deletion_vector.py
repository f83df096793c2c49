"""Deletion vectors as blobs, in the form of the Iceberg spec and of Iceberg's own Java code."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.iceberg.java import jvm_of

MAGIC = bytes.fromhex("d1d33964")
POSITIONS = st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 300), st.integers(2**32 - 3, 2**32 + 3))


def vector_of(positions: Sequence[int]) -> DeletionVector:
    vector = DeletionVector()
    vector.add(np.asarray(positions, np.int64))
    return vector


def blob_around(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def test_an_empty_vector_is_the_count_of_no_bitmaps() -> None:
    assert DeletionVector().to_blob() == blob_around(MAGIC + bytes(8))
    assert len(DeletionVector.from_blob(blob_around(MAGIC + bytes(8)))) == 0


def test_bitmaps_are_by_the_upper_halves_of_positions() -> None:
    # Roaring's format: a cookie, the number of containers, for each its key and its cardinality less 1, its offset,
    # and then its values in 16 bits.
    low = struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 3, 9)
    high = struct.pack("<IIHHIH", 12346, 1, 2, 0, 16, 5)
    bitmaps = struct.pack("<QI", 2, 0) + low + struct.pack("<I", 7) + high
    positions = [9, 3, (7 << 32) + (2 << 16) + 5]
    assert vector_of(positions).to_blob() == blob_around(MAGIC + bitmaps)
    assert DeletionVector.from_blob(blob_around(MAGIC + bitmaps)).positions().tolist() == sorted(positions)


@given(st.lists(POSITIONS), st.lists(POSITIONS))
def test_a_vector_is_a_set_of_positions(some: list[int], more: list[int]) -> None:
    vector = vector_of(some)
    vector.update(vector_of(more))
    read = DeletionVector.from_blob(vector.to_blob())
    assert read.positions().tolist() == sorted({*some, *more})
    assert read.positions().dtype == np.int64
    assert len(read) == len({*some, *more})


def test_many_positions_in_a_row_take_a_few_bytes() -> None:
    vector = vector_of(range(0, 1_000_000, 2))
    vector.add(np.arange(1, 1_000_000, 2))
    assert len(vector.to_blob()) < 400


def test_a_negative_position_is_refused() -> None:
    with pytest.raises(ValueError, match="the position -1 is negative"):
        vector_of([3, -1])


GOOD = vector_of([1, 2, 2**33]).to_blob()


@pytest.mark.parametrize(
    ("blob", "said"),
    [
        (b"", "has 0 bytes, which is too short"),
        (GOOD[:11], "has 11 bytes, which is too short"),
        (GOOD[:-1], f"says that it has {len(GOOD) - 8} bytes, and has {len(GOOD) - 9}"),
        (blob_around(b"\x00" + GOOD[5:-4]), "begins with 00d33964, expected d1d33964"),
        (GOOD[:20] + bytes([GOOD[20] ^ 1]) + GOOD[21:], "the checksum of its deletion vector is"),
        (blob_around(MAGIC), "holds no bitmap"),
        (blob_around(GOOD[4:-9]), "holds no bitmap"),
    ],
)
def test_a_damaged_blob_is_refused(blob: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DeletionVector.from_blob(blob)


@pytest.mark.parametrize(
    "positions",
    [[0], [3, 2**32 - 1, 2**32, 2**33 + 5, 2**36], range(100_000), range(0, 200_000, 2), [0, 2**31, 2**31 + 1]],
    ids=["one", "above 32 bits", "a run", "alternating", "31 bits"],
)
def test_iceberg_s_own_code_reads_and_writes_the_same(spark, positions) -> None:
    """Iceberg's `PositionDeleteIndex`, which Spark, Flink and Trino use."""
    jvm = jvm_of(spark)
    vector = vector_of(positions)
    index = jvm.org.apache.iceberg.deletes.PositionDeleteIndex.deserialize(vector.to_blob(), delete_file(jvm, vector))
    assert index.cardinality() == len(vector)
    assert all(index.isDeleted(position) for position in list(positions)[:20])
    assert not index.isDeleted(max(positions) + 1)
    read = DeletionVector.from_blob(_serialized(index))
    assert read.positions().tolist() == sorted(positions)


def _serialized(index) -> bytes:
    buffer = index.serialize()
    return bytes(buffer.array())[buffer.arrayOffset() : buffer.arrayOffset() + buffer.limit()]


def delete_file(jvm, vector: DeletionVector):
    described = {
        "spec-id": 0,
        "content": "POSITION_DELETES",
        "file-path": "file:/v.puffin",
        "file-format": "PUFFIN",
        "partition": {},
        "file-size-in-bytes": 1000,
        "record-count": len(vector),
        "referenced-data-file": "file:/d.parquet",
        "content-offset": 4,
        "content-size-in-bytes": len(vector.to_blob()),
    }
    node = jvm.org.apache.iceberg.util.JsonUtil.mapper().readTree(json.dumps(described))
    return jvm.org.apache.iceberg.ContentFileParser.fromJson(node, jvm.org.apache.iceberg.PartitionSpec.unpartitioned())
