"""Tables that were dropped: the outcomes of their last rounds are kept for a while, for clients that wait for them."""

from __future__ import annotations

from typing import Final

from fluss_tiering.server.core.store.protocol import TieringStore

_KEPT_MS: Final = 7 * 24 * 60 * 60 * 1000
"""How long an outcome is kept. No task waits for one, or is retried, for so long."""
_PRUNED_AT_ONCE: Final = 100


class DroppedTables:
    """The dropped tables that still have rounds in the store. It is used in the control thread only.

    Args:
        store: The persisted rounds.
    """

    def __init__(self, store: TieringStore) -> None:
        self._store = store
        self._times = dict(store.dropped_tables())

    def note(self, table_id: int, now: int) -> None:
        """Begin to count the time since a table was dropped.

        Args:
            table_id: The id of the table.
            now: The time of the drop, in milliseconds since the epoch.
        """
        self._times[table_id] = now

    def prune(self, now: int) -> None:
        """Delete the rounds of tables that were dropped long ago, of as many tables as one call may."""
        old = [table_id for table_id, time in self._times.items() if time < now - _KEPT_MS][:_PRUNED_AT_ONCE]
        if not old:
            return
        with self._store.transaction() as transaction:
            transaction.delete_rounds(old)
        for table_id in old:
            del self._times[table_id]
