"""What comes next for tables: how many records wait, and when the next round is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fluss_tiering.cli import output
from fluss_tiering.client import TieringClient
from fluss_tiering.client.unchanged import records_waiting
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.table_options import freshness_ms
from fluss_tiering.model.tiering import TieringState, TieringStatus

_MOST_TABLES: Final = 200
"""For more tables, the calls would make the command slow. It then shows neither number."""
_EMBEDDED: Final = "embedded"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What comes next for a table.

    Attributes:
        waiting: The number of log records that are not in the lake; None if it is not known.
        next_round: When the table becomes Pending by itself, in ms since the epoch; None if that is not known, or if
            the table is not Scheduled or Failed. On a Fluss cluster the coordinator decides when a table is due.
    """

    waiting: int | None = None
    next_round: int | None = None

    def as_json(self) -> dict[str, object]:
        """Return the outlook as the rest of a status's JSON object."""
        return {"records_waiting": self.waiting, "next_round_time": output.iso_time(self.next_round)}


def unknown_outlooks(statuses: Sequence[TieringStatus]) -> dict[TablePath, Outlook]:
    """Return the outlooks of which only what the statuses say is known."""
    return {each.path: Outlook(next_round=each.next_retry_time) for each in statuses}


def look_ahead(client: TieringClient, statuses: Sequence[TieringStatus]) -> dict[TablePath, Outlook]:
    """Return the outlook of each table.

    Raises:
        FlussTieringError: UNAVAILABLE or NOT_LEADER_OR_FOLLOWER if the server or its cluster does not answer.
    """
    if len(statuses) > _MOST_TABLES:
        return unknown_outlooks(statuses)
    waiting = records_waiting(client, [each.path for each in statuses])
    by_freshness = client.describe_storage().kind == _EMBEDDED
    return {
        each.path: Outlook(waiting.get(each.path), _next_round(client, each) if by_freshness else each.next_retry_time)
        for each in statuses
    }


def _next_round(client: TieringClient, status: TieringStatus) -> int | None:
    if status.state is not TieringState.SCHEDULED:
        return status.next_retry_time
    try:
        (table,) = client.get_tables([status.path])
    except FlussTieringError:
        # It was dropped since its status was listed.
        return None
    last = status.last_tiered_time
    return (table.created_time if last is None else last) + freshness_ms(table.descriptor.properties)
