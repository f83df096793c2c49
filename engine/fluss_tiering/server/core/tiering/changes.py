"""Changes to tables and rounds: they are computed first, then written together, and only then applied in memory."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringRound, TieringState, TieringStatus
from fluss_tiering.server.core.lake.backlogs import Backlogs
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.core.store.transaction import SqlTransaction
from fluss_tiering.server.core.tiering.broadcaster import StatusBroadcaster
from fluss_tiering.server.core.tiering.states import TieredTable, lose, withdrawn
from fluss_tiering.server.core.tiering.tables import TieredTables
from fluss_tiering.server.core.tiering.totals import DroppedTables, RoundTotals

logger = structlog.get_logger(__name__)


class TieringChanges:
    """The changes of one call, laid over the tables as they were. Later steps of the call see the earlier ones.

    Attributes:
        changed: The changed tables by id.
        rounds: The rounds that began or ended, by table id and epoch.
    """

    def __init__(self, tables: TieredTables) -> None:
        self._tables = tables
        self.changed: dict[int, TieredTable] = {}
        self.rounds: dict[tuple[int, int], TieringRound] = {}

    def table(self, table_id: int) -> TieredTable | None:
        """Return the table as it is after the changes so far; None if it is not tiered."""
        return self.changed.get(table_id) or self._tables.get(table_id)

    def first_pending(self, among: Container[TablePath] | None = None) -> TieredTable | None:
        """Return the table that has been Pending for longest; None if no table is Pending.

        Within one millisecond the lower id comes first, so that a restart keeps the order.

        Args:
            among: The tables of which one may be returned; None for all.
        """
        if among is not None:
            return self._first_pending_of(among)
        candidates = [table for table in self.changed.values() if table.status.state is TieringState.PENDING]
        first = self._tables.pending.first()
        if first is not None and first not in self.changed:
            waiting = self._tables.get(first)
            candidates += [waiting] if waiting is not None else []
        return min(candidates, key=_waiting_for_longest, default=None)

    def _first_pending_of(self, among: Container[TablePath]) -> TieredTable | None:
        """Return the first of some tables. This looks at each Pending table."""
        waiting = (self.table(table_id) for table_id in {*self._tables.pending, *self.changed})
        pending = [
            table
            for table in waiting
            if table is not None and table.status.state is TieringState.PENDING and table.status.path in among
        ]
        return min(pending, key=_waiting_for_longest, default=None)

    def round(self, table_id: int, tiering_epoch: int) -> TieringRound | None:
        """Return a round that these changes began or ended; None for any other round."""
        return self.rounds.get((table_id, tiering_epoch))

    def put(self, table: TieredTable, ended: TieringRound | None = None) -> None:
        """Change a table.

        Args:
            table: The table as it is from now on.
            ended: The round that ended with the change; None if none did.
        """
        before = self.table(table.status.table_id)
        self.changed[table.status.table_id] = table
        begun = None if before is not None and table.round is before.round else table.round
        for tiering_round in (ended, begun):
            if tiering_round is not None:
                self.rounds[tiering_round.table_id, tiering_round.tiering_epoch] = tiering_round

    def statuses(self) -> list[TieringStatus]:
        """Return the statuses that changed. A heartbeat alone changes none."""
        changed = []
        for table_id, table in self.changed.items():
            before = self._tables.get(table_id)
            if before is None or table.status is not before.status:
                changed.append(table.status)
        return changed


class TieringLedger:
    """The tables and everything that follows their changes: the store is written before, watchers and totals after.

    Attributes:
        tables: The tables in their present states.
        broadcaster: The broadcaster that tells watchers of changed statuses.
        totals: The totals of the rounds that ended.
        dropped: The tables that were dropped, whose outcomes are kept for a while.
    """

    def __init__(self, store: SqlTieringStore, kept_rounds: int, backlogs: Backlogs) -> None:
        self._store = store
        self._backlogs = backlogs
        self._untold: set[int] = set()
        self._kept_rounds = kept_rounds
        self._withheld: dict[int, tuple[TieringStatus, TieringRound | None]] = {}
        self.dropped = DroppedTables(store)
        self.totals = RoundTotals()
        self.tables = TieredTables(backlogs, self.totals)
        self.broadcaster = StatusBroadcaster()

    @contextmanager
    def changes(self) -> Iterator[TieringChanges]:
        """Collect changes, and write and apply them when the block ends. If the block raises, do neither."""
        self.look_at_backlogs()
        changes = TieringChanges(self.tables)
        yield changes
        if changes.statuses():
            with self._store.transaction() as transaction:
                self.write(changes, transaction)
        self.apply(changes)

    def look_at_backlogs(self) -> None:
        """Take over the backlogs that changed since the last call: they decide which tables are due."""
        self._untold.update(self.tables.look_at_backlogs(self._backlogs.take_changed()))

    def tell_of_backlogs(self) -> None:
        """Tell the watchers of backlogs that changed since they were told."""
        self.look_at_backlogs()
        told, self._untold = self._untold, set()
        if len(self.broadcaster):
            statuses = [self.tables.shown(table_id) for table_id in told]
            self.broadcaster.publish([(status.path, status) for status in statuses if status is not None])

    def note_lost(self, now: int) -> None:
        """Keep with their tables how many records of dropped partitions are not in the lake.

        A table whose round runs comes later, since the round may have read the partition before it was dropped.
        """
        lost = {}
        with self.changes() as changes:
            for table_id in self._backlogs.losing():
                table = changes.table(table_id)
                if table is None or table.round is None:
                    lost[table_id] = self._backlogs.lost(table_id)
                    records = sum(lost[table_id].values())
                    if table is not None and records:
                        changes.put(lose(table, records, now))
        for table_id, buckets in lost.items():
            self._backlogs.forget_lost(table_id, buckets)
            table = self.tables.get(table_id)
            if table is not None:
                self.totals.count_lost(table.status.path, sum(buckets.values()))

    def write(self, changes: TieringChanges, transaction: SqlTransaction) -> None:
        """Write changes to the store, in the caller's transaction."""
        transaction.put_statuses(changes.statuses())
        transaction.put_rounds(list(changes.rounds.values()))
        transaction.prune_rounds({table_id for table_id, _ in changes.rounds}, self._kept_rounds)

    def apply(self, changes: TieringChanges) -> None:
        """Apply changes that are durable: change the tables, tell the watchers, and log what happened."""
        changed = changes.statuses()
        for table in changes.changed.values():
            self.tables.put(table)
        self.broadcaster.publish([(status.path, self.tables.shown(status.table_id)) for status in changed])
        for tiering_round in changes.rounds.values():
            self.totals.count(tiering_round)
            _log_round(tiering_round)

    def withdraw(self, status: TieringStatus, running: TieringRound | None, reason: str, now: int) -> None:
        """End the tiering of a table but keep its epoch. Its running round ends as Failed."""
        kept = withdrawn(status, now)
        with self._store.transaction() as transaction:
            transaction.put_statuses([kept])
            if running is not None:
                transaction.put_rounds([_ended(running, reason, now)])
        self._take_out(kept)
        self.tables.withdrawn[kept.table_id] = kept

    def delete(self, table_id: int, now: int) -> TieringStatus | None:
        """Delete a dropped table, and return the status that it had; None if it is not known.

        Its running round ends as Failed. The newest round of each lease is kept for clients that wait for the outcome.
        """
        withheld = self._withheld.get(table_id)
        table = self.tables.get(table_id)
        status = withheld[0] if withheld else table.status if table else self.tables.withdrawn.get(table_id)
        if status is None:
            return None
        self._delete(status, withheld[1] if withheld else table.round if table else None, now)
        return status

    def delete_stored(self, status: TieringStatus, running: TieringRound | None, now: int) -> None:
        """Delete a table that was dropped while no server ran: see `delete`."""
        self._delete(status, running, now)

    def withhold(self, table_id: int) -> None:
        """Take a dropped table out of memory, although its end is not recorded. `delete` records it later."""
        table = self.tables.get(table_id)
        if table is not None:
            self._withheld[table_id] = (table.status, table.round)
            self._take_out(table.status)

    def _delete(self, status: TieringStatus, running: TieringRound | None, now: int) -> None:
        with self._store.transaction() as transaction:
            if running is not None:
                transaction.put_rounds([_ended(running, "the table was dropped", now)])
            transaction.delete_table(status.table_id)
        self._withheld.pop(status.table_id, None)
        self.dropped.note(status.table_id, now)
        self._take_out(status)

    def _take_out(self, status: TieringStatus) -> None:
        watched = self.tables.get(status.table_id) is not None
        self.tables.remove(status.table_id)
        self.totals.forget(status.table_id)
        if watched:
            self.broadcaster.publish([(status.path, self.tables.shown_by_path(status.path))])


def _waiting_for_longest(table: TieredTable) -> tuple[int, int]:
    return table.status.state_since, table.status.table_id


def _ended(running: TieringRound, reason: str, now: int) -> TieringRound:
    return replace(running, state=TieringState.FAILED, end_time=now, error=reason)


def _log_round(tiering_round: TieringRound) -> None:
    bound = logger.bind(
        table=str(tiering_round.path), epoch=tiering_round.tiering_epoch, lease_id=tiering_round.lease_id
    )
    if tiering_round.state is TieringState.FAILED:
        bound.warning("round interrupted" if tiering_round.interrupted else "round failed", error=tiering_round.error)
    elif tiering_round.state is TieringState.TIERED:
        rows = tiering_round.stats.rows if tiering_round.stats else None
        bound.info("round tiered", rows=rows, force_finished=tiering_round.force_finished)
    else:
        bound.info("round began", attempt_token=tiering_round.attempt_token, driver=tiering_round.driver)
