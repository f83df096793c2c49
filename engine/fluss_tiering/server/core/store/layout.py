"""The layout of the database: which revision it has, and its migration to the present one.

Alembic keeps the revision. The first release kept a version number in `server_meta` instead, the number 1, and wrote
the layout of revision 0001. Such a database is stamped with that revision first and then migrated as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.core.store import schema
from fluss_tiering.server.core.store.database import Database

HEAD: Final = "0009"
"""The revision that this server uses and migrates to."""

_KNOWN: Final = frozenset({"0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", HEAD})
_FIRST: Final = "0001"
_FIRST_VERSION_NUMBER: Final = 1
_MIGRATED_VERSION_NUMBER: Final = 2
"""The version number that revision 0002 writes, so that servers of the first release refuse the database."""
_ALEMBIC_VERSION: Final = sa.table("alembic_version", sa.column("version_num"))
_SCRIPTS: Final = Path(__file__).parent / "migrations"


def migrate(database: Database, enter: Callable[[sa.Connection], object]) -> None:
    """Migrate the database to the present layout in one transaction. A new database goes through all migrations.

    Args:
        database: The database.
        enter: Called first, with the transaction's connection. It raises if this server may not write.

    Raises:
        FlussTieringError: INVALID_REQUEST if a newer server made the layout; CORRUPT_DATA if parts of the layout are
            missing; STORAGE if the database fails; UNAVAILABLE if it cannot be reached.
    """
    with database.errors("its layout was not changed"):
        with database.engine.begin() as connection:
            enter(connection)
            revision = _revision(connection, database.name)
            if revision != HEAD:
                _upgrade(connection, stamp_first=revision == _FIRST and not _has(connection, _ALEMBIC_VERSION.name))
        check_layout(database)


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
            raise _newer(name, revision)
        return revision
    if _has(connection, schema.server_meta.name):
        meta = schema.server_meta
        number = connection.scalar(sa.select(meta.c.value).where(meta.c.name == schema.SCHEMA_VERSION_NAME))
        if number in (None, _MIGRATED_VERSION_NUMBER):
            raise _corrupt(name, f"lacks its table {_ALEMBIC_VERSION.name}")
        if number != _FIRST_VERSION_NUMBER:
            raise _newer(name, str(number))
        return _FIRST
    present = sorted(table for table in schema.metadata.tables if _has(connection, table))
    if present:
        raise _corrupt(name, f"has {present[0]}, but no version")
    return None


def _upgrade(connection: sa.Connection, *, stamp_first: bool) -> None:
    # Loading Alembic takes time, which only a migration should cost.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if stamp_first:
        command.stamp(config, _FIRST)
    command.upgrade(config, HEAD)


def _has(connection: sa.Connection, table: str) -> bool:
    return sa.inspect(connection).has_table(table)


def _corrupt(name: str, what: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.CORRUPT_DATA,
        f"{name} {what}: expected the tables that a tiering server made; restore it from a backup, since without them "
        "epochs and leases would start anew",
    )


def _newer(name: str, version: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"{name} has the layout of version {version}, but this server knows only layouts up to {HEAD}: "
        "run the server that wrote it",
    )
