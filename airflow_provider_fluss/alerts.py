"""Which tables need somebody, judged by their tiering statuses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from fluss_tiering.model.tiering import TieringStatus

DEFAULT_LAG_FACTOR: Final = 3.0


def alerts(statuses: Iterable[TieringStatus], now: int, lag_factor: float = DEFAULT_LAG_FACTOR) -> list[str]:
    """Return one sentence for each table that is parked, or that lags behind for too long.

    A round that was interrupted is no reason for an alert, because the table is tried again by itself. A table whose
    lag or freshness the server does not know is left out, unless it is parked.

    Args:
        statuses: The statuses of the tables.
        now: The present time, in milliseconds since the epoch.
        lag_factor: How many times its freshness a table may lag behind.
    """
    return [text for status in statuses if (text := _alert(status, now, lag_factor)) is not None]


def _alert(status: TieringStatus, now: int, lag_factor: float) -> str | None:
    if status.parked:
        cause = " ".join((status.last_error or "no reason is known").split())
        return f"{status.path} is parked after {status.consecutive_failures} failures in a row: {cause}"
    lag, freshness = status.lag_ms(now), status.freshness_ms
    if lag is None or freshness is None or lag <= lag_factor * freshness:
        return None
    return (
        f"{status.path} is {status.state}, and its oldest row that is not in the lake has waited for {_text(lag)}: "
        f"its freshness is {_text(freshness)}"
    )


def _text(milliseconds: int) -> str:
    return str(timedelta(seconds=milliseconds // 1000))
