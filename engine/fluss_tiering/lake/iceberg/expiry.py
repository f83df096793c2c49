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

from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.library import ask
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


def expirable_snapshots(
    lake: IcebergTable, known: int | None, *, older_than_ms: int | None, retain_last: int | None
) -> Expirable:
    """Return the snapshots that are old enough and not among the newest ones.

    Args:
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
        asked = {"known": known, "olderThanMs": older_than_ms, "retainLast": retain_last}
        found = ask(table, "expirable", asked)
    if "lost" in found:
        raise FlussTieringError(
            ErrorCode.LAKE_TABLE_MISMATCH,
            f"the main branch of the lake table {table.name()} has a snapshot age of its own, by which Iceberg would "
            f"expire the snapshot {found['lost']} that recovery needs: set history.expire.max-snapshot-age-ms of the "
            "table instead",
        )
    return Expirable(found["free"], found["needed"], found["all"])
