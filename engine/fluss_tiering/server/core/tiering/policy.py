"""The rules that an operator or the storage sets for tiering."""

from __future__ import annotations

from dataclasses import dataclass

from fluss_tiering.server.core.tiering.states import FailureBackoff


@dataclass(frozen=True, slots=True)
class TieringPolicy:
    """The rules of tiering, the same for all tables of a server.

    Attributes:
        heartbeat_timeout_ms: A round that sends no heartbeat for this long is interrupted, in milliseconds.
        backoff: How long failed tables wait before their next round.
        kept_rounds: How many ended rounds the history of each table keeps.
        max_round_ms: How long a round may run, however many heartbeats it sends, in milliseconds.
        due_by_freshness: Whether tables become Pending by themselves. On a Fluss cluster the coordinator decides.
    """

    heartbeat_timeout_ms: int
    backoff: FailureBackoff
    kept_rounds: int
    due_by_freshness: bool = True
    max_round_ms: int = 7 * 24 * 60 * 60 * 1000
