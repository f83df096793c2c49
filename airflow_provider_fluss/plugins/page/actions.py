"""What a user can do on the page: resume a table, tier it now, and release a lease.

Each action is in Airflow's audit log before it is done, with the name of the user. If it is then not done, the entry
says why in `not_done`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.models.log import Log
from airflow.utils.session import create_session
from fastapi import HTTPException, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import update

from airflow_provider_fluss.plugins.page.html import Note, write_note
from airflow_provider_fluss.plugins.page.known import ask, fluss_connections
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import LeaseDrop, TieringState

RESUME_EVENT: Final = "fluss_resume_table"
TIER_EVENT: Final = "fluss_tier_table_now"
RELEASE_EVENT: Final = "fluss_release_lease"


@dataclass(frozen=True, slots=True)
class _Action:
    """What is done, and for whom.

    Attributes:
        user: The user.
        conn: The id of the connection.
        event: The name of the event in the audit log.
        target: What the action is done to, for the audit log.
        back: The relative address of the page to go on with.
    """

    user: BaseUser
    conn: str
    event: str
    target: dict[str, str]
    back: str


def resume(user: BaseUser, conn: str, table: str) -> Response:
    """Make a failed or parked table Pending at once, and go back to its page."""
    return _make_pending(user, conn, table, RESUME_EVENT, include_scheduled=False)


def tier_now(user: BaseUser, conn: str, table: str) -> Response:
    """Make a Scheduled table Pending before it is due, and go back to its page."""
    return _make_pending(user, conn, table, TIER_EVENT, include_scheduled=True)


def release(user: BaseUser, conn: str, lease_id: str, attempt_token: int) -> Response:
    """Release a lease, unless a newer attempt than the one that the user saw holds it."""

    def done() -> Note:
        dropped = ask(conn, lambda client: client.drop_lease(lease_id, attempt_token=attempt_token))
        match dropped:
            case LeaseDrop.DROPPED:
                return Note(True, f"The lease {lease_id} is released.")
            case LeaseDrop.UNKNOWN:
                return Note(True, f"The lease {lease_id} had ended already.")
            case LeaseDrop.STALE:
                return Note(
                    False, f"The lease {lease_id} was not released: a newer attempt holds it. Look at it once more."
                )

    target = {"lease_id": lease_id, "attempt_token": str(attempt_token)}
    return _do(_Action(user, conn, RELEASE_EVENT, target, "leases"), done)


def _make_pending(user: BaseUser, conn: str, table: str, event: str, *, include_scheduled: bool) -> Response:
    try:
        path = TablePath.parse(table)
    except FlussTieringError as error:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, error.message) from error

    def done() -> Note:
        (answer,) = ask(conn, lambda client: client.resume_tables([path], include_scheduled=include_scheduled))
        if isinstance(answer, FlussTieringError):
            raise answer
        if answer.state is TieringState.PENDING:
            return Note(True, f"{path} is Pending. The next run that tiers pending tables takes it.")
        return Note(False, f"{path} was left as it is, because it is {answer.state.value}.")

    return _do(_Action(user, conn, event, {"table": table}, f"table?{urlencode({'table': table})}"), done)


def _do(action: _Action, done: Callable[[], Note]) -> Response:
    if action.conn not in fluss_connections(action.user):
        raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no connection {action.conn} of type fluss.")
    entry = _record(action)
    try:
        note = done()
    except FlussTieringError as error:
        note = Note(False, error.message)
    if not note.done:
        _record_refusal(entry, action, note.text)
    also: dict[str, Any] = {"conn": action.conn, "note": write_note(note)}
    joint = "&" if "?" in action.back else "?"
    return RedirectResponse(f"{action.back}{joint}{urlencode(also)}", HTTPStatus.SEE_OTHER)


def _record(action: _Action) -> int:
    """Write the action into Airflow's audit log, and return the id of the entry."""
    name = action.user.get_name()
    with create_session() as session:
        entry = Log(action.event, owner=name, owner_display_name=name, extra=_extra(action))
        session.add(entry)
        session.flush()
        return int(entry.id)


def _record_refusal(entry: int, action: _Action, reason: str) -> None:
    """Write into the entry of an action that it was not done."""
    with create_session() as session:
        session.execute(update(Log).where(Log.id == entry).values(extra=_extra(action, not_done=reason)))


def _extra(action: _Action, **more: str) -> str:
    return json.dumps({"fluss_conn_id": action.conn, **action.target, "method": "POST", **more})
