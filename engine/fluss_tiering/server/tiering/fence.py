"""Fencing: a driver may act on a table only if the round that it runs is the table's present one."""

from __future__ import annotations

from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringRound
from fluss_tiering.server.tiering.options import ENABLED
from fluss_tiering.server.tiering.states import TieredTable

COORDINATOR_EPOCH: Final = 0
"""The coordinator epoch of this server. It never changes, since one server is active and tiering epochs persist."""


def require_coordinator(coordinator_epoch: int) -> None:
    """Check that this server handed the round out.

    Raises:
        FlussTieringError: INVALID_COORDINATOR if another server did.
    """
    if coordinator_epoch != COORDINATOR_EPOCH:
        raise FlussTieringError(
            ErrorCode.INVALID_COORDINATOR,
            f"coordinator epoch {coordinator_epoch} is not {COORDINATOR_EPOCH}: another server handed the round out; "
            "stop the round",
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


def not_tiered(path: TablePath) -> FlussTieringError:
    """Return the error that says that an existing table is not tiered."""
    return FlussTieringError(
        ErrorCode.INVALID_TIERING_STATE,
        f"table {path} is not tiered: create or alter it with the option {ENABLED}=true",
    )
