"""What keeps a lease from being acquired: the limits of the server, and leases that cannot be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.plural import counted


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


class DamagedLeases:
    """The leases that cannot be loaded. While there is one, no KV snapshot may be collected."""

    def __init__(self, damage: Mapping[str, str]) -> None:
        """Keep the damaged leases.

        Args:
            damage: What is wrong with each lease, by lease id.
        """
        self._damage = dict(damage)

    def __contains__(self, lease_id: str) -> bool:
        return lease_id in self._damage

    @property
    def collection_stopped_reason(self) -> str | None:
        """The reason why no KV snapshot may be collected, with the remedy; None if no lease is damaged."""
        if not self._damage:
            return None
        which = "; ".join(f"{lease_id}: {damage}" for lease_id, damage in sorted(self._damage.items()))
        return (
            f"{counted(len(self._damage), 'lease')} in the server's database cannot be loaded ({which}), so that it is "
            "not known which KV snapshots are pinned: no KV snapshot is collected until each such lease is dropped "
            "(fluss-tiering leases drop LEASE) or the database is restored from a backup"
        )

    def refuse(self, lease_id: str) -> None:
        """Check that a lease is not damaged.

        Raises:
            FlussTieringError: CORRUPT_DATA if it is.
        """
        if lease_id in self._damage:
            raise self.error(lease_id)

    def error(self, lease_id: str) -> FlussTieringError:
        """Return the error that says what to do with a damaged lease."""
        return FlussTieringError(
            ErrorCode.CORRUPT_DATA,
            f"lease {lease_id} cannot be loaded from the server's database ({self._damage[lease_id]}): it is not "
            "known which KV snapshots it pins, so none are deleted; drop it (fluss-tiering leases drop "
            f"{lease_id}) and acquire it again, or restore the database from a backup",
        )

    def discard(self, lease_id: str) -> None:
        """Remove a lease that was dropped."""
        self._damage.pop(lease_id, None)
