"""Leases that cannot be loaded from the store: nobody knows which KV snapshots they pin."""

from __future__ import annotations

from collections.abc import Mapping

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.plural import counted


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
