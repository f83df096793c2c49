"""How many leases, pins and lease ids a server keeps, so that no client can use up its memory or its disk."""

from __future__ import annotations

from dataclasses import dataclass

from fluss_tiering.model.errors import ErrorCode, FlussTieringError


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """The limits of leases, which an operator sets.

    Attributes:
        leases: The largest number of leases.
        snapshots: The largest number of pinned snapshots. A snapshot counts once for each lease that pins it.
        lease_ids: The largest number of lease ids whose newest attempt is remembered.
    """

    leases: int = 100_000
    snapshots: int = 1_000_000
    lease_ids: int = 1_000_000

    def check(self, lease_id: str, *, leases: int, snapshots: int, lease_ids: int) -> None:
        """Check what the server would have after an acquire.

        Args:
            lease_id: The lease that is acquired.
            leases: The number of leases.
            snapshots: The number of pinned snapshots.
            lease_ids: The number of lease ids.

        Raises:
            FlussTieringError: LIMIT_EXCEEDED if it is more than a limit allows.
        """
        for what, number, limit, setting in (
            ("leases", leases, self.leases, "kv-snapshot-lease-max"),
            ("pinned KV snapshots", snapshots, self.snapshots, "kv-snapshot-lease-max-snapshots"),
            ("lease ids", lease_ids, self.lease_ids, "kv-snapshot-lease-max-ids"),
        ):
            if number > limit:
                raise FlussTieringError(
                    ErrorCode.LIMIT_EXCEEDED,
                    f"lease {lease_id} would be more than the server keeps: {number} {what}, and {setting} allows "
                    f"{limit}; release leases that are no longer used, or raise the setting",
                )
