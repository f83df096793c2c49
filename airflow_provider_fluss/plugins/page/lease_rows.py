"""Leases as the page shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.tiering import KvSnapshotLease, TieringStatus

MOST_LEASES: Final = 500
"""A page shows this many leases, those that expire first."""


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease as the page shows it.

    Attributes:
        lease: The lease.
        tables: The names of its tables in their order; the id stands for a table that the server does not tier.
        left: The part of the time since the lease was acquired or renewed that is left, from 0 to 100.
    """

    lease: KvSnapshotLease
    tables: tuple[str, ...]
    left: int


def lease_rows(leases: Iterable[KvSnapshotLease], statuses: Iterable[TieringStatus], now: int) -> list[LeaseRow]:
    """Return the rows of these leases. `now` is in ms since the epoch."""
    names = {each.table_id: str(each.path) for each in statuses}
    return [
        LeaseRow(
            lease,
            tuple(sorted({names.get(each.table_id, f"table {each.table_id}") for each in lease.snapshots})),
            _left(lease, now),
        )
        for lease in leases
    ]


def _left(lease: KvSnapshotLease, now: int) -> int:
    whole = lease.expiration_time - lease.acquired_time
    return min(100, max(0, 100 * (lease.expiration_time - now) // whole)) if whole > 0 else 0
