"""Durations and sizes as Fluss writes them in options: `3min`, `500ms` (its `TimeUtils`), `10mb` (its `MemorySize`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_NANOS_BY_LABEL: Final[Mapping[str, int]] = {
    label: nanos
    for nanos, labels in (
        (86_400_000_000_000, ("d", "day", "days")),
        (3_600_000_000_000, ("h", "hour", "hours")),
        (60_000_000_000, ("m", "min", "minute", "minutes")),
        (1_000_000_000, ("s", "sec", "secs", "second", "seconds")),
        (1_000_000, ("ms", "milli", "millis", "millisecond", "milliseconds")),
        (1_000, ("µs", "micro", "micros", "microsecond", "microseconds")),
        (1, ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
    )
    for label in labels
}
_DURATION: Final = re.compile(r"0*([0-9]+)\s*([a-zµ]+)")
_MAX_MS: Final = 10 * 365 * 86_400_000
_MAX_DIGITS: Final = 18
"""A longer number is more than ten years in each unit. Python reads no number of thousands of digits."""
_BYTES_BY_LABEL: Final[Mapping[str, int]] = {
    label: 1 << 10 * power
    for power, labels in enumerate(
        (
            ("", "b", "bytes"),
            ("k", "kb", "kibibytes"),
            ("m", "mb", "mebibytes"),
            ("g", "gb", "gibibytes"),
            ("t", "tb", "tebibytes"),
        )
    )
    for label in labels
}
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([a-z]*)")


def parse_duration_ms(text: str) -> int:
    """Return a duration in whole milliseconds, rounded down.

    Raises:
        FlussTieringError: INVALID_REQUEST if the text is not a whole number with a unit, or is more than ten years.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match.group(2) not in _NANOS_BY_LABEL:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{text!r} is not a duration: expected a whole number and a unit (ns, µs, ms, s, min, h, d), "
            "for example 3min or 3 minutes",
        )
    number, label = match.groups()
    milliseconds = int(number[: _MAX_DIGITS + 1]) * _NANOS_BY_LABEL[label] // 1_000_000
    if milliseconds > _MAX_MS:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"the duration {text!r} is longer than ten years: expected a shorter one"
        )
    return milliseconds


def duration_text(milliseconds: int) -> str:
    """Return a duration as users write it, in the largest unit in which it is a whole number, such as `36h`."""
    nanos = milliseconds * 1_000_000
    unit = next((each for each in ("d", "h", "min", "s") if nanos % _NANOS_BY_LABEL[each] == 0), "ms") if nanos else "s"
    return f"{nanos // _NANOS_BY_LABEL[unit]}{unit}"


def parse_memory_size(text: str) -> int:
    """Return a size in bytes. One kb has 1024 bytes.

    Raises:
        FlussTieringError: INVALID_REQUEST if the text is not a whole number with or without a unit.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match.group(2) not in _BYTES_BY_LABEL:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{text!r} is not a size: expected a whole number and a unit (b, kb, mb, gb, tb), for example 10mb",
        )
    return int(match.group(1)) * _BYTES_BY_LABEL[match.group(2)]


def memory_size_text(size: int) -> str:
    """Return a size as users write it, in the largest unit in which it is a whole number, such as `64mb`."""
    unit = next((each for each in ("tb", "gb", "mb", "kb") if size and size % _BYTES_BY_LABEL[each] == 0), "b")
    return f"{size // _BYTES_BY_LABEL[unit]}{unit}"
