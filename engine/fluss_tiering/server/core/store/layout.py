"""The layout of the database: which revision it has, and its migration to the present one.

A new database gets the present tables. Alembic keeps the revision, and migrates databases of older servers from
revision 0009 on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.core.store import schema
from fluss_tiering.server.core.store.database import Database

HEAD: Final = "0010"
"""The revision that this server uses and migrates to."""

_KNOWN: Final = frozenset({"0009", HEAD})
_ALEMBIC_VERSION: Final = sa.table("alembic_version", sa.column("version_num"))
_SCRIPTS: Final = Path(__file__).parent / "migrations"


def migrate(database: Database, enter: Callable[[sa.Connection], object]) -> None:
    """Make the tables of a new database, or migrate an older one to the present layout, in one transaction.

    Args:
        enter: Called first, with the transaction's connection. It raises if this server may not write.

    Raises:
        FlussTieringError: INVALID_REQUEST if this server does not know the layout; CORRUPT_DATA if parts of it are
            missing; STORAGE if the database fails; UNAVAILABLE if it cannot be reached.
    """
    with database.errors("its layout was not changed"):
        with database.engine.begin() as connection:
            enter(connection)
            revision = _revision(connection, database.name)
            if revision != HEAD:
                _upgrade(connection, is_new=revision is None)
        check_layout(database)


def check_revision(database: Database) -> None:
    """Check that this server knows the layout of the database, or can make it. Raises the errors of `migrate`."""
    with database.errors("its layout is not known"), database.engine.connect() as connection:
        _revision(connection, database.name)


def check_layout(database: Database) -> None:
    """Check that the database has the present layout with all its tables.

    Raises:
        FlussTieringError: UNAVAILABLE if the layout is older or the database is new; all others as `migrate`.
    """
    with database.errors("nothing was read"), database.engine.connect() as connection:
        revision = _revision(connection, database.name)
        if revision != HEAD:
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE,
                f"{database.name} has the layout {revision or 'of no server yet'}: expected {HEAD}; "
                "the next active server of this release will migrate it. If that takes long, the logs of the servers "
                "say what they wait for",
            )
        missing = schema.metadata.tables.keys() - set(sa.inspect(connection).get_table_names())
        if missing:
            raise _corrupt(database.name, f"lacks its tables {', '.join(sorted(missing))}")


def _revision(connection: sa.Connection, name: str) -> str | None:
    """Return the database's revision; None if the database is new."""
    if _has(connection, _ALEMBIC_VERSION.name):
        rows = connection.execute(sa.select(_ALEMBIC_VERSION)).all()
        if len(rows) != 1:
            raise _corrupt(name, f"has {len(rows)} versions")
        revision = str(rows[0].version_num)
        if revision not in _KNOWN:
            raise _unknown(name, revision)
        return revision
    present = sorted(table for table in schema.metadata.tables if _has(connection, table))
    if present:
        raise _corrupt(name, f"has {present[0]}, but lacks its table {_ALEMBIC_VERSION.name}")
    return None


def _upgrade(connection: sa.Connection, *, is_new: bool) -> None:
    # Loading Alembic takes time, which only a migration should cost.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if is_new:
        schema.metadata.create_all(connection)
        command.stamp(config, HEAD)
    command.upgrade(config, HEAD)


def _has(connection: sa.Connection, table: str) -> bool:
    return sa.inspect(connection).has_table(table)


def _corrupt(name: str, what: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.CORRUPT_DATA,
        f"{name} {what}: expected the tables that a tiering server made; restore it from a backup, since without them "
        "epochs and leases would start anew",
    )


def _unknown(name: str, revision: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"{name} has the layout {revision}, and this server knows the layouts {', '.join(sorted(_KNOWN))}: "
        "run the server that wrote it, or start with a new database",
    )
