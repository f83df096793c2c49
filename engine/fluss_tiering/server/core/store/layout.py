"""The layout of the database: which revision it has, and its migration to the present one.

A new database gets the present tables. One of an older server gets, step by step, what each later revision brought.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import sqlalchemy as sa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.core.store import schema
from fluss_tiering.server.core.store.database import Database

_STEPS: Final[dict[str, Sequence[str]]] = {
    "0009": (),
    "0010": ("ALTER TABLE tiering_rounds ADD COLUMN partitions TEXT",),
}
"""The revisions, oldest first, and the statements that lead to each from the one before, on both databases."""

HEAD: Final = list(_STEPS)[-1]
"""The revision that this server uses and migrates to."""

# The name is from the time when Alembic kept the revision.
_VERSION: Final = sa.Table("alembic_version", sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))


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
            if revision is None:
                _make(connection)
            elif revision != HEAD:
                _upgrade(connection, revision)
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
    if _has(connection, _VERSION.name):
        rows = connection.execute(sa.select(_VERSION)).all()
        if len(rows) != 1:
            raise _corrupt(name, f"has {len(rows)} versions")
        revision = str(rows[0].version_num)
        if revision not in _STEPS:
            raise _unknown(name, revision)
        return revision
    present = sorted(table for table in schema.metadata.tables if _has(connection, table))
    if present:
        raise _corrupt(name, f"has {present[0]}, but lacks its table {_VERSION.name}")
    return None


def _make(connection: sa.Connection) -> None:
    schema.metadata.create_all(connection)
    _VERSION.create(connection)
    connection.execute(sa.insert(_VERSION), {"version_num": HEAD})


def _upgrade(connection: sa.Connection, revision: str) -> None:
    known = list(_STEPS)
    for later in known[known.index(revision) + 1 :]:
        for statement in _STEPS[later]:
            connection.exec_driver_sql(statement)
    connection.execute(sa.update(_VERSION), {"version_num": HEAD})


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
        f"{name} has the layout {revision}, and this server knows the layouts {', '.join(_STEPS)}: "
        "run the server that wrote it, or start with a new database",
    )
