"""What a driver must show before it may act on a table: that the round it runs is the table's present one (S5, S6)."""

from __future__ import annotations

from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import TieringRound
from fluss_tiering.server.tiering.states import TieredTable

COORDINATOR_EPOCH: Final = 0
"""Of this server; there is one server, whose epochs are persisted, so it never changes."""


def require_coordinator(coordinator_epoch: int) -> None:
    """Raises INVALID_COORDINATOR unless the round was handed out by this server."""
    if coordinator_epoch != COORDINATOR_EPOCH:
        raise FlussTieringError(
            ErrorCode.INVALID_COORDINATOR,
            f"coordinator epoch {coordinator_epoch} is not {COORDINATOR_EPOCH}: another server handed the round out; "
            "stop it",
        )


def require_epoch(table: TieredTable | None, table_id: int, tiering_epoch: int) -> TieredTable:
    """The table, whose present epoch it is.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST, FENCED_TIERING_EPOCH.
    """
    if table is None:
        raise FlussTieringError(
            ErrorCode.TABLE_NOT_EXIST, f"table {table_id} does not exist (any more), or is not tiered: stop its round"
        )
    status = table.status
    if tiering_epoch != status.tiering_epoch:
        raise FlussTieringError(
            ErrorCode.FENCED_TIERING_EPOCH,
            f"tiering epoch {tiering_epoch} of table {status.path} is not its present one, {status.tiering_epoch}: "
            "the round was ended or taken over; stop it",
        )
    return table


def require_running(table: TieredTable | None, table_id: int, tiering_epoch: int) -> tuple[TieredTable, TieringRound]:
    """The table and its running round, which is of that epoch.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST, FENCED_TIERING_EPOCH, INVALID_TIERING_STATE when the round ended.
    """
    table = require_epoch(table, table_id, tiering_epoch)
    if table.round is None:
        status = table.status
        reason = f" ({status.last_error})" if status.last_error else ""
        raise FlussTieringError(
            ErrorCode.INVALID_TIERING_STATE,
            f"table {status.path} is not Tiering but {status.state}{reason}: the round of epoch {tiering_epoch} ended; "
            "stop it",
        )
    return table, table.round
