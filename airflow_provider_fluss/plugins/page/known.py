"""What the tiering servers of the connections say. One that does not answer holds a few threads, and no more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.models.connection import Connection
from airflow.providers.common.compat.sdk import AirflowException
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import DEFAULT_CONN_ID
from airflow_provider_fluss.plugins.page.access import may_read_connection_of_team
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import KvSnapshotLease, TieringStatus

if TYPE_CHECKING:
    from fluss_tiering.client import TieringClient

TIMEOUT_SECONDS: Final = 5.0
"""A page waits for the tiering server for this long, and then says that it does not answer."""

T = TypeVar("T")


def ask(conn_id: str, question: Callable[[TieringClient], T]) -> T:
    """Ask the tiering server of a connection. Each call of the question may take five seconds.

    Raises:
        FlussTieringError: INVALID_REQUEST if the connection is not usable; otherwise as the calls of the question.
    """
    try:
        client = FlussHook(conn_id, timeout=TIMEOUT_SECONDS).get_client()
    except (AirflowException, ValueError) as error:
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, str(error)) from error
    with client:
        return question(client)


def statuses(conn_id: str) -> Sequence[TieringStatus]:
    """Return the statuses of all tables of the server. Raises the errors of `ask`."""
    return ask(conn_id, lambda client: client.list_tiering_statuses())


def leases(conn_id: str) -> Sequence[KvSnapshotLease]:
    """Return the leases of the server, those that expire first. Raises the errors of `ask`."""
    return sorted(ask(conn_id, lambda client: client.list_leases()), key=lambda each: each.expiration_time)


THREADS_OF_A_CONNECTION: Final = 4
_THREADS: Final = ThreadPoolExecutor(64, thread_name_prefix="lake-tiering")
"""None of them is one of those that the API server shares. A thread is started only when all others are taken."""

_Turns = WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Semaphore]
_TURNS: Final = _Turns()
"""Who may take a thread, for each connection that somebody waits for now."""


async def in_thread(conn_id: str, work: Callable[[], T]) -> T:
    """Run what asks the server of a connection in a thread, as soon as the connection has one of its own left.

    Args:
        conn_id: The id of the connection as the address or the form has it.
        work: What is done.
    """
    loop = asyncio.get_running_loop()
    turns = _TURNS.get((loop, conn_id))
    if turns is None:
        turns = _TURNS[loop, conn_id] = asyncio.Semaphore(THREADS_OF_A_CONNECTION)
    async with turns:
        return await loop.run_in_executor(_THREADS, work)


_VARIABLE_PREFIX: Final = "AIRFLOW_CONN_"


def fluss_connections(user: BaseUser) -> list[str]:
    """Return the ids of the connections of type `fluss`, the default connection first.

    They are those of Airflow's database, those in variables of the environment, and `fluss_default` wherever Airflow
    finds it. Other secrets backends cannot be listed. A connection of a team is left out unless the user may read it.
    """
    found = {*_in_database(user), *_in_environment()}
    if DEFAULT_CONN_ID not in found and _is_fluss(DEFAULT_CONN_ID):
        found.add(DEFAULT_CONN_ID)
    return sorted(found, key=lambda conn_id: (conn_id != DEFAULT_CONN_ID, conn_id))


def _in_database(user: BaseUser) -> Iterator[str]:
    with create_session() as session:
        for connection in session.scalars(select(Connection).where(Connection.conn_type == FlussHook.conn_type)):
            # Connections have had teams since Airflow 3.2.
            team = getattr(connection, "team_name", None)
            if team is None or may_read_connection_of_team(user, connection.conn_id, team):
                yield connection.conn_id


def _in_environment() -> Iterator[str]:
    names = (name.removeprefix(_VARIABLE_PREFIX) for name in os.environ if name.startswith(_VARIABLE_PREFIX))
    return (conn_id for conn_id in (name.lower() for name in names) if _is_fluss(conn_id))


def _is_fluss(conn_id: str) -> bool:
    try:
        return Connection.get_connection_from_secrets(conn_id).conn_type == FlussHook.conn_type
    except (AirflowException, ValueError):
        # It is not defined, or its variable is no connection.
        return False
