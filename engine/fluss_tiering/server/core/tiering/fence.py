"""Fencing: a driver may act on a table only if the round that it runs is the table's present one."""

from __future__ import annotations

from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import TieringRound
from fluss_tiering.server.core.tiering.states import TieredTable

_FIRST_SECOND: Final = 1_735_689_600
"""The beginning of the year 2025. Coordinator epochs are counted from there, so that they fit in 32 bits for long."""
_LARGEST_EPOCH: Final = 2**31 - 1


def next_coordinator_epoch(last: int, now: int) -> int:
    """Return the coordinator epoch of a server that becomes active.

    It is greater than the last one that is known. It also follows the time, so that an epoch that the database has
    lost, because it was restored from a backup or failed over to a copy that was behind, is not given out again.

    Args:
        last: The coordinator epoch in the database; 0 if there is none.
        now: The present time, in milliseconds since the epoch.
    """
    by_time = now // 1000 - _FIRST_SECOND
    return max(last + 1, by_time if by_time < _LARGEST_EPOCH else 0)


def is_present(named: int, present: int) -> bool:
    """Return whether a driver names the present coordinator epoch, or none."""
    return named in (0, present)


def require_coordinator(named: int, tiering_round: TieringRound | None, present: int) -> None:
    """Check that a round was handed out in the coordinator epoch that its driver names.

    A change of the active server alone ends no round: the round keeps the coordinator epoch in which it was handed out.
    But if the database lost what was written last, a tiering epoch may be handed out a second time. The coordinator
    epochs then tell the two rounds apart.

    Args:
        named: The coordinator epoch that the driver names; 0 if it names none. A driver may name the one in which its
            round was handed out, or the present one, as Fluss's own service does.
        tiering_round: The round; None if it is not known.
        present: The present coordinator epoch.

    Raises:
        FlussTieringError: INVALID_COORDINATOR if the round was handed out in another coordinator epoch.
    """
    if is_present(named, present) or (tiering_round is not None and named == tiering_round.coordinator_epoch):
        return
    raise FlussTieringError(
        ErrorCode.INVALID_COORDINATOR,
        f"coordinator epoch {named} is not that of the round, and the present one is {present}: the server's state was "
        "lost or restored since the round was handed out, or another server handed it out; stop the round",
    )


def require_epoch(table: TieredTable | None, table_id: int, tiering_epoch: int) -> TieredTable:
    """Check that the epoch is the table's present one, and return the table.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if the table is None; FENCED_TIERING_EPOCH if the table has another epoch.
    """
    if table is None:
        raise FlussTieringError(
            ErrorCode.TABLE_NOT_EXIST, f"table {table_id} does not exist or is not tiered: stop its round"
        )
    status = table.status
    if tiering_epoch != status.tiering_epoch:
        raise FlussTieringError(
            ErrorCode.FENCED_TIERING_EPOCH,
            f"tiering epoch {tiering_epoch} of table {status.path} is not its present one, {status.tiering_epoch}: "
            "the round was ended or superseded; stop it",
        )
    return table


def require_running(table: TieredTable | None, table_id: int, tiering_epoch: int) -> tuple[TieredTable, TieringRound]:
    """Check that the table's round of this epoch runs, and return both.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if the table is None; FENCED_TIERING_EPOCH if the table has another epoch;
            INVALID_TIERING_STATE if the round has ended.
    """
    table = require_epoch(table, table_id, tiering_epoch)
    if table.round is None:
        status = table.status
        reason = f" ({status.last_error})" if status.last_error else ""
        raise FlussTieringError(
            ErrorCode.INVALID_TIERING_STATE,
            f"table {status.path} is not Tiering but {status.state}{reason}: the round of epoch {tiering_epoch} has "
            "ended; stop it",
        )
    return table, table.round
