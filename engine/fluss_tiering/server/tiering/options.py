"""The table options that decide whether and how often a table is tiered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table_options import (
    LAKE_ENABLED,
    LAKE_TIER_WHEN_UNCHANGED,
    TableOption,
    freshness_ms,
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
        enabled = _boolean(properties, LAKE_ENABLED)
        # Only a driver uses this option, and it would find an invalid value too late.
        max_round_duration_ms(properties)
        return cls(enabled, freshness_ms(properties), _boolean(properties, LAKE_TIER_WHEN_UNCHANGED))


def _boolean(properties: Mapping[str, str], option: TableOption) -> bool:
    value = properties.get(option.key, option.default).strip().lower()
    if value not in ("true", "false"):
        raise FlussTieringError(ErrorCode.INVALID_TABLE, f"{option.key} is {value!r}: expected true or false")
    return value == "true"
