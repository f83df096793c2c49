"""The health of the Fluss cluster behind a server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ClusterHealthStatus(StrEnum):
    """The verdict of a cluster's coordinator.

    GREEN: all replicas are in sync. YELLOW: some are not. RED: some buckets have no leader that serves. UNKNOWN: the
    coordinator does not know, or does not answer; the numbers are 0 then.
    """

    GREEN = "Green"
    YELLOW = "Yellow"
    RED = "Red"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The health of a cluster, as its coordinator sees it.

    Attributes:
        status: The verdict.
        replicas: The number of replicas of all buckets.
        in_sync_replicas: The number of replicas that have all that their leader has.
        buckets: The number of buckets.
        active_leaders: The number of buckets whose leader serves.
    """

    status: ClusterHealthStatus
    replicas: int
    in_sync_replicas: int
    buckets: int
    active_leaders: int
