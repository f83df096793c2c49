"""The table options that decide whether and how often a table is tiered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table_options import LAKE_ENABLED, freshness_ms, max_round_duration_ms

ENABLED: Final = LAKE_ENABLED.key
ICEBERG_PREFIX: Final = "table.datalake.iceberg."
"""What stands behind it overrides a property of the server's lake catalog for this table."""


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Whether a table is tiered, and how old its lake table may become."""

    enabled: bool
    freshness_ms: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """The options in a table's properties; not enabled and 3 min by default, as in Fluss (S2).

        Raises:
            FlussTieringError: INVALID_TABLE for values that are none.
        """
        enabled = properties.get(ENABLED, LAKE_ENABLED.default).strip().lower()
        if enabled not in ("true", "false"):
            raise FlussTieringError(ErrorCode.INVALID_TABLE, f"{ENABLED} is {enabled!r}: expected true or false")
        # Only a driver needs it, which would find out too late that it is no duration.
        max_round_duration_ms(properties)
        return cls(enabled == "true", freshness_ms(properties))
