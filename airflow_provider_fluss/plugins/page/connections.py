"""The connections of type `fluss` that a user of the page can choose from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.models.connection import Connection
from airflow.providers.common.compat.sdk import AirflowException
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import DEFAULT_CONN_ID
from airflow_provider_fluss.plugins.page.access import may_read_connection_of_team

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
