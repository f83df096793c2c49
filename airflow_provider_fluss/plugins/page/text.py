"""Values as the page shows them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

from fluss_tiering.short_times import NOTHING, distance, duration, lag, took

__all__ = ["NOTHING", "distance", "duration", "lag", "took"]

_SIZES: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def iso(time: int | None) -> str:
    """Return a time in ms since the epoch as ISO 8601 in UTC; empty if there is none."""
    return "" if time is None else datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds")


def utc(time: int) -> str:
    """Return a time in ms since the epoch in UTC. The page's script writes it in the time zone of Airflow."""
    return f"{datetime.fromtimestamp(time / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def breakable(name: str) -> Markup:
    """Return a name that a browser may break behind its dots and underscores."""
    return Markup(re.sub("([._]+)", r"\1<wbr>", str(escape(name))))  # noqa: S704 - escaped


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
