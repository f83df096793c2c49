"""The hook that makes a client of the tiering server from a connection of type `fluss`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseHook

from airflow_provider_fluss.lease import DEFAULT_CONN_ID
from fluss_tiering.model.errors import FlussTieringError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from fluss_tiering.client import AsyncTieringClient, TieringClient

DEFAULT_TIMEOUT_SECONDS: Final = 30.0


class FlussHook(BaseHook):
    """Connect to a tiering server.

    The host and the port of the connection are those of the server. The extra of the connection may hold `timeout`, the
    deadline of each call in seconds.

    Args:
        fluss_conn_id: The id of the Airflow connection.
        timeout: The deadline of each call in seconds. It overrides the timeout of the connection.
    """

    conn_name_attr = "fluss_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "fluss"
    hook_name = "Apache Fluss tiering"

    def __init__(self, fluss_conn_id: str = default_conn_name, timeout: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fluss_conn_id = fluss_conn_id
        self.timeout = timeout

    def get_address(self) -> str:
        """Return the address of the server as `host:port`.

        Raises:
            ValueError: The connection has no host.
        """
        return _address(self.get_connection(self.fluss_conn_id))

    def get_client(self) -> TieringClient:
        """Return a client of the server. Close it, or use it as a context manager.

        Raises:
            ValueError: The connection is not usable. The message names the connection and says what is wrong.
        """
        from fluss_tiering.client import TieringClient  # noqa: PLC0415 - gRPC is not needed to parse a DAG

        connection = self.get_connection(self.fluss_conn_id)
        return TieringClient(_address(connection), timeout=self.timeout or _timeout(connection))

    async def get_async_client(self) -> AsyncTieringClient:
        """Return an asyncio client of the server, for triggers. Close it, or use it as an async context manager.

        Raises:
            ValueError: The connection is not usable. The message names the connection and says what is wrong.
        """
        from fluss_tiering.client import AsyncTieringClient  # noqa: PLC0415 - gRPC is not needed to parse a DAG

        connection = await self.aget_connection(self.fluss_conn_id)
        return AsyncTieringClient(_address(connection), timeout=self.timeout or _timeout(connection))

    def get_conn(self) -> TieringClient:
        """Return a client of the server. Airflow calls this method by this name."""
        return self.get_client()

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the server answers, and a message. The Test button of the connection form calls this."""
        try:
            with self.get_client() as client:
                storage = client.describe_storage()
        except (FlussTieringError, ValueError) as error:
            return False, str(error)
        return True, f"Tiering server {storage.server_version} on {storage.kind} storage"


def _address(connection: Connection) -> str:
    from fluss_tiering.client import DEFAULT_PORT  # noqa: PLC0415 - gRPC is not needed to parse a DAG

    if not connection.host:
        raise ValueError(
            f"Connection {connection.conn_id!r} has no host: set it to the host of the tiering server, "
            f"and the port if it is not {DEFAULT_PORT}."
        )
    return f"{connection.host}:{connection.port or DEFAULT_PORT}"


def _timeout(connection: Connection) -> float:
    value = connection.extra_dejson.get("timeout")
    if value in (None, ""):
        return DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if seconds <= 0:
        raise ValueError(
            f"Connection {connection.conn_id!r} has timeout {value!r} in its extra: expected seconds greater than 0."
        )
    return seconds
