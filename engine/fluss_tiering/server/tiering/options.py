"""The table options that decide whether and how often a table is tiered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from fluss_tiering.model.duration import parse_duration_ms
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

ENABLED: Final = "table.datalake.enabled"
FRESHNESS: Final = "table.datalake.freshness"
ICEBERG_PREFIX: Final = "table.datalake.iceberg."
"""What stands behind it overrides a property of the server's lake catalog for this table."""

_DEFAULT_FRESHNESS: Final = "3min"


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
        enabled = properties.get(ENABLED, "false").strip().lower()
        if enabled not in ("true", "false"):
            raise FlussTieringError(ErrorCode.INVALID_TABLE, f"{ENABLED} is {enabled!r}: expected true or false")
        try:
            freshness_ms = parse_duration_ms(properties.get(FRESHNESS, _DEFAULT_FRESHNESS))
        except FlussTieringError as error:
            raise FlussTieringError(ErrorCode.INVALID_TABLE, f"{FRESHNESS}: {error.message}") from error
        return cls(enabled == "true", freshness_ms)
