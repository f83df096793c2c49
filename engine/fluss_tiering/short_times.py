"""Times and time spans in a few letters, for columns that people read at a glance."""

from __future__ import annotations

from typing import Final

NOTHING: Final = "–"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


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
    # The largest unit alone: what is shown is read at a glance.
    size, unit = next((size, unit) for size, unit in _UNITS if abs(away) >= size)
    rounded = f"{abs(away) // size} {unit}"
    return f"in {rounded}" if away > 0 else f"{rounded} ago"
