"""The leader's row in PostgreSQL. Its times come from the database, so that the servers' clocks need not agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from fluss_tiering.server.store.database import Database

# The layout of this table never changes. Migrations change the other tables only, and only a leader migrates.
_CREATE: Final = """
CREATE TABLE IF NOT EXISTS server_leader (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    generation BIGINT NOT NULL,
    holder_id TEXT NOT NULL,
    address TEXT NOT NULL,
    valid_until TIMESTAMPTZ NOT NULL
)"""
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
_RENEW: Final = f"UPDATE server_leader SET valid_until = {_UNTIL} WHERE generation = :generation RETURNING generation"  # noqa: S608
_RESIGN: Final = "UPDATE server_leader SET valid_until = clock_timestamp() WHERE generation = :generation"
_LEADER: Final = "SELECT generation, holder_id, address FROM server_leader WHERE valid_until >= clock_timestamp()"

# The lock delays a take-over until the transaction ends. The id tells afterwards whether it was committed.
_ENTER: Final = "SELECT generation, CAST(pg_current_xact_id() AS TEXT) AS xact FROM server_leader FOR SHARE"
_STATUS: Final = "SELECT pg_xact_status(CAST(:xact AS xid8))"


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
        database: The database.
        holder_id: The id of this server.
        address: "host:port" at which the other servers reach this server.
        lease_s: The time for which the leadership is valid without a renewal, in seconds.
    """

    def __init__(self, database: Database, holder_id: str, address: str, lease_s: float) -> None:
        self._database = database
        self._limit_s = lease_s / 2
        self._candidate = {"holder_id": holder_id, "address": address, "lease_s": lease_s}

    def prepare(self) -> None:
        """Make the table if it does not exist yet."""
        with (
            self._database.errors("the server did not start"),
            self._database.time_limit(_PREPARE_LIMIT_S),
            self._database.engine.begin() as connection,
        ):
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATE_LOCK)))
            connection.exec_driver_sql(_CREATE)

    def acquire(self) -> int | None:
        """Become the leader if there is none. Return the new generation, or None."""
        row = self._run(_ACQUIRE, self._candidate)
        return None if row is None else int(row.generation)

    def renew(self, generation: int) -> bool:
        """Stay the leader. Return False if another server took over."""
        return self._run(_RENEW, {"generation": generation, "lease_s": self._candidate["lease_s"]}) is not None

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


def enter(connection: sa.Connection) -> tuple[int | None, str]:
    """Return the present generation and the name of the connection's transaction.

    The generation cannot change until that transaction ends.
    """
    row = connection.execute(sa.text(_ENTER)).first()
    return (None, "") if row is None else (int(row.generation), row.xact)


def transaction_status(connection: sa.Connection, name: str) -> str | None:
    """Return the outcome of a transaction: "committed", "aborted", "in progress", or None if it is too old."""
    status: str | None = connection.scalar(sa.text(_STATUS), {"xact": name})
    return status
