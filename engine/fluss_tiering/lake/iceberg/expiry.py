"""Which snapshots of a lake table may go.

Age and number are Iceberg's own rules, with the table's `history.expire.*` properties where nothing else is asked for.
On top of that every snapshot stays from the one on that the storage knows: it is what Fluss's readers read, a commit
above it may be one of ours that was never registered, and recovery walks from the head down to it. The storage's
snapshot is the newest commit of ours, or an older one, so that this one is never expired either. Where the storage
knows none, all stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py4j.java_gateway import JavaObject

from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


@dataclass(frozen=True, slots=True)
class Expirable:
    """Snapshots that are old enough to go.

    Attributes:
        free: ids of those that may go.
        needed: how many must stay all the same.
        all_snapshots: how many the table has.
    """

    free: Sequence[int]
    needed: int
    all_snapshots: int


def expirable_snapshots(
    lake: IcebergTable, known: int | None, *, older_than_ms: int | None, retain_last: int | None
) -> Expirable:
    """The snapshots that are older than a time and not among the last ones.

    Args:
        lake: the table.
        known: the snapshot that the storage knows; read before the table was opened.
        older_than_ms: since the epoch; None for what the table's properties say.
        retain_last: snapshots of a branch that stay whatever their age; None as above.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH when the lake's history is not that of the table; STORAGE.
    """
    # Fails when the known snapshot is not in the history.
    lake.unregistered_commit(known)
    table = lake.java_table
    with lake_errors(f"read the history of the lake table {table.name()}"):
        rule = table.expireSnapshots()
        if older_than_ms is not None:
            rule = rule.expireOlderThan(older_than_ms)
        if retain_last is not None:
            rule = rule.retainLast(retain_last)
        old = _removed_by(rule)
        needed = _down_to(table, known)
        free = sorted(old - needed)
        exact = table.expireSnapshots().expireOlderThan(0)
        for snapshot in free:
            exact = exact.expireSnapshotId(snapshot)
        surplus = _removed_by(exact) & needed
    if surplus:
        raise FlussTieringError(
            ErrorCode.LAKE_TABLE_MISMATCH,
            f"the main branch of the lake table {table.name()} has a snapshot age of its own, by which Iceberg would "
            f"expire the snapshot {min(surplus)} that recovery needs: set history.expire.max-snapshot-age-ms of the "
            "table instead",
        )
    return Expirable(free, len(old) - len(free), len(table.snapshots()))


def _removed_by(rule: JavaObject) -> set[int]:
    """The snapshots that an expiry would remove; it is not carried out."""
    return {int(snapshot.snapshotId()) for snapshot in rule.apply()}


def _down_to(table: JavaObject, known: int | None) -> set[int]:
    """The snapshots from the newest down to the known one; without one, all in the newest one's history."""
    needed = set()
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        needed.add(int(snapshot.snapshotId()))
        if snapshot.snapshotId() == known or snapshot.parentId() is None:
            break
        snapshot = table.snapshot(snapshot.parentId())
    return needed
