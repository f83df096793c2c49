"""Who gets a table: a driver that names it, or the next one that asks. And what is due: tables, and ends of rounds."""

from __future__ import annotations

from collections.abc import Container

from fluss_tiering.model.clock import iso_time
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, TieringRound, TieringStatus
from fluss_tiering.server.core.tiering.changes import TieringChanges
from fluss_tiering.server.core.tiering.policy import TieringPolicy
from fluss_tiering.server.core.tiering.states import (
    FailureBackoff,
    RoundOwner,
    TieredTable,
    begin,
    claimable,
    fail,
    interrupt,
    is_due,
    pend,
)
from fluss_tiering.server.core.tiering.tables import TieredTables


def claim_table(
    changes: TieringChanges,
    table: TieredTable,
    owner: RoundOwner,
    backoff: FailureBackoff,
    now: int,
    *,
    waiting_since: int | None = None,
) -> Claim:
    """Begin a round of the table under a new epoch, whether the table is due or not.

    The owner supersedes a running round of its own lease: one of an older attempt, or one of the same attempt from
    before its driver was restarted. That round is interrupted first. If it is one of several in a row, it counts as a
    failure of the table: a table that ends each driver that touches it is parked at last.

    Raises:
        FlussTieringError: TABLE_BEING_TIERED if another owner's round runs; TABLE_PARKED if the table is parked.
    """
    if table.status.parked:
        raise _parked(table.status)
    running = table.round
    if running is not None:
        if not _supersedes(owner, running):
            raise _being_tiered(table, running)
        reason = (
            f"superseded by driver {owner.driver or 'unknown'}, attempt {owner.attempt_token} of the same lease, "
            f"before driver {running.driver or 'unknown'} reported an outcome"
        )
        table, ended = interrupt(table, running, reason, backoff, now)
        changes.put(table, ended)
        if table.status.parked:
            raise _parked(table.status)
    table = begin(claimable(table, now), owner, now, waiting_since)
    changes.put(table)
    status = table.status
    return Claim(status.table_id, status.path, status.tiering_epoch, owner.coordinator_epoch)


def _supersedes(owner: RoundOwner, running: TieringRound) -> bool:
    # The owner has a token if the lease was ever acquired; without one, the lease id alone decides.
    return owner.lease_id == running.lease_id and (owner.attempt_token or 0) >= (running.attempt_token or 0)


def _parked(status: TieringStatus) -> FlussTieringError:
    lines = (status.last_error or "").strip().splitlines()
    return FlussTieringError(
        ErrorCode.TABLE_PARKED,
        f"table {status.path} is parked after {status.consecutive_failures} failures in a row, the last one: "
        f"{lines[0] if lines else 'no reason was given'}; remove the cause, then run "
        f"`fluss-tiering resume {status.path}`",
    )


def _being_tiered(table: TieredTable, running: TieringRound) -> FlussTieringError:
    heartbeat = iso_time(table.last_heartbeat or running.start_time)
    return FlussTieringError(
        ErrorCode.TABLE_BEING_TIERED,
        f"table {running.path} is being tiered: epoch {running.tiering_epoch}, lease {running.lease_id or 'none'}, "
        f"driver {running.driver or 'unknown'}, last heartbeat {heartbeat}; wait until it ends, or cancel it",
    )


def move_due(tables: TieredTables, changes: TieringChanges, now: int) -> None:
    """Move Scheduled and Failed tables whose time has come to Pending."""
    for table_id in tables.due.until(now):
        table = changes.table(table_id)
        if table is not None and is_due(table, now):
            changes.put(pend(table, now))


def hand_out(
    tables: TieredTables,
    changes: TieringChanges,
    requester: RoundOwner,
    now: int,
    among: Container[TablePath] | None = None,
) -> Claim | None:
    """Claim the table that has been Pending for longest; return None if no table is Pending or due.

    Args:
        changes: The changes to which the claim is added.
        requester: Who asks for a table.
        now: The present time, in milliseconds since the epoch.
        among: The tables of which one may be claimed; None for all.
    """
    first = changes.first_pending(among)
    if first is None:
        # Due tables are moved only if none is Pending: they would come last anyway.
        move_due(tables, changes, now)
        first = changes.first_pending(among)
    if first is None:
        return None
    status = first.status
    shown = tables.shown(status.table_id)
    changes.put(begin(first, requester, now, None if shown is None else shown.waiting_since))
    return Claim(status.table_id, status.path, status.tiering_epoch, requester.coordinator_epoch)


def end_overdue(tables: TieredTables, changes: TieringChanges, policy: TieringPolicy, now: int) -> None:
    """Interrupt rounds that were silent for too long, and fail those that run for too long.

    Args:
        changes: The changes to which the ends of rounds are added.
        policy: How long a round may be silent, and how long it may run.
        now: The present time, in milliseconds since the epoch.
    """
    for table in tables.running():
        if table.round is None:
            continue
        if (silence := _silence(table, table.round, policy, now)) is not None:
            changes.put(*interrupt(table, table.round, silence, policy.backoff, now))
        elif (length := _too_long(table.round, policy, now)) is not None:
            changes.put(*fail(table, table.round, length, policy.backoff, now))


def _silence(table: TieredTable, running: TieringRound, policy: TieringPolicy, now: int) -> str | None:
    """Return why the driver of a running round counts as lost; None if it does not."""
    heard = table.last_heartbeat
    if heard is None or now - heard < policy.heartbeat_timeout_ms:
        return None
    return (
        f"heartbeat timed out after {(now - heard) / 1000:g} s: the last one came at {iso_time(heard)} from driver "
        f"{running.driver or 'unknown'}"
    )


def _too_long(running: TieringRound, policy: TieringPolicy, now: int) -> str | None:
    """Return why a running round fails for its length; None if it may go on."""
    if now - running.start_time < policy.max_round_ms:
        return None
    return (
        f"round took too long: it began {(now - running.start_time) / 1000:g} s ago, and max-round-duration allows "
        f"{policy.max_round_ms / 1000:g} s; driver {running.driver or 'unknown'} still sends heartbeats and may hang"
    )
