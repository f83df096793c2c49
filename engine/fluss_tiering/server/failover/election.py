"""The leader's row in PostgreSQL. Its times come from the database, so that the servers' clocks need not agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from fluss_tiering.server.core.store.database import Database
from fluss_tiering.server.core.store.layout import check_revision

# The layout of this table never changes. Migrations change the other tables only, and only a leader migrates.
_CREATE: Final = """
CREATE TABLE IF NOT EXISTS server_leader (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    generation BIGINT NOT NULL,
    holder_id TEXT NOT NULL,
    address TEXT NOT NULL,
    valid_until TIMESTAMPTZ NOT NULL
)"""
# In the one row is the token of the last transaction that an active server committed.
_CREATE_TRANSACTION: Final = """
CREATE TABLE IF NOT EXISTS server_transaction (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    token BIGINT NOT NULL
)"""
_FIRST_TRANSACTION: Final = "INSERT INTO server_transaction VALUES (1, 0) ON CONFLICT DO NOTHING"
_CREATE_LOCK: Final = 0x666C_7573_736C_6561
_PREPARE_LIMIT_S: Final = 30.0

_UNTIL: Final = "clock_timestamp() + make_interval(secs => :lease_s)"
_ACQUIRE: Final = f"""
INSERT INTO server_leader AS leader (id, generation, holder_id, address, valid_until)
VALUES (1, 1, :holder_id, :address, {_UNTIL})
ON CONFLICT (id) DO UPDATE SET generation = leader.generation + 1, holder_id = excluded.holder_id,
    address = excluded.address, valid_until = excluded.valid_until
WHERE leader.valid_until < clock_timestamp()
RETURNING generation"""  # noqa: S608 - made of constants
_RENEW: Final = f"""
UPDATE server_leader SET valid_until = {_UNTIL} WHERE generation = :generation
RETURNING (SELECT token FROM server_transaction) AS token"""  # noqa: S608
_RESIGN: Final = "UPDATE server_leader SET valid_until = clock_timestamp() WHERE generation = :generation"
_LEADER: Final = "SELECT generation, holder_id, address FROM server_leader WHERE valid_until >= clock_timestamp()"

# The lock of the leader's row delays a take-over until the transaction ends. The lock of the other row waits for an
# earlier transaction whose outcome is not known yet.
_ENTER: Final = """
SELECT leader.generation, last.token FROM server_leader AS leader CROSS JOIN server_transaction AS last
FOR SHARE OF leader FOR UPDATE OF last"""
_NOTE_TRANSACTION: Final = "UPDATE server_transaction SET token = :token"
_LAST_TRANSACTION: Final = "SELECT token FROM server_transaction FOR UPDATE"


@dataclass(frozen=True, slots=True)
class Leader:
    """The active server.

    Attributes:
        generation: The number of the leadership, which grows by one with each take-over.
        holder_id: The id of the server.
        address: "host:port" at which the other servers reach the server.
    """

    generation: int
    holder_id: str
    address: str


class Election:
    """One server's access to the leader's row. Every method waits for the database, and raises STORAGE or UNAVAILABLE.

    A database that answers nothing is UNAVAILABLE after half of the lease.

    Args:
        holder_id: The id of this server.
        address: "host:port" at which the other servers reach this server.
        lease_s: The time for which the leadership is valid without a renewal, in seconds.
    """

    def __init__(self, database: Database, holder_id: str, address: str, lease_s: float) -> None:
        self._database = database
        self._limit_s = lease_s / 2
        self._candidate = {"holder_id": holder_id, "address": address, "lease_s": lease_s}

    def prepare(self) -> None:
        """Make the tables if they do not exist yet."""
        with (
            self._database.errors("the server did not start"),
            self._database.time_limit(_PREPARE_LIMIT_S),
            self._database.engine.begin() as connection,
        ):
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATE_LOCK)))
            for statement in (_CREATE, _CREATE_TRANSACTION, _FIRST_TRANSACTION):
                connection.exec_driver_sql(statement)

    def acquire(self) -> int | None:
        """Become the leader if there is none. Return the new generation, or None.

        Raises:
            FlussTieringError: INVALID_REQUEST if a newer server has changed the layout of the database; CORRUPT_DATA if
                it is broken.
        """
        with self._database.time_limit(self._limit_s):
            check_revision(self._database)
        row = self._run(_ACQUIRE, self._candidate)
        return None if row is None else int(row.generation)

    def renew(self, generation: int) -> int | None:
        """Stay the leader.

        Returns:
            The token of a transaction that was the last committed one during the call, 0 if none was ever committed;
            None if another server took over.
        """
        row = self._run(_RENEW, {"generation": generation, "lease_s": self._candidate["lease_s"]})
        return None if row is None else int(row.token or 0)

    def resign(self, generation: int) -> None:
        """Give up the leadership, so that another server may take over at once."""
        self._run(_RESIGN, {"generation": generation})

    def leader(self) -> Leader | None:
        """Return the present leader, or None."""
        row = self._run(_LEADER, {})
        return None if row is None else Leader(row.generation, row.holder_id, row.address)

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.engine.dispose()

    def _run(self, statement: str, parameters: Mapping[str, Any]) -> sa.Row[Any] | None:
        with (
            self._database.errors("who leads is not known"),
            self._database.time_limit(self._limit_s),
            self._database.engine.begin() as connection,
        ):
            result = connection.execute(sa.text(statement), parameters)
            return result.first() if result.returns_rows else None


def enter(connection: sa.Connection, token: int) -> tuple[int | None, int]:
    """Give the connection's transaction a token, which is in the database if and only if the transaction is committed.

    Returns:
        The present generation, which cannot change until the transaction ends, and the token of the transaction that
        was committed before this one.
    """
    row = connection.execute(sa.text(_ENTER)).first()
    if row is None:
        return None, 0
    connection.execute(sa.text(_NOTE_TRANSACTION), {"token": token})
    return int(row.generation), int(row.token)


def last_token(connection: sa.Connection) -> int:
    """Return the token of the last transaction that was committed. Wait for one that has not ended."""
    return int(connection.scalar(sa.text(_LAST_TRANSACTION)) or 0)
