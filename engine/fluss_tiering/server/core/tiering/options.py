"""The table options that decide whether and how often a table is tiered."""

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
