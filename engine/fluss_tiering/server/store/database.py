"""The database behind the store: SQLite in a file or PostgreSQL, its settings, and what its errors mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_POSTGRESQL: Final = "postgresql"
_POSTGRESQL_SCHEMES: Final = frozenset({"postgresql", "postgres", "postgresql+psycopg"})
_CONNECT_TIMEOUT_S: Final = 5
_SQLITE_LOCK_TIMEOUT_S: Final = 5

# A commit is acknowledged once it is on the disk, whatever the database's own default is (L10). A server that stands
# still in the middle of a transaction must not keep the leader's row locked from the one that takes over.
_POSTGRESQL_SETTINGS: Final = (
    "synchronous_commit = on",
    "statement_timeout = '30s'",
    "lock_timeout = '5s'",
    "idle_in_transaction_session_timeout = '4s'",
)
_SQLITE_SETTINGS: Final = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON")
_FOREIGN: Final = ("not a database", "malformed")


@dataclass(frozen=True, slots=True)
class Database:
    """A database that can be connected to.

    Attributes:
        name: for people, without its password.
    """

    engine: sa.Engine
    name: str

    @classmethod
    def sqlite(cls, file: Path) -> Self:
        """A file, which is made when it does not exist."""
        # One connection: SQLite has one writer anyway, and the server's control thread is the only user.
        engine = sa.create_engine(
            f"sqlite:///{file}",
            poolclass=StaticPool,
            # The driver would begin transactions only before some statements, and so leave a migration half done.
            connect_args={"check_same_thread": False, "timeout": _SQLITE_LOCK_TIMEOUT_S, "isolation_level": None},
        )
        sa.event.listen(engine, "connect", _run_each([f"PRAGMA {each}" for each in _SQLITE_SETTINGS]))
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        return cls(engine, str(file))

    @classmethod
    def postgresql(cls, url: str) -> Self:
        """A PostgreSQL database; connections that it dropped are made anew.

        Raises:
            FlussTieringError: INVALID_REQUEST for a URL of another kind, or when the driver is not installed.
        """
        parsed = checked_store_url(url)
        try:
            engine = sa.create_engine(
                parsed,
                pool_pre_ping=True,
                pool_size=1,
                max_overflow=1,
                connect_args={
                    "connect_timeout": _CONNECT_TIMEOUT_S,
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
        sa.event.listen(engine, "connect", _run_each([f"SET {each}" for each in _POSTGRESQL_SETTINGS]))
        return cls(engine, mask_secrets(parsed.set(drivername=_POSTGRESQL).render_as_string(hide_password=True)))

    @property
    def is_postgresql(self) -> bool:
        """Whether it is PostgreSQL."""
        return self.engine.dialect.name == _POSTGRESQL

    @contextmanager
    def errors(self, effect: str) -> Iterator[None]:
        """Errors of the database as ours; `effect` says what follows from them.

        Raises:
            FlussTieringError: CORRUPT_DATA for a file that is no database, UNAVAILABLE when it cannot be reached,
                STORAGE for the rest.
        """
        try:
            yield
        except sa.exc.DBAPIError as error:
            text = mask_secrets(" ".join(str(error.orig).split()))
            raise FlussTieringError(*self._meaning(error, text, effect)) from error

    def _meaning(self, error: sa.exc.DBAPIError, text: str, effect: str) -> tuple[ErrorCode, str]:
        failed = f"the server's database {self.name} failed: {text}; {effect}"
        if not self.is_postgresql:
            if any(words in text for words in _FOREIGN):
                return ErrorCode.CORRUPT_DATA, f"{failed}; restore it from a backup"
            if isinstance(error.orig, sqlite3.OperationalError) and "no such" in text:
                return ErrorCode.CORRUPT_DATA, f"{failed}; a part of it was dropped, restore it from a backup"
            return ErrorCode.STORAGE, f"{failed}; check the disk's space and permissions"
        if is_disconnect(error):
            unreachable = f"the server's database {self.name} cannot be reached: {text}; {effect}"
            return ErrorCode.UNAVAILABLE, f"{unreachable}; check that it runs and lets this server in"
        return ErrorCode.STORAGE, f"{failed}; check the database and its log"


def is_disconnect(error: sa.exc.DBAPIError) -> bool:
    """Whether PostgreSQL could not be reached, or the connection to it was lost."""
    state = getattr(error.orig, "sqlstate", None)
    # Class 08: connection; 57P: the server shuts down or ended the session; 25P03: it stood idle in a transaction.
    # No state: the driver's own word, since the database said nothing. 28: it did not let this server in; 3D: no such
    # database.
    return error.connection_invalidated or (
        isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
        and (state is None or state.startswith(("08", "57P", "25P03", "28", "3D", "53300")))
    )


def checked_store_url(url: str) -> sa.URL:
    """The URL of a PostgreSQL database.

    Raises:
        FlussTieringError: INVALID_REQUEST for anything else.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        parsed = None
    if parsed is None or parsed.drivername not in _POSTGRESQL_SCHEMES:
        kind = "" if parsed is None else f" of {parsed.drivername}"
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the store's URL is none{kind}: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
            "leave it out for SQLite in the data folder",
        )
    return parsed.set(drivername="postgresql+psycopg")


def _run_each(statements: list[str]) -> Any:  # noqa: ANN401 - SQLAlchemy types listeners so
    def run(connection: Any, _record: object) -> None:  # noqa: ANN401 - a driver's connection
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    return run
