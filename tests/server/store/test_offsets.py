"""Offsets of a lake snapshot as one value."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import cases
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.core.store.records import PackedOffsets

BUCKETS = st.builds(TableBucket, st.just(7), st.integers(0, (1 << 31) - 1), st.none() | st.integers(0, (1 << 63) - 1))


@given(st.dictionaries(BUCKETS, st.integers(-1, (1 << 63) - 1)))
def test_offsets_come_back_as_they_were_packed(offsets: dict[TableBucket, int]) -> None:  # S24
    assert PackedOffsets.of(offsets).unpack(7) == offsets


def test_packed_offsets_keep_their_form() -> None:
    packed = PackedOffsets(
        b"\x01" + zlib.compress(b"\xff" * 8 + b"\x05" + b"\0" * 7 + b"\x02\0\0\0\x01\0\0\0" + (b"\x03" + b"\0" * 7) * 2)
    )
    assert packed.unpack(7) == {TableBucket(7, 2): 3, TableBucket(7, 1, 5): 3}


@cases("data", [b"", b"\x02", b"\x01", b"\x01junk", b"\x01" + zlib.compress(b"123")])
def test_what_no_server_packed_is_told(data: bytes) -> None:
    with pytest.raises(FlussTieringError, match="table 7") as refused:
        PackedOffsets(data).unpack(7)
    assert refused.value.code is ErrorCode.CORRUPT_DATA
