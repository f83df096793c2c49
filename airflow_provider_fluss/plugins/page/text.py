"""Values as the page shows them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

NOTHING: Final = "–"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SIZES: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def duration(milliseconds: int | None) -> str:
    """Return a time span with its two largest units, such as `2 min 5 s`."""
    if milliseconds is None:
        return NOTHING
    if abs(milliseconds) < 1_000:
        return f"{milliseconds} ms"
    seconds = abs(milliseconds) // 1_000
    parts: list[str] = []
    for size, unit in _UNITS:
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def took(milliseconds: int) -> str:
    """Return how long something took: as `duration`, but with tenths of a second if it was less than a minute."""
    if not 1_000 <= milliseconds < 60_000:
        return duration(milliseconds)
    rounded = (milliseconds + 50) // 100 * 100
    return f"{rounded / 1_000:.1f} s" if rounded % 1_000 else duration(rounded)


def lag(milliseconds: int | None) -> str:
    """Return how far a lake table is behind; whole seconds are exact enough."""
    return "0" if milliseconds is not None and milliseconds < 1_000 else duration(milliseconds)


def distance(time: int | None, now: int) -> str:
    """Return how far a time is from now, such as `5 min ago` or `in 20 s`. Both are in ms since the epoch."""
    if time is None:
        return NOTHING
    away = (time - now) // 1_000
    if away == 0:
        return "now"
    # The largest unit alone: a page is read at a glance, and the time itself is the title.
    size, unit = next((size, unit) for size, unit in _UNITS if abs(away) >= size)
    rounded = f"{abs(away) // size} {unit}"
    return f"in {rounded}" if away > 0 else f"{rounded} ago"


def iso(time: int | None) -> str:
    """Return a time in ms since the epoch as ISO 8601 in UTC; empty if there is none."""
    return "" if time is None else datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds")


def count(number: int | None) -> str:
    """Return a number with its thousands apart."""
    return NOTHING if number is None else f"{number:,}"


def size(number: int | None) -> str:
    """Return a number of bytes with a unit."""
    if number is None:
        return NOTHING
    if number < 1024:
        return f"{number} B"
    power = min((number.bit_length() - 1) // 10, len(_SIZES))
    return f"{number / 1024**power:.1f} {_SIZES[power - 1]}"


def one_line(message: str) -> str:
    """Return the first line of a message."""
    return next((line.strip() for line in harmless(message).splitlines() if line.strip()), "")


def harmless(message: str) -> str:
    """Return a message without control characters, except tabs and line ends."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", message)
