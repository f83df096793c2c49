"""The rules of tiering: those of the server, and those that the options of a table set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from fluss_tiering.model.table_options import (
    LAKE_ENABLED,
    LAKE_TIER_WHEN_UNCHANGED,
    check_tiering_options,
    freshness_ms,
    is_set,
)
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


ENABLED: Final = LAKE_ENABLED.key


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """The options of a table's tiering.

    Attributes:
        enabled: Whether the table is tiered.
        freshness_ms: How far the lake table may fall behind the Fluss table, in milliseconds.
        due_unchanged: Whether the table is due at each freshness, also if nothing was written.
    """

    enabled: bool
    freshness_ms: int
    due_unchanged: bool

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Return the options among a table's properties. As in Fluss, the default is not enabled and 3 minutes.

        Raises:
            FlussTieringError: INVALID_TABLE if an option has an invalid value.
        """
        # Drivers would find an invalid value of their options too late.
        check_tiering_options(properties)
        return cls(
            is_set(properties, LAKE_ENABLED), freshness_ms(properties), is_set(properties, LAKE_TIER_WHEN_UNCHANGED)
        )
