"""The reports of one heartbeat, applied table by table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import HeartbeatEntry, TieringRound, TieringState
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.core.tiering.changes import TieringChanges
from fluss_tiering.server.core.tiering.fence import is_present, require_coordinator, require_running
from fluss_tiering.server.core.tiering.states import (
    FailureBackoff,
    RoundOwner,
    cancel,
    fail,
    finish,
    interrupt,
)

_NO_REASON: Final = "the driver ended the round and gave no reason"

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The reports of a driver, and its request for a table.

    Attributes:
        tiering: The rounds that still run.
        finished: The rounds that succeeded.
        failed: The rounds that failed, or that were interrupted.
        force_finished: The ids of tables among `finished` that have more to tier.
        requester: The owner that asks for a Pending table; None if the driver does not ask for one.
    """

    tiering: tuple[HeartbeatEntry, ...] = ()
    finished: tuple[HeartbeatEntry, ...] = ()
    failed: tuple[HeartbeatEntry, ...] = ()
    force_finished: frozenset[int] = frozenset()
    requester: RoundOwner | None = None


def check_heartbeat(heartbeat: Heartbeat) -> None:
    """Check that every table that is force-finished is also finished.

    Raises:
        FlussTieringError: INVALID_REQUEST if one is not.
    """
    unfinished = heartbeat.force_finished - {entry.table_id for entry in heartbeat.finished}
    if unfinished:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"force_finished_tables names tables that finished_tables does not: {sorted(unfinished)[:20]}",
        )


class HeartbeatReports:
    """Applies reports to changes.

    Each method returns the reports that were refused, as errors by table id. All other reports are applied.
    """

    def __init__(
        self,
        changes: TieringChanges,
        store: SqlTieringStore,
        backoff: FailureBackoff,
        now: int,
        *,
        coordinator_epoch: int,
    ) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._changes = changes
        self._store = store
        self._backoff = backoff
        self._now = now

    def failed(self, entries: Iterable[HeartbeatEntry]) -> dict[int, FlussTieringError]:
        """End rounds as Failed, with or without a reason."""

        def apply(entry: HeartbeatEntry) -> None:
            if self._ended_as(entry, TieringState.FAILED):
                return
            table, running = require_running(self._changes.table(entry.table_id), entry.table_id, entry.tiering_epoch)
            if entry.lake_rewritten:
                table, ended = cancel(table, running, entry.error_message or _NO_REASON, self._backoff, self._now)
            elif entry.interrupted:
                table, ended = interrupt(table, running, entry.error_message or _NO_REASON, self._backoff, self._now)
            else:
                table, ended = fail(table, running, entry.error_message, self._backoff, self._now)
            self._changes.put(table, ended)

        return self._each(entries, apply)

    def tiering(self, entries: Iterable[HeartbeatEntry]) -> dict[int, FlussTieringError]:
        """Record that rounds still run."""

        def apply(entry: HeartbeatEntry) -> None:
            table, _ = require_running(self._changes.table(entry.table_id), entry.table_id, entry.tiering_epoch)
            self._changes.put(replace(table, last_heartbeat=self._now))

        return self._each(entries, apply)

    def finished(
        self, entries: Iterable[HeartbeatEntry], force_finished: frozenset[int]
    ) -> dict[int, FlussTieringError]:
        """End rounds as Tiered. A repeated report changes nothing."""

        def apply(entry: HeartbeatEntry) -> None:
            if self._ended_as(entry, TieringState.TIERED):
                return
            table, running = require_running(self._changes.table(entry.table_id), entry.table_id, entry.tiering_epoch)
            forced = entry.table_id in force_finished
            table, ended = finish(table, running, entry.stats, forced=forced, now=self._now)
            self._changes.put(table, ended)

        return self._each(entries, apply)

    def _ended_as(self, entry: HeartbeatEntry, outcome: TieringState) -> bool:
        """Return whether the round has already ended with this outcome, so that the report is a repetition."""
        table = self._changes.table(entry.table_id)
        if table is None or (table.round is not None and table.round.tiering_epoch == entry.tiering_epoch):
            return False
        ended = self._ended(entry)
        return ended is not None and ended.state is outcome

    def _ended(self, entry: HeartbeatEntry) -> TieringRound | None:
        """Return the round of a report if it has ended; None if it is not known."""
        return self._changes.round(entry.table_id, entry.tiering_epoch) or self._store.round(
            entry.table_id, entry.tiering_epoch
        )

    def _require_coordinator(self, entry: HeartbeatEntry) -> None:
        named, present = entry.coordinator_epoch, self._coordinator_epoch
        if is_present(named, present):
            return
        table = self._changes.table(entry.table_id)
        running = None if table is None else table.round
        its_own = running if running is not None and running.tiering_epoch == entry.tiering_epoch else None
        require_coordinator(named, its_own or self._ended(entry), present)

    def _each(
        self, entries: Iterable[HeartbeatEntry], apply: Callable[[HeartbeatEntry], None]
    ) -> dict[int, FlussTieringError]:
        refused = {}
        for entry in entries:
            try:
                self._require_coordinator(entry)
                apply(entry)
            except FlussTieringError as error:
                logger.warning(
                    "heartbeat refused", table_id=entry.table_id, epoch=entry.tiering_epoch, error=error.message
                )
                refused[entry.table_id] = error
        return refused
