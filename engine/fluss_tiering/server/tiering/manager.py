"""The tiering of all tables: registration, claims, heartbeats, time-outs, outcomes (seeds S1-S25)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import structlog

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.error_text import clean_error
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import (
    MAX_KEPT_ERROR_CHARS,
    Claim,
    HeartbeatAnswer,
    LeaseOutcome,
    TieringRound,
    TieringState,
    TieringStatus,
)
from fluss_tiering.server.attempts import LeaseAttempts
from fluss_tiering.server.store.protocol import TieringStore
from fluss_tiering.server.tiering.changes import TieringChanges
from fluss_tiering.server.tiering.claims import claim_table
from fluss_tiering.server.tiering.fence import COORDINATOR_EPOCH, require_running
from fluss_tiering.server.tiering.heartbeat import Heartbeat, HeartbeatReports
from fluss_tiering.server.tiering.options import ENABLED, LakeOptions
from fluss_tiering.server.tiering.states import (
    FailureBackoff,
    RoundOwner,
    TieredTable,
    begin,
    fail,
    is_due,
    pend,
    registered,
)
from fluss_tiering.server.times import iso_time

_OUTCOME_OF_DROPPED_TABLE_KEPT_MS: Final = 7 * 24 * 60 * 60 * 1000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TieringPolicy:
    """The numbers that rule tiering.

    Attributes:
        heartbeat_timeout_ms: a round without a heartbeat for so long has failed (S4).
        kept_rounds: of each table, in its history (S23).
    """

    heartbeat_timeout_ms: int
    backoff: FailureBackoff
    kept_rounds: int


class LakeTieringManager:
    """The tables that are tiered. Used in one thread of control (S24); a change is durable before memory follows."""

    def __init__(self, clock: Clock, store: TieringStore, attempts: LeaseAttempts, policy: TieringPolicy) -> None:
        self._clock = clock
        self._store = store
        self._attempts = attempts
        self._policy = policy
        self._tables: dict[int, TieredTable] = {}

    # Tables

    def load(self, tables: Iterable[TableInfo]) -> None:
        """Takes up where the server stopped: the statuses of the storage's tables, forgetting those of dropped ones.

        A table that was never registered, since the server died right after it was created, is Initialized.
        """
        now = self._clock.now_ms()
        infos = {info.table_id: (info, LakeOptions.of(info.descriptor.properties)) for info in tables}
        running = {each.table_id: each for each in self._store.running_rounds()}
        statuses = {status.table_id: status for status in self._store.statuses()}
        for table_id, (info, options) in infos.items():
            if not options.enabled:
                continue
            if table_id not in statuses:
                self._put(registered(info, options.freshness_ms, TieringState.INITIALIZED, now))
                continue
            tiering_round = running.get(table_id)
            self._tables[table_id] = TieredTable(
                status=statuses[table_id],
                freshness_ms=options.freshness_ms,
                created_time=info.created_time,
                round=tiering_round,
                last_heartbeat=now if tiering_round else None,
            )
        for table_id in statuses.keys() - self._tables.keys():
            self._delete(table_id, running.get(table_id), now)
        with self._store.transaction() as transaction:
            transaction.delete_rounds_of_dropped_tables(now - _OUTCOME_OF_DROPPED_TABLE_KEPT_MS)

    def register(self, table: TableInfo) -> None:
        """Begins to tier a table that was created, where its options ask for it; again changes nothing."""
        options = LakeOptions.of(table.descriptor.properties)
        if not options.enabled or table.table_id in self._tables:
            return
        self._put(registered(table, options.freshness_ms, TieringState.NEW, self._clock.now_ms()))
        log.info("table registered for tiering", table=str(table.path), table_id=table.table_id)

    def remove(self, table_id: int) -> None:
        """Forgets a dropped table (S12, S20). Its running round ends as Failed and alone stays, for its waiters."""
        table = self._tables.get(table_id)
        if table is not None:
            self._delete(table_id, table.round, self._clock.now_ms())
            log.info("table removed from tiering", table=str(table.status.path), table_id=table_id)

    # Rounds

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Applies reports in the order failed, still tiering, finished, then hands out a pending table (S7).

        Raises:
            FlussTieringError: INVALID_REQUEST for a force-finish without a finish (S8), STALE_ATTEMPT when a stale
                attempt asks for a table; nothing was done then.
        """
        unfinished = heartbeat.force_finished - {entry.table_id for entry in heartbeat.finished}
        if unfinished:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"force_finished_tables names tables that finished_tables does not: {sorted(unfinished)}",
            )
        requester = heartbeat.requester and self._current(heartbeat.requester)
        now = self._clock.now_ms()
        with self._changes() as changes:
            reports = HeartbeatReports(changes, self._store, self._policy.backoff, now)
            failed = reports.failed(heartbeat.failed)
            tiering = reports.tiering(heartbeat.tiering)
            finished = reports.finished(heartbeat.finished, heartbeat.force_finished)
            claim = self._hand_out(changes, requester, now) if requester else None
        return HeartbeatAnswer(COORDINATOR_EPOCH, claim, tiering, finished, failed)

    def claim(self, paths: Iterable[TablePath], owner: RoundOwner) -> list[Claim | FlussTieringError]:
        """Claims tables by name, each on its own, due or not: see `claims.claim_table`.

        Raises:
            FlussTieringError: STALE_ATTEMPT; nothing was claimed then.
        """
        owner = self._current(owner)
        now = self._clock.now_ms()
        ids = {table.status.path: table_id for table_id, table in self._tables.items()}
        claims: list[Claim | FlussTieringError] = []
        with self._changes() as changes:
            for path in paths:
                try:
                    table = changes.table(ids[path]) if path in ids else None
                    if table is None:
                        raise not_tiered(path)
                    claims.append(claim_table(changes, table, owner, self._policy.backoff, now))
                except FlussTieringError as error:
                    log.warning("claim refused", table=str(path), lease_id=owner.lease_id, error=error.message)
                    claims.append(error)
        return claims

    def cancel(self, lease_id: str, attempt_token: int | None, reason: str) -> Sequence[TieringRound] | None:
        """Fails the running rounds of an attempt and its elders, and keeps the reason for waiters.

        Returns:
            The rounds that were ended; None for a stale attempt: nothing was done (L22).
        """
        if self._attempts.is_stale(lease_id, attempt_token):
            log.warning("cancel by a stale attempt ignored", lease_id=lease_id, attempt_token=attempt_token)
            return None
        now = self._clock.now_ms()
        kept_reason = clean_error(reason, MAX_KEPT_ERROR_CHARS)
        newest = self._attempts.newest(lease_id)
        cancelled = self._attempts.cancelled(newest, kept_reason) if newest else None
        changes = TieringChanges(self._tables, self._policy.kept_rounds)
        ended_rounds = []
        for table in self._tables.values():
            # The caller is not stale, so whatever runs under the lease is of its attempt or of an older one.
            if table.round is not None and table.round.lease_id == lease_id:
                failed, ended = fail(table, table.round, kept_reason, self._policy.backoff, now)
                changes.put(failed, ended)
                ended_rounds.append(ended)
        with self._store.transaction() as transaction:
            changes.write(transaction)
            if cancelled is not None:
                self._attempts.write(transaction, cancelled)
        changes.take_over()
        if cancelled is not None:
            self._attempts.remember(cancelled)
        log.warning("tiering cancelled", lease_id=lease_id, rounds=len(ended_rounds), reason=kept_reason)
        return ended_rounds

    def require_round(self, table_id: int, tiering_epoch: int) -> None:
        """Raises TABLE_NOT_EXIST, FENCED_TIERING_EPOCH or INVALID_TIERING_STATE unless that round runs (S5)."""
        require_running(self._tables.get(table_id), table_id, tiering_epoch)

    def note_refused_commit(self, table_id: int, tiering_epoch: int, error: str) -> None:
        """Keeps why a commit of the running round was refused (S10); the round itself goes on."""
        table, _ = require_running(self._tables.get(table_id), table_id, tiering_epoch)
        kept = clean_error(error, MAX_KEPT_ERROR_CHARS)
        now = self._clock.now_ms()
        self._put(replace(table, status=replace(table.status, last_error=kept, last_error_time=now)))

    # Time

    def move_due_tables(self) -> None:
        """Scheduled and Failed tables whose time has come -> Pending (S2, S18)."""
        with self._changes() as changes:
            self._move_due(changes, self._clock.now_ms())

    def fail_silent_rounds(self) -> None:
        """Rounds without a heartbeat for the time-out -> Failed (S4)."""
        now = self._clock.now_ms()
        timeout_ms = self._policy.heartbeat_timeout_ms
        with self._changes() as changes:
            for table in changes.tables():
                if table.round is None or table.last_heartbeat is None or now - table.last_heartbeat < timeout_ms:
                    continue
                error = (
                    f"heartbeat timed out after {(now - table.last_heartbeat) / 1000:g} s: the last one came at "
                    f"{iso_time(table.last_heartbeat)} from driver {table.round.driver or 'unknown'}"
                )
                failed, ended = fail(table, table.round, error, self._policy.backoff, now)
                changes.put(failed, ended)

    # Reading

    def statuses(self, path: TablePath | None = None) -> Sequence[TieringStatus]:
        """The status of that table, or of all tables that are tiered, by path (S16).

        Raises:
            FlussTieringError: INVALID_TIERING_STATE for a table that is not tiered.
        """
        if path is None:
            return sorted((table.status for table in self._tables.values()), key=lambda status: status.path)
        for table in self._tables.values():
            if table.status.path == path:
                return [table.status]
        raise not_tiered(path)

    def rounds(self, path: TablePath | None, lease_id: str | None, limit: int) -> Sequence[TieringRound]:
        """The newest `limit` rounds of each table that fits, newest first (S23)."""
        return self._store.rounds(path=path, lease_id=lease_id, limit=limit)

    def lease_outcome(self, lease_id: str, attempt_token: int | None) -> LeaseOutcome:
        """The newest round of each table under the lease, without those of older attempts (S25)."""
        newest = self._attempts.newest(lease_id)
        rounds = self._store.rounds(path=None, lease_id=lease_id, limit=1)
        return LeaseOutcome(
            rounds=tuple(
                each for each in rounds if attempt_token is None or (each.attempt_token or 0) >= attempt_token
            ),
            cancelled_reason=newest.cancelled_reason if newest else None,
            newest_attempt_token=newest.attempt_token if newest else None,
        )

    def _current(self, owner: RoundOwner) -> RoundOwner:
        return replace(owner, attempt_token=self._attempts.require_current(owner.lease_id, owner.attempt_token))

    def _hand_out(self, changes: TieringChanges, requester: RoundOwner, now: int) -> Claim | None:
        self._move_due(changes, now)
        pending = [table for table in changes.tables() if table.status.state is TieringState.PENDING]
        if not pending:
            return None
        # First in, first out; the ids decide within a millisecond, so that the order outlives a restart.
        first = min(pending, key=lambda table: (table.status.state_since, table.status.table_id))
        changes.put(begin(first, requester, now))
        return Claim(first.status.table_id, first.status.path, first.status.tiering_epoch)

    def _move_due(self, changes: TieringChanges, now: int) -> None:
        for table in changes.tables():
            if is_due(table, now):
                changes.put(pend(table, now))

    @contextmanager
    def _changes(self) -> Iterator[TieringChanges]:
        changes = TieringChanges(self._tables, self._policy.kept_rounds)
        yield changes
        if changes.is_durable():
            with self._store.transaction() as transaction:
                changes.write(transaction)
        changes.take_over()

    def _put(self, table: TieredTable) -> None:
        with self._changes() as changes:
            changes.put(table)

    def _delete(self, table_id: int, running: TieringRound | None, now: int) -> None:
        with self._store.transaction() as transaction:
            transaction.delete_table(table_id)
            if running is not None:
                transaction.put_rounds(
                    [replace(running, state=TieringState.FAILED, end_time=now, error="the table was dropped")]
                )
        self._tables.pop(table_id, None)


def not_tiered(path: TablePath) -> FlussTieringError:
    """That an existing table is not tiered."""
    return FlussTieringError(
        ErrorCode.INVALID_TIERING_STATE,
        f"table {path} is not tiered: create it with the option {ENABLED}=true",
    )
