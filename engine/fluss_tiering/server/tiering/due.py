"""Tables that become Pending because their time has come, and the one that is handed out first."""

from __future__ import annotations

from typing import Final

from fluss_tiering.model.tiering import Claim
from fluss_tiering.server.tiering.changes import TieringChanges
from fluss_tiering.server.tiering.states import RoundOwner, begin, is_due, pend
from fluss_tiering.server.tiering.tables import TieredTables

MOVED_AT_ONCE: Final = 50
"""How many due tables become Pending in one turn.

After a restart many thousands may be due together, and heartbeats must not wait for all of them.
"""


def move_due(tables: TieredTables, changes: TieringChanges, now: int) -> bool:
    """Move Scheduled and Failed tables whose time has come to Pending, as many as one turn may move.

    Returns:
        Whether there were so many, so that the caller repeats the call for the others.
    """
    moved = 0
    for table_id in tables.due.until(now):
        if moved == MOVED_AT_ONCE:
            break
        table = changes.table(table_id)
        if table is not None and is_due(table, now):
            changes.put(pend(table, now))
            moved += 1
    return moved == MOVED_AT_ONCE


def hand_out(tables: TieredTables, changes: TieringChanges, requester: RoundOwner, now: int) -> Claim | None:
    """Claim the table that has been Pending for longest; return None if no table is Pending or due."""
    first = changes.first_pending()
    if first is None:
        # Due tables are moved only if none is Pending: they would come last anyway, and may be thousands.
        move_due(tables, changes, now)
        first = changes.first_pending()
    if first is None:
        return None
    changes.put(begin(first, requester, now))
    status = first.status
    return Claim(status.table_id, status.path, status.tiering_epoch, requester.coordinator_epoch)
