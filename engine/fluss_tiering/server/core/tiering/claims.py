"""Claims by name: a driver that was given its tables claims these, instead of asking for any Pending table."""

from __future__ import annotations

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import Claim, TieringRound, TieringStatus
from fluss_tiering.server.core.tiering.changes import TieringChanges
from fluss_tiering.server.core.tiering.states import (
    FailureBackoff,
    RoundOwner,
    TieredTable,
    begin,
    claimable,
    interrupt,
)
from fluss_tiering.server.core.times import iso_time


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
