"""KV snapshot leases (seeds L1-L24)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fluss_tiering.model.table import TableBucket

DEFAULT_LEASE_DURATION_MS: Final = 6 * 60 * 60 * 1000
"""L16. A round renews its lease every third of it."""


@dataclass(frozen=True, slots=True)
class KvSnapshotLease:
    """What a lease id pins.

    Attributes:
        attempt_token: of the newest acquire under this id.
        snapshots: bucket -> snapshot id.
    """

    lease_id: str
    acquired_time: int
    expiration_time: int
    attempt_token: int
    snapshots: Mapping[TableBucket, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AcquiredLease:
    """The answer to an acquire. `expiration_time` is 0 when nothing was pinned."""

    lease_id: str
    attempt_token: int
    expiration_time: int
    unavailable_snapshots: Mapping[TableBucket, int] = field(default_factory=dict)


class LeaseDrop(StrEnum):
    """The answer to dropping a lease (L8, L22): UNKNOWN and STALE changed nothing."""

    DROPPED = "dropped"
    UNKNOWN = "unknown"
    STALE = "stale"
