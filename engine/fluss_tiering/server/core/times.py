"""Points in time in the form that messages show."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(time_ms: int) -> str:
    """Return milliseconds since the epoch as ISO 8601 in UTC, without fractions of a second."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
