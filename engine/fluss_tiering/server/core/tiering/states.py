"""The states of one table's tiering and the steps between them. Each step is a pure function of frozen values."""

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
    RoundOrigin,
    TieringRound,
    TieringState,
    TieringStats,
    TieringStatus,
)

MAX_CONSECUTIVE_FAILURES: Final = 10
"""A table is parked after this many failures in a row, unless the server is configured with another number."""

MAX_INTERRUPTIONS: Final = 3
"""After so many interrupted rounds in a row, the next one counts as a failure of the table.

The table may be what ends each of its drivers. It would otherwise be tried for ever, and nobody would hear of it.
"""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TieredTable:
    """A table that is tiered.

    Attributes:
        status: The table's tiering status, as the server persists it and shows it to clients.
        freshness_ms: How far the lake table may fall behind the Fluss table, in milliseconds.
        created_time: When the table was created, in milliseconds since the epoch. Freshness is counted from this time
            until the first round has succeeded.
        round: The running round. It is None in every state but TIERING.
        last_heartbeat: When the running round last sent a heartbeat, in milliseconds since the epoch. It is kept in
            memory only, so that after a restart every driver has the full time-out again.
        due_by_freshness: Whether the table becomes Pending by itself once its lake table is older than its freshness.
            On a Fluss cluster it does not: the coordinator says when the table is due.
        due_unchanged: Whether it does so without a backlog too, as every table of Fluss does.
        may_wait: Whether the table has a backlog, or may have one. It is kept in memory only.
        switched_on_time: When its tiering was switched on again; None if that was not seen. It is kept in memory only.
    """

    status: TieringStatus
    freshness_ms: int
    created_time: int
    round: TieringRound | None = None
    last_heartbeat: int | None = None
    due_by_freshness: bool = True
    due_unchanged: bool = False
    may_wait: bool = True
    switched_on_time: int | None = None

    @property
    def running_epoch(self) -> int | None:
        """The epoch of the running round; None if none runs."""
        return None if self.round is None else self.round.tiering_epoch

    @property
    def tiered_time(self) -> int:
        """The time of the last success, or of the table's creation before the first success."""
        last = self.status.last_tiered_time
        return self.created_time if last is None else last

    @property
    def next_round_time(self) -> int | None:
        """The earliest time at which the table becomes Pending by itself; None while nothing is scheduled."""
        if self.status.state is TieringState.SCHEDULED and self.due_by_freshness:
            return self.tiered_time + self.freshness_ms
        if self.status.state is TieringState.FAILED:
            return self.status.next_retry_time
        return None

    @property
    def due_time(self) -> int | None:
        """The time at which the table becomes Pending by itself as things stand; None if it does not.

        A table that was never tiered is due without a backlog too, so that its lake table is made.
        """
        if self.status.state is TieringState.SCHEDULED:
            first = self.status.last_tiered_time is None
            return self.next_round_time if self.may_wait or self.due_unchanged or first else None
        return self.next_round_time


@dataclass(frozen=True, slots=True)
class RoundOwner:
    """The owner of a round.

    Attributes:
        lease_id: The KV snapshot lease under which the round runs.
        attempt_token: The token of the lease's attempt; None if the lease was never acquired.
        driver: The name of the driver, for messages and logs.
        coordinator_epoch: The coordinator epoch in which the round is handed out.
        origin: Where the driver was started; None if it does not tell.
    """

    lease_id: str
    attempt_token: int | None
    driver: str
    coordinator_epoch: int = 0
    origin: RoundOrigin | None = None


class FailureBackoff:
    """How long a failed table waits before its next round.

    The wait doubles with each failure in a row, up to a cap. A random part of up to one half is then taken off. After
    `max_consecutive_failures` in a row the table is parked: it is not tried again by itself.
    """

    def __init__(
        self, base_ms: int, cap_ms: int, jitter: random.Random, max_consecutive_failures: int = MAX_CONSECUTIVE_FAILURES
    ) -> None:
        self._base_ms = base_ms
        self._cap_ms = cap_ms
        self._jitter = jitter
        self._max_consecutive_failures = max_consecutive_failures

    @property
    def longest_ms(self) -> int:
        """The longest time that a table waits, in milliseconds."""
        return max(self._cap_ms, self._base_ms)

    def retry_time(self, consecutive_failures: int, now: int) -> int | None:
        """Return when a table is tried again after this many failures in a row (at least 1); None if it is parked."""
        if consecutive_failures >= self._max_consecutive_failures:
            return None
        return now + self.delay_ms(consecutive_failures)

    def delay_ms(self, consecutive_failures: int) -> int:
        """Return how long a table waits after this many failures in a row (at least 1), in milliseconds."""
        # The number of failures has no limit, so the exponent needs one.
        delay = min(self._cap_ms, self._base_ms << min(consecutive_failures - 1, 32))
        return delay - int(self._jitter.random() * delay / 2)


def first_status(
    table: TableInfo, state: TieringState, now: int, withdrawn: TieringStatus | None = None
) -> TieringStatus:
    """Return the status of a table that is tiered from now on: New or Initialized, under epoch 0.

    A table whose tiering was switched off before continues with what was kept of its status.
    """
    if withdrawn is not None:
        return replace(withdrawn, path=table.path, state=state, state_since=now)
    return TieringStatus(table_id=table.table_id, path=table.path, state=state, state_since=now, tiering_epoch=0)


def withdrawn(status: TieringStatus, now: int) -> TieringStatus:
    """Return the status that is kept of a table whose tiering is switched off, so that its epoch never goes back."""
    return TieringStatus(
        table_id=status.table_id,
        path=status.path,
        state=TieringState.INITIALIZED,
        state_since=now,
        tiering_epoch=status.tiering_epoch,
        last_tiered_time=status.last_tiered_time,
        dropped_untiered_records=status.dropped_untiered_records,
        dropped_untiered_time=status.dropped_untiered_time,
    )


def without_future(status: TieringStatus, longest_rest_ms: int, now: int) -> TieringStatus:
    """Return a stored status whose times are not in the future.

    A server whose clock was ahead may have stored them. The table would wait until then.

    Args:
        longest_rest_ms: The longest time that a failed table waits, in milliseconds.
        now: The present time, in milliseconds since the epoch.
    """
    tiered, failed, retry = status.last_tiered_time, status.last_error_time, status.next_retry_time
    # The back-off began with the failure.
    ahead = 0 if failed is None else max(0, failed - now)
    return replace(
        status,
        state_since=min(status.state_since, now),
        last_tiered_time=None if tiered is None else min(tiered, now),
        last_error_time=None if failed is None else min(failed, now),
        failing_since=None if status.failing_since is None else min(status.failing_since, now),
        next_retry_time=None if retry is None else min(retry - ahead, now + longest_rest_ms),
    )


def move(table: TieredTable, to: TieringState, now: int) -> TieredTable:
    """Return the table in another state.

    Raises:
        FlussTieringError: INVALID_TIERING_STATE if `TRANSITIONS` does not list the transition.
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
    """Schedule a table that is New, Initialized or Tiered, and move it on to Pending if it is due at once."""
    scheduled = move(table, TieringState.SCHEDULED, now)
    return pend(scheduled, now) if is_due(scheduled, now) else scheduled


def is_due(table: TieredTable, now: int) -> bool:
    """Return whether the table becomes Pending by itself now."""
    return table.due_time is not None and table.due_time <= now


def pend(table: TieredTable, now: int) -> TieredTable:
    """Move a table that is Scheduled, Failed or Tiered to Pending, under the next epoch."""
    pending = move(table, TieringState.PENDING, now)
    epoch = pending.status.tiering_epoch + 1
    return replace(pending, status=replace(pending.status, tiering_epoch=epoch, next_retry_time=None))


def claimable(table: TieredTable, now: int) -> TieredTable:
    """Move a table from any state but Tiering to Pending by legal steps. A claim by name does not wait for its time."""
    if table.status.state in (TieringState.NEW, TieringState.INITIALIZED):
        table = move(table, TieringState.SCHEDULED, now)
    return table if table.status.state is TieringState.PENDING else pend(table, now)


def begin(table: TieredTable, owner: RoundOwner, now: int, waiting_since: int | None = None) -> TieredTable:
    """Begin the round of the table's epoch: Pending -> Tiering.

    Args:
        now: The present time, in milliseconds since the epoch.
        waiting_since: When the oldest record was written that is not in the lake; None if that is not known.
    """
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
            coordinator_epoch=owner.coordinator_epoch,
            origin=owner.origin,
            waiting_since=waiting_since,
        ),
        last_heartbeat=now,
    )


def finish(
    table: TieredTable, running: TieringRound, stats: TieringStats | None, *, forced: bool, now: int
) -> tuple[TieredTable, TieringRound]:
    """End a round with success: Tiering -> Tiered -> Scheduled, or -> Pending if forced.

    Returns:
        The table, and the round as it ended.
    """
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
            failing_since=None,
            interruptions=0,
        ),
        round=None,
        last_heartbeat=None,
    )
    return (pend(tiered, now) if forced else schedule(tiered, now)), ended


def fail(
    table: TieredTable, running: TieringRound, error: str | None, backoff: FailureBackoff, now: int
) -> tuple[TieredTable, TieringRound]:
    """End a round with a failure: Tiering -> Failed, where the table stays for its back-off.

    Returns:
        The table, and the round as it ended.
    """
    kept = None if error is None else clean_error(error, MAX_KEPT_ERROR_CHARS)
    failures = table.status.consecutive_failures + 1
    status = replace(
        table.status,
        last_error=kept,
        last_error_time=now,
        consecutive_failures=failures,
        failing_since=now if table.status.failing_since is None else table.status.failing_since,
        next_retry_time=backoff.retry_time(failures, now),
        interruptions=0,
    )
    return _end_failed(replace(table, status=status), running, now)


def interrupt(
    table: TieredTable, running: TieringRound, reason: str, backoff: FailureBackoff, now: int
) -> tuple[TieredTable, TieringRound]:
    """End a round whose driver was stopped or lost: Tiering -> Failed.

    This does not count as a failure of the table, which waits for the base back-off only. After `MAX_INTERRUPTIONS` in
    a row the next one does count.

    Returns:
        The table, and the round as it ended.
    """
    interruptions = table.status.interruptions + 1
    if interruptions > MAX_INTERRUPTIONS:
        told = (
            f"{reason}; this counts as a failure, because {interruptions} rounds of the table in a row were "
            "interrupted: look at the logs and the memory of their drivers"
        )
        failed, ended = fail(table, running, told, backoff, now)
        return replace(failed, status=replace(failed.status, interruptions=interruptions)), ended
    counted = replace(table, status=replace(table.status, interruptions=interruptions))
    return cancel(counted, running, reason, backoff, now)


def cancel(
    table: TieredTable, running: TieringRound, reason: str, backoff: FailureBackoff, now: int
) -> tuple[TieredTable, TieringRound]:
    """End a round that somebody cancelled, or whose commits lost against rewrites of the lake: Tiering -> Failed.

    This never counts as a failure of the table, which waits for the base back-off only.

    Returns:
        The table, and the round as it ended.
    """
    kept = clean_error(reason, MAX_KEPT_ERROR_CHARS)
    retry_time = now + backoff.delay_ms(1)
    status = replace(table.status, last_error=kept, last_error_time=now, next_retry_time=retry_time)
    return _end_failed(replace(table, status=status), replace(running, interrupted=True), now)


def lose(table: TieredTable, records: int, now: int) -> TieredTable:
    """Count log records that were dropped before they were in the lake."""
    total = table.status.dropped_untiered_records + records
    return replace(table, status=replace(table.status, dropped_untiered_records=total, dropped_untiered_time=now))


def resume(table: TieredTable, now: int) -> TieredTable:
    """Move a Failed table, parked or not, to Pending at once and reset its failures. Leave any other table as it is."""
    if table.status.state is not TieringState.FAILED:
        return table
    status = replace(table.status, consecutive_failures=0, failing_since=None, interruptions=0)
    return pend(replace(table, status=status), now)


def _end_failed(table: TieredTable, running: TieringRound, now: int) -> tuple[TieredTable, TieringRound]:
    failed = replace(move(table, TieringState.FAILED, now), round=None, last_heartbeat=None)
    return failed, replace(running, state=TieringState.FAILED, end_time=now, error=failed.status.last_error)
