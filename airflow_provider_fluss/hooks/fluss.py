"""The hook that makes a client of the tiering server from a connection of type `fluss`."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook
from asgiref.sync import sync_to_async

from airflow_provider_fluss.hooks.security import (
    DRIVER_SERVER,
    ConnectionSecurity,
    extra_of,
    remote_environment,
    trouble,
)
from airflow_provider_fluss.hooks.shared_client import shared_client
from airflow_provider_fluss.lease import DEFAULT_CONN_ID
from airflow_provider_fluss.missing_connection import (
    UnreachableConnectionError,
    UnusableConnectionError,
    check_id,
    is_not_defined,
)
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from fluss_tiering.client import AsyncTieringClient, TieringClient
    from fluss_tiering.client.security import ClientSecurity
    from fluss_tiering.model.table import StorageDescription
    from fluss_tiering.model.tiering import KvSnapshotLease, TieringRound, TieringStatus

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
_LONGEST_TIMEOUT_SECONDS: Final = 86_400.0
"""A day. gRPC takes a deadline for over as soon as it is too far away for its clock."""
_HIGHEST_PORT: Final = 65_535
_HOST: Final = re.compile(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]|(?:dns|ipv4|ipv6):\S+")
"""A host name, an IPv6 address in brackets, or what gRPC has resolvers for."""


class FlussHook(BaseHook):
    """Connect to a tiering server.

    The host and the port of the connection are those of the server. The extra of the connection may hold `timeout`, the
    deadline of each call in seconds, which is at most a day. The password is a token for the server. The extra may hold
    `token_file` in its place, `tls`, `tls_ca`, `tls_cert`, `tls_key` and `allow_insecure`. A connection without any of
    these uses the credentials of the environment (`FLUSS_TIERING_TOKEN_FILE` and so on). For Spark's drivers on a
    cluster, the extra may hold another address of the server, `driver_server`, and a `driver_token_file`, or
    `driver_has_credentials` if their platform sets these variables.

    Each of the methods that ask the server makes a client of its own and closes it. Use `get_client` for many calls,
    and for calls that have no method here. Those methods raise FlussTieringError with the code UNAVAILABLE if the
    server cannot be reached, and ValueError if the connection is not usable. Tables are given as `database.table`; a
    name of another form raises FlussTieringError with the code INVALID_TABLE.

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
            UnreachableConnectionError: Airflow cannot look the connection up at present.
            ValueError: The connection is not usable. The message names the connection and says what is wrong.
        """
        return _address(self._connection())

    def get_security(self) -> ConnectionSecurity | None:
        """Return the credentials of the connection; None if it has none.

        Raises:
            UnreachableConnectionError: Airflow cannot look the connection up at present.
            UnusableConnectionError: A field is wrong. The message names it.
        """
        return ConnectionSecurity.of(self._connection())

    def get_driver_address(self) -> str:
        """Return the address for a driver on another machine: `driver_server` of the extra, or else that of the server.

        Raises:
            UnreachableConnectionError: Airflow cannot look the connection up at present.
            ValueError: The connection is not usable. The message names the connection and says what is wrong.
        """
        connection = self._connection()
        return _driver_server(connection) or _address(connection)

    def get_driver_environment(self) -> dict[str, str]:
        """Return the variables that give a driver on another machine its credentials. They hold no token.

        Raises:
            UnreachableConnectionError: Airflow cannot look the connection up at present.
            UnusableConnectionError: A field is wrong, or such a driver cannot have the token. The message names it.
        """
        return remote_environment(self._connection())

    def get_client(self) -> TieringClient:
        """Return a client of the server. Close it, or use it as a context manager.

        Raises:
            UnreachableConnectionError: Airflow cannot look the connection up at present.
            ValueError: The connection is not usable. The message names the connection and says what is wrong.
        """
        from fluss_tiering.client import TieringClient  # noqa: PLC0415 - gRPC is not needed to parse a DAG

        connection = self._connection()
        return TieringClient(
            _address(connection),
            timeout=self.timeout or _timeout(connection),
            label=self._label,
            security=_security(connection),
        )

    async def get_async_client(self) -> AsyncTieringClient:
        """Return an asyncio client of the server, for triggers. Close it, or use it as an async context manager.

        Raises:
            UnreachableConnectionError: Airflow cannot look the connection up at present.
            ValueError: The connection is not usable. The message names the connection and says what is wrong.
        """
        from fluss_tiering.client import AsyncTieringClient  # noqa: PLC0415 - gRPC is not needed to parse a DAG

        connection = await self._async_connection()
        return AsyncTieringClient(
            _address(connection),
            timeout=self.timeout or _timeout(connection),
            label=self._label,
            security=await sync_to_async(_security)(connection),
        )

    @asynccontextmanager
    async def share_async_client(self) -> AsyncIterator[AsyncTieringClient]:
        """Yield an asyncio client that all users of this method in the event loop share, for triggers that only poll.

        Use `get_async_client` for watches: a channel carries only so many streams at once.

        Raises:
            UnreachableConnectionError: Airflow cannot look the connection up at present.
            ValueError: The connection is not usable. The message names the connection and says what is wrong.
        """
        connection = await self._async_connection()
        timeout = self.timeout or _timeout(connection)
        security = await sync_to_async(_security)(connection)
        async with shared_client(_address(connection), timeout, self._label, security) as client:
            yield client

    @property
    def _label(self) -> str:
        """How errors name the connection, beside the address of the server."""
        return f"connection {self.fluss_conn_id}"

    async def _async_connection(self) -> Connection:
        check_id(self.conn_name_attr, self.fluss_conn_id)
        try:
            return await self.aget_connection(self.fluss_conn_id)
        except AirflowNotFoundException as error:
            if not await sync_to_async(is_not_defined)(self.fluss_conn_id):
                raise UnreachableConnectionError(self.fluss_conn_id) from error
            raise _undefined(self.fluss_conn_id) from None

    def _connection(self) -> Connection:
        check_id(self.conn_name_attr, self.fluss_conn_id)
        try:
            return self.get_connection(self.fluss_conn_id)
        except AirflowNotFoundException as error:
            if not is_not_defined(self.fluss_conn_id):
                raise UnreachableConnectionError(self.fluss_conn_id) from error
            raise _undefined(self.fluss_conn_id) from None

    def get_conn(self) -> TieringClient:
        """Return a client of the server. Airflow calls this method by this name."""
        return self.get_client()

    def list_tiering_statuses(self, tables: Sequence[str] | None = None) -> list[TieringStatus]:
        """Return the status of each table in the given order, or of all tables that are tiered.

        Args:
            tables: The `database.table` of each table, or None for all tables.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if one of the tables does not exist; INVALID_TIERING_STATE if one of them
                is not tiered.
        """
        with self.get_client() as client:
            if tables is None:
                return client.list_tiering_statuses()
            return [status for path in _paths(tables) for status in client.list_tiering_statuses(path)]

    def resume_tables(self, tables: Sequence[str], *, include_scheduled: bool = False) -> list[TieringStatus]:
        """Make failed tables Pending at once, parked tables too, and return the new statuses in the given order.

        A table that has not failed stays as it is, unless `include_scheduled` is set. A round that names its table
        needs no call, since it runs whether the table is due or not.

        Args:
            tables: The `database.table` of each table.
            include_scheduled: Whether Scheduled tables become Pending as well, before their freshness has passed.

        Raises:
            FlussTieringError: The error of the first table that was refused. Its message names all refused tables. The
                other tables were resumed.
        """
        with self.get_client() as client:
            answers = client.resume_tables(_paths(tables), include_scheduled=include_scheduled)
        refused = [each for each in answers if isinstance(each, FlussTieringError)]
        if refused:
            raise FlussTieringError(refused[0].code, "; ".join(each.message for each in refused))
        return [each for each in answers if not isinstance(each, FlussTieringError)]

    def list_tiering_rounds(
        self, table: str | None = None, *, lease_id: str | None = None, limit: int = 20
    ) -> list[TieringRound]:
        """Return the last rounds of a table or of all tables, each table's newest round first.

        Args:
            table: The `database.table` of the table, or None for all tables.
            lease_id: The lease of the rounds, or None for all leases.
            limit: The highest number of rounds of each table.
        """
        path = None if table is None else TablePath.parse(table)
        with self.get_client() as client:
            return client.list_tiering_rounds(path, lease_id, limit)

    def list_leases(self, lease_id: str | None = None) -> list[KvSnapshotLease]:
        """Return the KV snapshot lease of this id, if it exists, or all leases."""
        with self.get_client() as client:
            return client.list_leases(lease_id)

    def describe_storage(self) -> StorageDescription:
        """Return which storage the server has, where its files are, and the version of the server."""
        with self.get_client() as client:
            return client.describe_storage()

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the server answers, and a message. The Test button of the connection form calls this.

        The message tells apart a TLS handshake that failed, a caller whom the server does not know, and an identity
        without the role that is needed.
        """
        try:
            storage = self.describe_storage()
        except FlussTieringError as error:
            return False, trouble(error)
        except ValueError as error:
            return False, str(error)
        return True, f"Tiering server {storage.server_version} on {storage.kind} storage"


def _paths(tables: Sequence[str]) -> list[TablePath]:
    if isinstance(tables, str):
        raise TypeError(f"tables is {tables!r}: expected a list of DATABASE.TABLE")
    return [TablePath.parse(table) for table in tables]


def _undefined(conn_id: str) -> UnusableConnectionError:
    return UnusableConnectionError(
        f"Connection {conn_id!r} is not defined: add a connection of the type {FlussHook.conn_type!r} with this id, "
        f"with the host and the port of the tiering server."
    )


def _address(connection: Connection) -> str:
    from fluss_tiering.client import DEFAULT_PORT  # noqa: PLC0415 - gRPC is not needed to parse a DAG

    if connection.conn_type != FlussHook.conn_type:
        raise UnusableConnectionError(
            f"Connection {connection.conn_id!r} is of the type {connection.conn_type!r}: expected "
            f"{FlussHook.conn_type!r}, which is {FlussHook.hook_name}."
        )
    if not connection.host:
        raise UnusableConnectionError(
            f"Connection {connection.conn_id!r} has no host: set it to the host of the tiering server, "
            f"and the port if it is not {DEFAULT_PORT}."
        )
    port = connection.port or DEFAULT_PORT
    if not 0 < port <= _HIGHEST_PORT:
        raise UnusableConnectionError(
            f"Connection {connection.conn_id!r} has port {port}: expected 1 to {_HIGHEST_PORT}, or nothing for "
            f"{DEFAULT_PORT}."
        )
    from fluss_tiering.client.target import split_addresses  # noqa: PLC0415 - gRPC is not needed to parse a DAG

    before, at, hosts = str(connection.host).rpartition("@")
    return f"{before}{at}" + ",".join(f"{_host(connection, each)}:{port}" for each in split_addresses(hosts))


def _driver_server(connection: Connection) -> str | None:
    from fluss_tiering.client.target import Target  # noqa: PLC0415 - gRPC is not needed to parse a DAG

    server = extra_of(connection).get(DRIVER_SERVER)
    if server in (None, ""):
        return None
    try:
        Target.parse(server)
    except FlussTieringError as error:
        raise UnusableConnectionError(
            f"Connection {connection.conn_id!r} has a wrong {DRIVER_SERVER} in its extra ({error.message})"
        ) from None
    return str(server)


def _security(connection: Connection) -> ClientSecurity | None:
    from fluss_tiering.client.target import Target  # noqa: PLC0415 - gRPC is not needed to parse a DAG

    security = ConnectionSecurity.of(connection)
    return None if security is None else security.client(Target.parse(_address(connection)))


def _host(connection: Connection, name: str) -> str:
    """Return one of the hosts of a connection as it stands before a port."""
    if _is_ipv6(name):
        return f"[{name}]"
    if not _HOST.fullmatch(name):
        raise UnusableConnectionError(
            f"Connection {connection.conn_id!r} has host {connection.host!r}: expected the name or the IP address of "
            f"the tiering server alone, for example tiering.example.com, or those of several servers, separated by "
            f"commas, without http:// and without a path. Their port belongs in the field port."
        )
    return name


def _is_ipv6(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).version == 6
    except ValueError:
        return False


def _timeout(connection: Connection) -> float:
    value = extra_of(connection).get("timeout")
    if value in (None, ""):
        return DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    # No comparison with NaN is true.
    if not 0 < seconds <= _LONGEST_TIMEOUT_SECONDS:
        raise UnusableConnectionError(
            f"Connection {connection.conn_id!r} has timeout {value!r} in its extra: expected seconds, greater than 0 "
            f"and at most {_LONGEST_TIMEOUT_SECONDS:g}."
        )
    return seconds
