"""Points in time as messages show them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(time_ms: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
