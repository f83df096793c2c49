"""Claims by name: what a driver that was told its tables does instead of asking for any."""

from __future__ import annotations

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import Claim, TieringRound, TieringStatus
from fluss_tiering.server.tiering.changes import TieringChanges
from fluss_tiering.server.tiering.states import FailureBackoff, RoundOwner, TieredTable, begin, claimable, interrupt
from fluss_tiering.server.times import iso_time


def claim_table(
    changes: TieringChanges, table: TieredTable, owner: RoundOwner, backoff: FailureBackoff, now: int
) -> Claim:
    """Puts the table into Tiering under a new epoch, due or not.

    A round that an older attempt of the same lease runs, or the same attempt before its driver was restarted, is ended
    as superseded first; that is no failure of the table (S19).

    Raises:
        FlussTieringError: TABLE_BEING_TIERED when another's round runs, TABLE_PARKED when the table is (S19).
    """
    if table.status.parked:
        raise _parked(table.status)
    running = table.round
    if running is not None:
        if not _supersedes(owner, running):
            raise _being_tiered(table, running)
        reason = f"superseded by driver {owner.driver or 'unknown'}, attempt {owner.attempt_token} of the same lease"
        table, ended = interrupt(table, running, reason, backoff, now)
        changes.put(table, ended, interrupted=True)
    table = begin(claimable(table, now), owner, now)
    changes.put(table)
    status = table.status
    return Claim(status.table_id, status.path, status.tiering_epoch)


def _supersedes(owner: RoundOwner, running: TieringRound) -> bool:
    # Where the lease was ever acquired, the owner carries a token; without one, only the lease id can tell.
    return owner.lease_id == running.lease_id and (owner.attempt_token or 0) >= (running.attempt_token or 0)


def _parked(status: TieringStatus) -> FlussTieringError:
    lines = (status.last_error or "").strip().splitlines()
    return FlussTieringError(
        ErrorCode.TABLE_PARKED,
        f"table {status.path} is parked after {status.consecutive_failures} failures in a row, the last one: "
        f"{lines[0] if lines else 'no reason was given'}; once the cause is gone, run "
        f"`fluss-tiering resume {status.path}`",
    )


def _being_tiered(table: TieredTable, running: TieringRound) -> FlussTieringError:
    heartbeat = "none" if table.last_heartbeat is None else iso_time(table.last_heartbeat)
    return FlussTieringError(
        ErrorCode.TABLE_BEING_TIERED,
        f"table {running.path} is being tiered: epoch {running.tiering_epoch}, lease {running.lease_id or 'none'}, "
        f"driver {running.driver or 'unknown'}, last heartbeat {heartbeat}; wait until it ends, or cancel it",
    )
