"""The errors of connections: tell one that is wrong or not defined from one that cannot be looked up at present.

Airflow says of both that the connection is not defined. Another try helps while the API server is away, but it does not
define a connection.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException


class UnusableConnectionError(AirflowFailException, ValueError):
    """A connection is not defined, or is not one to a tiering server. Another try of the task would not change that."""


def check_id(argument: str, conn_id: object) -> None:
    """Check that the id of a connection is a text.

    Args:
        argument: The argument that names the connection.
        conn_id: Its value.

    Raises:
        UnusableConnectionError: It is something else, or empty.
    """
    if not isinstance(conn_id, str) or not conn_id:
        raise UnusableConnectionError(f"{argument} is {conn_id!r}: expected the id of an Airflow connection, as a text")


class UnreachableConnectionError(AirflowException):
    """Airflow cannot look a connection up at present. Another try may help."""

    def __init__(self, conn_id: str) -> None:
        super().__init__(f"Connection {conn_id!r} cannot be looked up at present: Airflow's API server does not answer")


def is_not_defined(conn_id: str) -> bool:
    """Return whether the API server says that it has no such connection, once a lookup of it has failed.

    Outside of a task nobody can be asked. What is not found there is taken for not defined.
    """
    try:
        from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection  # noqa: PLC0415
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS  # noqa: PLC0415
    except ImportError:
        return True
    try:
        answer: object = SUPERVISOR_COMMS.send(GetConnection(conn_id=conn_id))
    except Exception as error:  # noqa: BLE001 - the supervisor passes on any error of the API server
        answer = getattr(error, "error", None)
    return isinstance(answer, ErrorResponse) and answer.error.value == "CONNECTION_NOT_FOUND"
