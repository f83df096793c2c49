"""Durations as Fluss writes them."""

from __future__ import annotations

from refusals import refused

from cases import cases
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.units import duration_text, parse_duration_ms


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
