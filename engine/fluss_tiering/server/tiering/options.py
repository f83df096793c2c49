"""The table options that decide whether and how often a table is tiered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from fluss_tiering.model.table_options import (
    LAKE_AUTO_COMPACTION,
    LAKE_AUTO_EXPIRE_SNAPSHOT,
    LAKE_ENABLED,
    LAKE_TIER_WHEN_UNCHANGED,
    freshness_ms,
    is_set,
    max_round_duration_ms,
)

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
        enabled = is_set(properties, LAKE_ENABLED)
        # Only drivers use these options, and they would find an invalid value too late.
        max_round_duration_ms(properties)
        for option in (LAKE_AUTO_COMPACTION, LAKE_AUTO_EXPIRE_SNAPSHOT):
            is_set(properties, option)
        return cls(enabled, freshness_ms(properties), is_set(properties, LAKE_TIER_WHEN_UNCHANGED))
