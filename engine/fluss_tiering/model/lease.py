"""KV snapshot leases, which keep the KV snapshots that a round reads from being collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fluss_tiering.model.table import TableBucket

DEFAULT_LEASE_DURATION_MS: Final = 6 * 60 * 60 * 1000
"""How long a lease lasts, in milliseconds. A round renews its lease whenever a third of this time has passed."""


@dataclass(frozen=True, slots=True)
class KvSnapshotLease:
    """A lease and the KV snapshots that it pins. Times are in milliseconds since the epoch.

    Attributes:
        lease_id: The id of the lease.
        acquired_time: When the lease was first acquired.
        expiration_time: When the lease expires unless it is renewed.
        attempt_token: The token of the newest attempt under this id.
        snapshots: The pinned snapshots: bucket -> snapshot id.
    """

    lease_id: str
    acquired_time: int
    expiration_time: int
    attempt_token: int
    snapshots: Mapping[TableBucket, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AcquiredLease:
    """The answer to an acquire.

    Attributes:
        lease_id: The id of the lease.
        attempt_token: The token of the attempt that begins with this acquire.
        expiration_time: When the lease expires, in milliseconds since the epoch; 0 if nothing was pinned.
        unavailable_snapshots: The requested snapshots that do not exist: bucket -> snapshot id.
    """

    lease_id: str
    attempt_token: int
    expiration_time: int
    unavailable_snapshots: Mapping[TableBucket, int] = field(default_factory=dict)


class LeaseDrop(StrEnum):
    """The answer to dropping a lease. UNKNOWN (no such lease) and STALE (a stale attempt) changed nothing."""

    DROPPED = "dropped"
    UNKNOWN = "unknown"
    STALE = "stale"
