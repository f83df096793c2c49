"""The database behind the store: SQLite in a file or PostgreSQL. Its settings, its fence, and what its errors mean."""

from __future__ import annotations

import os
import socket
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from fluss_tiering.model.closing import time_limit
from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.settings.values import checked_store_url


class Fence(Protocol):
    """Keeps a server from writing to the database after another server has become the active one."""

    def enter(self, connection: sa.Connection) -> str:
        """Let the transaction begin, and let no other server become the active one until it ends.

        Returns:
            The name of the transaction.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER if another server is the active one.
        """
        ...

    def committed(self, name: str) -> None:
        """Note that a transaction was committed."""
        ...

    def was_committed(self, name: str) -> bool:
        """Return whether a transaction was committed although the commit got no answer.

        Raises:
            FlussTieringError: UNAVAILABLE if that cannot be found out.
        """
        ...


class Sockets:
    """The sockets of a database's open connections. Any thread may use it.

    Attributes:
        ended: Whether no connection may be opened any more.
    """

    def __init__(self) -> None:
        self.ended = False
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, connection: Any) -> None:  # noqa: ANN401 - a driver's connection
        """Note a connection of the driver psycopg. Closed ones are forgotten by themselves."""
        self._connections.add(connection)

    def end(self) -> None:
        """Break all connections for good."""
        self.ended = True
        self.break_all()

    def break_all(self) -> None:
        """Break all connections. A thread that waits for an answer gets an error, as if the network had failed."""
        for connection in list(self._connections):
            # The driver raises an error for a connection that was closed, and the system for its socket.
            with suppress(Exception):
                if not connection.closed:
                    # The copy is closed here. The driver keeps its own and finds that it can no longer be read.
                    with socket.socket(fileno=os.dup(connection.fileno())) as copy:
                        copy.shutdown(socket.SHUT_RDWR)


_POSTGRESQL: Final = "postgresql"
_CONNECT_TIMEOUT_S: Final = 3
_SHORTEST_CONNECT_TIMEOUT_S: Final = 2
"""PostgreSQL's drivers take no shorter one."""
_SQLITE_LOCK_TIMEOUT_S: Final = 5

# A commit is acknowledged once it is on the disk, whatever the database's own default is. A server that hangs in the
# middle of a transaction must not keep the leader's row locked from the server that becomes the active one.
_POSTGRESQL_SETTINGS: Final = (
    "synchronous_commit = on",
    "statement_timeout = '30s'",
    "lock_timeout = '5s'",
    "idle_in_transaction_session_timeout = '4s'",
)
_SQLITE_SETTINGS: Final = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON")
_RIGHTS: Final = "the rights of the file, of its folder and of the files beside it that end in -wal and -shm"
"""SQLite makes the files beside a database with the rights that the database has at that moment."""
_FOREIGN: Final = ("not a database", "malformed")


@dataclass(frozen=True, slots=True)
class Database:
    """A database to connect to.

    Attributes:
        engine: SQLAlchemy's engine, which opens the connections.
        name: The file or URL for messages, without the password.
        sockets: The open connections to PostgreSQL.
    """

    engine: sa.Engine
    name: str
    sockets: Sockets = field(default_factory=Sockets)

    @classmethod
    def sqlite(cls, file: Path) -> Self:
        """Return the database of a SQLite file, which is created if it does not exist."""
        # One connection is enough: SQLite has one writer anyway, and only the server's control thread uses it.
        engine = sa.create_engine(
            # A URL in a text would be decoded: a file's name may have a % in it.
            sa.URL.create("sqlite", database=str(file)),
            poolclass=StaticPool,
            # By default the driver begins transactions before some statements only, so that a migration could stop
            # half-way.
            connect_args={"check_same_thread": False, "timeout": _SQLITE_LOCK_TIMEOUT_S, "isolation_level": None},
        )
        sa.event.listen(engine, "connect", _run_each([f"PRAGMA {each}" for each in _SQLITE_SETTINGS]))
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        return cls(engine, str(file))

    @classmethod
    def postgresql(cls, url: str, *, connect_timeout_s: float = _CONNECT_TIMEOUT_S) -> Self:
        """Return a PostgreSQL database. Connections that were lost are opened again.

        Args:
            connect_timeout_s: How long an attempt to connect may take, in seconds; 2 at least.

        Raises:
            FlussTieringError: INVALID_REQUEST if the URL is not one of PostgreSQL, or if the driver is not installed.
        """
        parsed = checked_store_url(url)
        try:
            engine = sa.create_engine(
                parsed,
                pool_pre_ping=True,
                pool_size=1,
                max_overflow=1,
                connect_args={
                    "connect_timeout": max(int(connect_timeout_s), _SHORTEST_CONNECT_TIMEOUT_S),
                    "keepalives_idle": 5,
                    "keepalives_interval": 2,
                    "keepalives_count": 2,
                    "tcp_user_timeout": 8000,
                    **parsed.query,
                },
            )
        except ImportError as error:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"PostgreSQL needs the driver psycopg, which is not installed ({error}): "
                "install fluss-tiering[server,postgres]",
            ) from error
        name = mask_secrets(parsed.set(drivername=_POSTGRESQL).render_as_string(hide_password=True))
        database = cls(engine, name)
        sa.event.listen(engine, "do_connect", database._refuse_after_the_end)
        sa.event.listen(engine, "connect", lambda connection, _: database.sockets.add(connection))
        sa.event.listen(engine, "connect", _run_each([f"SET {each}" for each in _POSTGRESQL_SETTINGS]))
        return database

    @property
    def is_postgresql(self) -> bool:
        """Whether the database is PostgreSQL."""
        return self.engine.dialect.name == _POSTGRESQL

    def break_off(self) -> None:
        """Break the connections to PostgreSQL and open no new ones, so that what waits fails.

        Any thread may call this.
        """
        self.sockets.end()

    @contextmanager
    def time_limit(self, seconds: float) -> Iterator[None]:
        """Break the connections to PostgreSQL if the block takes longer, so that what waits in it fails.

        PostgreSQL's own limits do not help against a server or a network that answers nothing at all. An attempt to
        connect has its own limit.
        """
        with time_limit(seconds, self.sockets.break_all):
            yield

    @contextmanager
    def errors(self, effect: str) -> Iterator[None]:
        """Translate the database's errors in the block.

        Args:
            effect: What the error means for the caller's data, for the message.

        Raises:
            FlussTieringError: CORRUPT_DATA if the file is not a database; UNAVAILABLE if the database cannot be
                reached; STORAGE for any other error of the database.
        """
        try:
            yield
        except sa.exc.DBAPIError as error:
            text = mask_secrets(" ".join(str(error.orig).split()))
            raise FlussTieringError(*self._meaning(error, text, effect)) from error

    def _refuse_after_the_end(self, dialect: Any, *_: object) -> None:  # noqa: ANN401 - SQLAlchemy types listeners so
        if self.sockets.ended:
            raise dialect.loaded_dbapi.OperationalError("this server no longer uses the database")

    def _meaning(self, error: sa.exc.DBAPIError, text: str, effect: str) -> tuple[ErrorCode, str]:
        failed = f"the server's database {self.name} failed: {text}; {effect}"
        if not self.is_postgresql:
            if any(words in text for words in _FOREIGN):
                return ErrorCode.CORRUPT_DATA, f"{failed}; restore it from a backup"
            if isinstance(error.orig, sqlite3.OperationalError) and "no such" in text:
                return ErrorCode.CORRUPT_DATA, f"{failed}; a part of it was dropped, restore it from a backup"
            return ErrorCode.STORAGE, f"{failed}; check the disk's space, and {_RIGHTS}"
        if is_disconnect(error):
            unreachable = f"the server's database {self.name} cannot be reached: {text}; {effect}"
            return ErrorCode.UNAVAILABLE, f"{unreachable}; check that it runs and accepts this server's login"
        return ErrorCode.STORAGE, f"{failed}; check the database and its log"


def is_disconnect(error: sa.exc.DBAPIError) -> bool:
    """Return whether PostgreSQL could not be reached, or the connection to it was lost."""
    state = getattr(error.orig, "sqlstate", None)
    # 08: the connection failed. 57P: PostgreSQL shuts down or ended the session. 25P03: the session was idle in a
    # transaction. 28: PostgreSQL refused the login. 3D: the database does not exist. 53300: too many connections. No
    # state: the driver raised the error itself, because PostgreSQL did not answer.
    return error.connection_invalidated or (
        isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
        and (state is None or state.startswith(("08", "57P", "25P03", "28", "3D", "53300")))
    )


def _run_each(statements: list[str]) -> Any:  # noqa: ANN401 - SQLAlchemy types listeners so
    def run(connection: Any, _record: object) -> None:  # noqa: ANN401 - a driver's connection
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    return run
