"""Durations as Fluss writes them."""

from __future__ import annotations

import pytest

from fluss_tiering.model.duration import duration_text, parse_duration_ms
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


@pytest.mark.parametrize(
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
    ],
)
def test_durations(text: str, milliseconds: int) -> None:  # S2
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "3", "min", "-1s", "1.5s", "3 fortnights", "9" * 30 + "s", "100000d", "١s"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(FlussTieringError) as refused:
        parse_duration_ms(text)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert repr(text) in refused.value.message


@pytest.mark.parametrize("text", ["0s", "1ms", "1500ms", "90s", "90min", "36h", "3d"])
def test_a_duration_is_shown_as_it_is_written(text: str) -> None:
    assert duration_text(parse_duration_ms(text)) == text
