"""Which snapshots of a lake table may be expired.

Iceberg's own rules decide by age and number, with the table's `history.expire.*` properties as default. In addition,
the snapshot that the storage knows and all newer ones are kept. Fluss's readers read the known one. A newer one may be
a commit of ours that was never registered, and recovery walks from the newest one down to the known one. The known
snapshot is our newest commit or an older one, so our newest commit is never expired. If the storage knows no snapshot,
all are kept.
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
    """The snapshots that are old enough to be expired.

    Attributes:
        free: The ids of those that may be expired, the oldest first.
        needed: The number of those that must be kept nevertheless.
        all_snapshots: The number of all snapshots of the table.
    """

    free: Sequence[int]
    needed: int
    all_snapshots: int


def keeps_all_files(table: JavaObject) -> bool:
    """Return whether Iceberg refuses to expire snapshots and to delete orphan files of a table.

    Nessie's catalog asks for it, since what one of its branches does not need may belong to another one.
    """
    return str(table.properties().getOrDefault("gc.enabled", "true")).lower() == "false"


def expirable_snapshots(
    lake: IcebergTable, known: int | None, *, older_than_ms: int | None, retain_last: int | None
) -> Expirable:
    """Return the snapshots that are old enough and not among the newest ones.

    Args:
        lake: The lake table.
        known: The snapshot that the storage knows. It must be read before the lake table is opened.
        older_than_ms: The time, in milliseconds since the epoch, before which a snapshot is old; None for what the
            table's properties say.
        retain_last: How many snapshots of a branch are kept at any age; None for what the table's properties say.

    Raises:
        FlussTieringError: LAKE_TABLE_MISMATCH if the lake's history does not belong to the table; STORAGE if the lake
            cannot be read.
    """
    # This fails if the known snapshot is not in the history.
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
        snapshots = [int(snapshot.snapshotId()) for snapshot in table.snapshots()]
        free = [snapshot for snapshot in snapshots if snapshot in old - needed]
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
    return Expirable(free, len(old) - len(free), len(snapshots))


def _removed_by(rule: JavaObject) -> set[int]:
    """Return the snapshots that an expiry would remove, without removing them."""
    return {int(snapshot.snapshotId()) for snapshot in rule.apply()}


def _down_to(table: JavaObject, known: int | None) -> set[int]:
    """Return the snapshots from the newest down to the known one; the whole history if none is known."""
    needed = set()
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        needed.add(int(snapshot.snapshotId()))
        if snapshot.snapshotId() == known or snapshot.parentId() is None:
            break
        snapshot = table.snapshot(snapshot.parentId())
    return needed
