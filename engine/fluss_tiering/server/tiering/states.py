"""The states of one table's tiering and the steps between them; pure, on frozen values (seeds S1-S3, S12, S14, S18)."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

import structlog

from fluss_tiering.model.error_text import clean_error
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import (
    MAX_KEPT_ERROR_CHARS,
    TRANSITIONS,
    TieringRound,
    TieringState,
    TieringStats,
    TieringStatus,
)

MAX_CONSECUTIVE_FAILURES: Final = 10
"""After so many a table is parked, unless the server is told another number (S19)."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TieredTable:
    """A table that is tiered.

    Attributes:
        freshness_ms: how old the lake table may become.
        due_by_freshness: whether it becomes Pending by itself; on a Fluss cluster the coordinator says when it does.
        created_time: what freshness counts from before the first success.
        round: the running one, in state TIERING only.
        last_heartbeat: of the running round; kept in memory alone, so a restart gives every driver its time anew.
    """

    status: TieringStatus
    freshness_ms: int
    created_time: int
    round: TieringRound | None = None
    last_heartbeat: int | None = None
    due_by_freshness: bool = True

    @property
    def due_time(self) -> int | None:
        """When it becomes Pending by itself (S2, S18); None while it does not."""
        if self.status.state is TieringState.SCHEDULED and self.due_by_freshness:
            last = self.status.last_tiered_time
            return (self.created_time if last is None else last) + self.freshness_ms
        if self.status.state is TieringState.FAILED:
            return self.status.next_retry_time
        return None


@dataclass(frozen=True, slots=True)
class RoundOwner:
    """Who runs a round."""

    lease_id: str
    attempt_token: int | None
    driver: str


class FailureBackoff:
    """How long a failed table rests (S18): doubled with each failure in a row, jittered by half, capped.

    After `max_consecutive_failures` in a row it is parked: not tried again by itself (S19).
    """

    def __init__(
        self, base_ms: int, cap_ms: int, jitter: random.Random, max_consecutive_failures: int = MAX_CONSECUTIVE_FAILURES
    ) -> None:
        self._base_ms = base_ms
        self._cap_ms = cap_ms
        self._jitter = jitter
        self._max_consecutive_failures = max_consecutive_failures

    def retry_time(self, consecutive_failures: int, now: int) -> int | None:
        """When a table is tried again after that many failures in a row, from 1 on; None where it is parked."""
        if consecutive_failures >= self._max_consecutive_failures:
            return None
        return now + self.delay_ms(consecutive_failures)

    def delay_ms(self, consecutive_failures: int) -> int:
        """The rest after that many failures in a row, from 1 on."""
        # The exponent is bounded, since the number of failures is not.
        delay = min(self._cap_ms, self._base_ms << min(consecutive_failures - 1, 32))
        return delay - int(self._jitter.random() * delay / 2)


def registered(
    table: TableInfo,
    freshness_ms: int,
    state: TieringState,
    now: int,
    withdrawn: TieringStatus | None = None,
    *,
    due_by_freshness: bool = True,
) -> TieredTable:
    """None -> New or Initialized (S1), and on to Scheduled, under epoch 0 (S3); last_tiered_time is None (S14).

    A table whose tiering was switched off before goes on from the epoch and the success that it had then (S3).
    """
    status = TieringStatus(table_id=table.table_id, path=table.path, state=state, state_since=now, tiering_epoch=0)
    if withdrawn is not None:
        status = replace(status, tiering_epoch=withdrawn.tiering_epoch, last_tiered_time=withdrawn.last_tiered_time)
    tiered = TieredTable(status, freshness_ms, table.created_time, due_by_freshness=due_by_freshness)
    return schedule(tiered, now)


def withdrawn(status: TieringStatus, now: int) -> TieringStatus:
    """What is kept of a table whose tiering is switched off, so that its epoch never goes back (S3)."""
    return TieringStatus(
        table_id=status.table_id,
        path=status.path,
        state=TieringState.INITIALIZED,
        state_since=now,
        tiering_epoch=status.tiering_epoch,
        last_tiered_time=status.last_tiered_time,
    )


def move(table: TieredTable, to: TieringState, now: int) -> TieredTable:
    """The table in another state.

    Raises:
        FlussTieringError: INVALID_TIERING_STATE for a transition that S1 does not know.
    """
    status = table.status
    if to not in TRANSITIONS[status.state]:
        logger.error(
            "tiering transition refused",
            table=str(status.path),
            epoch=status.tiering_epoch,
            from_state=status.state.value,
            to_state=to.value,
        )
        raise FlussTieringError(
            ErrorCode.INVALID_TIERING_STATE,
            f"table {status.path} cannot go from {status.state} to {to}: "
            f"expected {' or '.join(sorted(TRANSITIONS[status.state]))}",
        )
    return replace(table, status=replace(status, state=to, state_since=now))


def schedule(table: TieredTable, now: int) -> TieredTable:
    """New, Initialized or Tiered -> Scheduled, and on to Pending where it is due at once."""
    scheduled = move(table, TieringState.SCHEDULED, now)
    return pend(scheduled, now) if is_due(scheduled, now) else scheduled


def is_due(table: TieredTable, now: int) -> bool:
    """Whether the table goes to Pending by itself now."""
    return table.due_time is not None and table.due_time <= now


def pend(table: TieredTable, now: int) -> TieredTable:
    """Scheduled, Failed or Tiered -> Pending, under the next epoch (S3)."""
    pending = move(table, TieringState.PENDING, now)
    epoch = pending.status.tiering_epoch + 1
    return replace(pending, status=replace(pending.status, tiering_epoch=epoch, next_retry_time=None))


def claimable(table: TieredTable, now: int) -> TieredTable:
    """Any state but Tiering -> Pending by legal steps, whether due or not: a claim by name does not wait."""
    if table.status.state in (TieringState.NEW, TieringState.INITIALIZED):
        table = move(table, TieringState.SCHEDULED, now)
    return table if table.status.state is TieringState.PENDING else pend(table, now)


def begin(table: TieredTable, owner: RoundOwner, now: int) -> TieredTable:
    """Pending -> Tiering: the round of the table's epoch begins."""
    tiering = move(table, TieringState.TIERING, now)
    return replace(
        tiering,
        round=TieringRound(
            table_id=table.status.table_id,
            path=table.status.path,
            tiering_epoch=table.status.tiering_epoch,
            state=TieringState.TIERING,
            lease_id=owner.lease_id,
            attempt_token=owner.attempt_token,
            driver=owner.driver,
            start_time=now,
        ),
        last_heartbeat=now,
    )


def finish(
    table: TieredTable, running: TieringRound, stats: TieringStats | None, *, forced: bool, now: int
) -> tuple[TieredTable, TieringRound]:
    """Tiering -> Tiered, and on to Scheduled, or to Pending when forced (S8); with the round's outcome (S25)."""
    ended = replace(running, state=TieringState.TIERED, end_time=now, stats=stats, force_finished=forced)
    tiered = move(table, TieringState.TIERED, now)
    tiered = replace(
        tiered,
        status=replace(
            tiered.status,
            last_tiered_time=now,
            last_error=None,
            last_error_time=None,
            consecutive_failures=0,
            next_retry_time=None,
        ),
        round=None,
        last_heartbeat=None,
    )
    return (pend(tiered, now) if forced else schedule(tiered, now)), ended


def fail(
    table: TieredTable, running: TieringRound, error: str | None, backoff: FailureBackoff, now: int
) -> tuple[TieredTable, TieringRound]:
    """Tiering -> Failed, where it stays for its back-off (S10, S18); with the round's outcome (S25)."""
    kept = None if error is None else clean_error(error, MAX_KEPT_ERROR_CHARS)
    failures = table.status.consecutive_failures + 1
    status = replace(
        table.status,
        last_error=kept,
        last_error_time=now,
        consecutive_failures=failures,
        next_retry_time=backoff.retry_time(failures, now),
    )
    return _end_failed(replace(table, status=status), running, now)


def interrupt(
    table: TieredTable, running: TieringRound, reason: str, backoff: FailureBackoff, now: int
) -> tuple[TieredTable, TieringRound]:
    """Tiering -> Failed where somebody ended the round: no failure of the table, which rests a base back-off (S19)."""
    kept = clean_error(reason, MAX_KEPT_ERROR_CHARS)
    retry_time = now + backoff.delay_ms(1)
    status = replace(table.status, last_error=kept, last_error_time=now, next_retry_time=retry_time)
    return _end_failed(replace(table, status=status), running, now)


def resume(table: TieredTable, now: int) -> TieredTable:
    """Failed, parked or not -> Pending at once, with no failures counted (S19); another table stays as it is."""
    if table.status.state is not TieringState.FAILED:
        return table
    return pend(replace(table, status=replace(table.status, consecutive_failures=0)), now)


def _end_failed(table: TieredTable, running: TieringRound, now: int) -> tuple[TieredTable, TieringRound]:
    failed = replace(move(table, TieringState.FAILED, now), round=None, last_heartbeat=None)
    return failed, replace(running, state=TieringState.FAILED, end_time=now, error=failed.status.last_error)
