"""The tiering of all tables: claims, heartbeats, time-outs and outcomes."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import replace
from typing import Final

import structlog

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.error_text import clean_error
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import MaintenanceReport, not_tiered
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import (
    MAX_KEPT_ERROR_CHARS,
    Claim,
    HeartbeatAnswer,
    TieringRound,
    TieringState,
    TieringStatus,
)
from fluss_tiering.server.core.lake.backlogs import Backlogs
from fluss_tiering.server.core.leases.attempts import LeaseAttempts
from fluss_tiering.server.core.store.records import LeaseAttempt, RoundsPage
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.core.tiering.broadcaster import StatusBroadcaster, StatusWatcher
from fluss_tiering.server.core.tiering.changes import TieringChanges, TieringLedger
from fluss_tiering.server.core.tiering.claims import claim_table, end_overdue, hand_out, move_due
from fluss_tiering.server.core.tiering.fence import next_coordinator_epoch, require_running
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat, HeartbeatReports, check_heartbeat
from fluss_tiering.server.core.tiering.policy import TieringPolicy
from fluss_tiering.server.core.tiering.registration import TableRegistration
from fluss_tiering.server.core.tiering.states import RoundOwner, cancel, pend, resume
from fluss_tiering.server.core.tiering.tables import TieredTables
from fluss_tiering.server.core.tiering.totals import RoundTotals

_NO_REASON: Final = "cancelled without a reason"

logger = structlog.get_logger(__name__)


class LakeTieringManager:
    """The tables that are tiered, and the changes of their states.

    It is used in the control thread only. Every change is written to the store before it is made in memory.
    """

    def __init__(
        self, clock: Clock, store: SqlTieringStore, attempts: LeaseAttempts, policy: TieringPolicy, backlogs: Backlogs
    ) -> None:
        self._clock = clock
        self._store = store
        self._attempts = attempts
        self._policy = policy
        self._ledger = TieringLedger(store, policy.kept_rounds, backlogs)
        self._coordinator_epoch = 0
        self._registration = TableRegistration(self._ledger, store, policy, backlogs)

    @property
    def tables(self) -> TieredTables:
        """The tables in their present states, for metrics."""
        return self._ledger.tables

    @property
    def totals(self) -> RoundTotals:
        """The totals of the rounds that ended, for metrics."""
        return self._ledger.totals

    @property
    def broadcaster(self) -> StatusBroadcaster:
        """The broadcaster that tells watchers of changed statuses."""
        return self._ledger.broadcaster

    def is_running(self, table_id: int, tiering_epoch: int) -> bool:
        """Return whether a round runs. Any thread may call this, because it looks once."""
        table = self._ledger.tables.get(table_id)
        return table is not None and table.running_epoch == tiering_epoch

    # Tables

    def load(self, tables: Iterable[TableInfo], unusable: Collection[TablePath] = ()) -> None:
        """Continue where the server stopped, in a new coordinator epoch: see `TableRegistration.load`."""
        now = self._clock.now_ms()
        epoch = next_coordinator_epoch(self._store.coordinator_epoch(), now)
        with self._store.transaction() as transaction:
            transaction.put_coordinator_epoch(epoch)
        self._coordinator_epoch = epoch
        self._registration.load(tables, unusable, now)

    def register(self, table: TableInfo) -> None:
        """Begin to tier a new table if its options ask for it. A repeated call changes nothing."""
        self._registration.register(table, self._clock.now_ms())

    def register_all(self, tables: Iterable[TableInfo]) -> None:
        """Begin to tier new tables whose options ask for it: see `TableRegistration.register_all`."""
        self._registration.register_all(tables, self._clock.now_ms())

    def alter(self, table: TableInfo) -> None:
        """Apply the options of a table that was altered: see `TableRegistration.alter`."""
        self._registration.alter(table, self._clock.now_ms())

    def remove(self, table_id: int) -> None:
        """Delete a dropped table: see `TableRegistration.remove`."""
        self._registration.remove(table_id, self._clock.now_ms())

    def withhold(self, table_id: int) -> None:
        """Neither show nor hand out a dropped table whose end could not be recorded. `remove` records it later."""
        self._ledger.withhold(table_id)

    def note_lost(self) -> None:
        """Keep with their tables what was dropped before it was in the lake: see `TieringLedger.note_lost`."""
        self._ledger.note_lost(self._clock.now_ms())

    def prune_dropped(self) -> None:
        """Delete the outcomes of tables that were dropped long ago: see `DroppedTables`."""
        self._ledger.dropped.prune(self._clock.now_ms())

    def resume(
        self, paths: Iterable[TablePath], include_scheduled: bool = False
    ) -> list[TieringStatus | FlussTieringError]:
        """Make failed tables Pending at once, parked ones too.

        Args:
            include_scheduled: Whether Scheduled tables become Pending as well, before they are due.

        Returns:
            For each path the status that the table then has, or the error that says why it was not resumed.
        """
        now = self._clock.now_ms()
        tables, named = self._ledger.tables, list(paths)
        with self._ledger.changes() as changes:
            for path in named:
                table = tables.get_by_path(path)
                if table is not None and include_scheduled and table.status.state is TieringState.SCHEDULED:
                    changes.put(pend(table, now))
                elif table is not None:
                    changes.put(resume(table, now))
        return [tables.shown_by_path(path) or not_tiered(path) for path in named]

    def make_due(self, table_id: int) -> TieringState | None:
        """Move a Scheduled table to Pending because a cluster's coordinator says so; leave any other table as it is.

        Returns:
            The state that the table then has; None if the table is not tiered.
        """
        with self._ledger.changes() as changes:
            table = changes.table(table_id)
            if table is not None and table.status.state is TieringState.SCHEDULED:
                table = pend(table, self._clock.now_ms())
                changes.put(table)
        return None if table is None else table.status.state

    # Rounds

    def heartbeat(self, heartbeat: Heartbeat, among: Container[TablePath] | None = None) -> HeartbeatAnswer:
        """Apply the reports in the order failed, still tiering, finished; then hand out a Pending table if asked to.

        Nothing is changed if an error is raised.

        Args:
            heartbeat: The reports and the request.
            among: The tables of which one may be handed out; None for all.

        Raises:
            FlussTieringError: INVALID_REQUEST if a table is force-finished but not finished; STALE_ATTEMPT if a stale
                attempt asks for a table.
        """
        check_heartbeat(heartbeat)
        requester = heartbeat.requester and self._current(heartbeat.requester)
        now = self._clock.now_ms()
        with self._ledger.changes() as changes:
            reports = HeartbeatReports(
                changes, self._store, self._policy.backoff, now, coordinator_epoch=self._coordinator_epoch
            )
            failed = reports.failed(heartbeat.failed)
            tiering = reports.tiering(heartbeat.tiering)
            finished = reports.finished(heartbeat.finished, heartbeat.force_finished)
            claim = hand_out(self._ledger.tables, changes, requester, now, among) if requester else None
        return HeartbeatAnswer(self._coordinator_epoch, claim, tiering, finished, failed)

    def count_maintenance(self, reports: Iterable[MaintenanceReport]) -> None:
        """Count what maintenance of lake tables has done, for statuses and metrics.

        Args:
            reports: The reports. Those on tables that are not tiered are left out.
        """
        now = self._clock.now_ms()
        for report in reports:
            if self._ledger.tables.get(report.table_id) is not None:
                self._ledger.totals.count_maintenance(report, now)
                self._ledger.tables.show_maintenance(report.table_id)

    def claim(self, paths: Iterable[TablePath], owner: RoundOwner) -> list[Claim | FlussTieringError]:
        """Claim tables by name, due or not: see `claims.claim_table`.

        Returns:
            For each path the claim, or the error that says why the table was not claimed.

        Raises:
            FlussTieringError: STALE_ATTEMPT if a newer attempt began under the lease. Nothing is claimed then.
        """
        owner = self._current(owner)
        now = self._clock.now_ms()
        claims: list[Claim | FlussTieringError] = []
        with self._ledger.changes() as changes:
            for path in paths:
                try:
                    known = self._ledger.tables.get_by_path(path)
                    table = None if known is None else changes.table(known.status.table_id)
                    if table is None:
                        raise not_tiered(path)
                    shown = self._ledger.tables.shown(table.status.table_id)
                    since = None if shown is None else shown.waiting_since
                    claims.append(claim_table(changes, table, owner, self._policy.backoff, now, waiting_since=since))
                except FlussTieringError as error:
                    # An application waits for the end of another one's round by asking again and again.
                    waits = error.code is ErrorCode.TABLE_BEING_TIERED
                    tell = logger.debug if waits else logger.warning
                    tell("claim refused", table=str(path), lease_id=owner.lease_id, error=error.message)
                    claims.append(error)
        return claims

    def cancel(self, lease_id: str, attempt_token: int | None, reason: str) -> Sequence[TieringRound] | None:
        """End the running rounds of an attempt and of older ones, and keep the reason for clients that wait.

        The first reason stays: what cancels an attempt again, such as a callback of Airflow, does not know the cause.

        Args:
            attempt_token: The token of the attempt; None for the newest one.
            reason: The reason, which is kept in one line.

        Returns:
            The rounds that were ended; None if the attempt is stale, and then nothing is changed.
        """
        if self._attempts.is_stale(lease_id, attempt_token):
            logger.warning("cancel by a stale attempt ignored", lease_id=lease_id, attempt_token=attempt_token)
            return None
        now = self._clock.now_ms()
        newest = self._attempts.to_cancel(lease_id, attempt_token, now)
        first_reason = newest.cancelled_reason if newest else None
        kept_reason = first_reason or clean_error(" ".join(reason.split()) or _NO_REASON, MAX_KEPT_ERROR_CHARS)
        cancelled = self._attempts.cancelled(newest, kept_reason) if newest else None
        changes = TieringChanges(self._ledger.tables)
        for table in self._ledger.tables.running():
            # The caller is not stale, so every round under the lease belongs to its attempt or to an older one.
            if table.round is not None and table.round.lease_id == lease_id:
                changes.put(*cancel(table, table.round, kept_reason, self._policy.backoff, now))
        with self._store.transaction() as transaction:
            self._ledger.write(changes, transaction)
            if cancelled is not None:
                self._attempts.write(transaction, cancelled)
        self._ledger.apply(changes)
        if cancelled is not None:
            self._attempts.remember(cancelled)
        logger.warning("tiering cancelled", lease_id=lease_id, rounds=len(changes.rounds), reason=kept_reason)
        return list(changes.rounds.values())

    def require_round(self, table_id: int, tiering_epoch: int) -> None:
        """Check that the round of this epoch runs.

        Raises:
            FlussTieringError: See `require_running`.
        """
        require_running(self._ledger.tables.get(table_id), table_id, tiering_epoch)

    def note_refused_commit(self, table_id: int, tiering_epoch: int, error: str) -> None:
        """Record why a commit of the running round was refused. The round itself continues."""
        kept = clean_error(error, MAX_KEPT_ERROR_CHARS)
        with self._ledger.changes() as changes:
            table, _ = require_running(changes.table(table_id), table_id, tiering_epoch)
            status = replace(table.status, last_error=kept, last_error_time=self._clock.now_ms())
            changes.put(replace(table, status=status))

    # Time

    def move_due_tables(self) -> None:
        """Move Scheduled and Failed tables whose time has come to Pending: see `move_due`."""
        with self._ledger.changes() as changes:
            move_due(self._ledger.tables, changes, self._clock.now_ms())

    def tell_of_backlogs(self) -> None:
        """Tell watchers of backlogs that changed: see `TieringLedger.tell_of_backlogs`."""
        self._ledger.tell_of_backlogs()

    def end_overdue_rounds(self) -> None:
        """Interrupt rounds whose last heartbeat is older than the time-out, and fail those that run for too long."""
        with self._ledger.changes() as changes:
            end_overdue(self._ledger.tables, changes, self._policy, self._clock.now_ms())

    def allow_for_standstill(self, ms: int) -> None:
        """Give running rounds more time, because this server stood still and could take no heartbeats.

        Args:
            ms: How long this server stood still, in milliseconds.
        """
        tables = self._ledger.tables
        for table in tables.running():
            if table.last_heartbeat is not None:
                tables.put(replace(table, last_heartbeat=table.last_heartbeat + ms))

    # Reading

    def statuses(self, path: TablePath | None = None) -> Sequence[TieringStatus]:
        """Return the status of the table, or without a path of all tiered tables in the order of their paths.

        Raises:
            FlussTieringError: INVALID_TIERING_STATE if the table is not tiered.
        """
        self._ledger.look_at_backlogs()
        if path is None:
            return self._ledger.tables.statuses()
        shown = self._ledger.tables.shown_by_path(path)
        if shown is None:
            raise not_tiered(path)
        return [shown]

    def untiered(self, paths: Iterable[TablePath]) -> list[TablePath]:
        """Return the paths whose tables are not tiered."""
        return [path for path in paths if self._ledger.tables.get_by_path(path) is None]

    def watch(self, watcher: StatusWatcher, paths: Iterable[TablePath]) -> None:
        """Tell a watcher the statuses of these tables and each change from now on; without paths, of all tables.

        Raises:
            FlussTieringError: INVALID_TIERING_STATE if a table is not tiered; UNAVAILABLE if too many watchers exist.
        """
        statuses = [status for path in paths for status in self.statuses(path)] or self.statuses()
        self._ledger.broadcaster.add(watcher, statuses)

    def rounds_page(
        self, path: TablePath | None, lease_id: str | None, limit: int, after: int | None, max_tables: int
    ) -> RoundsPage:
        """Return the newest `limit` rounds of each table that matches, of some: see `SqlTieringStore.rounds_page`."""
        return self._store.rounds_page(path=path, lease_id=lease_id, limit=limit, after=after, max_tables=max_tables)

    def attempt(self, lease_id: str) -> LeaseAttempt | None:
        """Return the newest attempt under a lease id; None if none ever began, or only long ago."""
        return self._attempts.newest(lease_id)

    def _current(self, owner: RoundOwner) -> RoundOwner:
        return replace(
            owner,
            attempt_token=self._attempts.require_current(owner.lease_id, owner.attempt_token),
            coordinator_epoch=self._coordinator_epoch,
        )
