"""Sizes as Fluss's options give them."""

import pytest

from cases import cases
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.units import memory_size_text, parse_memory_size


@cases(
    ("text", "size"),
    [("10mb", 10 << 20), ("4 MB", 4 << 20), ("1kb", 1024), ("1024", 1024), ("7 bytes", 7), ("2g", 2 << 30), ("0", 0)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_memory_size(text) == size


@cases("text", ["", "mb", "-1mb", "1.5mb", "10 mib", "ten", "1" * 40])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(FlussTieringError, match="not a size") as refused:
        parse_memory_size(text)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@cases(
    ("size", "text"),
    [(64 << 20, "64mb"), (1536, "1536b"), (2 << 30, "2gb"), (3 << 40, "3tb"), (5 << 10, "5kb"), (0, "0b")],
)
def test_a_size_is_written_in_the_largest_unit(size: int, text: str) -> None:
    assert memory_size_text(size) == text
    assert parse_memory_size(text) == size
