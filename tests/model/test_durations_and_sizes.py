"""Durations and sizes as Fluss writes them, and how far a lake table is behind."""

from __future__ import annotations

import pytest
from refusals import refused

from cases import cases
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.model.units import duration_text, memory_size_text, parse_duration_ms, parse_memory_size


@cases(
    ("text", "milliseconds"),
    [
        ("3min", 180_000),
        ("30s", 30_000),
        ("1 s", 1_000),
        ("500ms", 500),
        ("0s", 0),
        ("2 h", 7_200_000),
        ("1d", 86_400_000),
        ("2 Minutes", 120_000),
        (" 5m ", 300_000),
        ("1500 µs", 1),
        ("7000000ns", 7),
        ("000000000000000000000000000001s", 1_000),
        ("3650d", 315_360_000_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:  # S2
    assert parse_duration_ms(text) == milliseconds


@cases("text", ["", "3", "min", "-1s", "1.5s", "3 fortnights", "9" * 30 + "s", "100000d", "١s"])
def test_other_texts_are_refused(text: str) -> None:
    with refused(ErrorCode.INVALID_REQUEST, repr(text)):
        parse_duration_ms(text)


@cases("text", ["3651d", "9" * 20 + "d", "1" + "0" * 18 + "ns", "9" * 5000 + " µs"])
def test_more_than_ten_years_are_refused_as_such(text: str) -> None:
    with refused(ErrorCode.INVALID_REQUEST, "is longer than ten years"):
        parse_duration_ms(text)


@cases("text", ["0s", "1ms", "1500ms", "90s", "90min", "36h", "3d"])
def test_a_duration_is_shown_as_it_is_written(text: str) -> None:
    assert duration_text(parse_duration_ms(text)) == text


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


@cases(("records", "since", "lag"), [(None, None, None), (0, None, 0), (3, 900, 100), (3, 1000, 0), (3, 1001, 0)])
def test_the_lag_counts_from_the_oldest_record_that_waits(
    records: int | None, since: int | None, lag: int | None
) -> None:  # D27
    status = TieringStatus(
        1, TablePath("db", "t"), TieringState.SCHEDULED, 0, 1, records_waiting=records, waiting_since=since
    )
    assert status.lag_ms(1000) == lag
