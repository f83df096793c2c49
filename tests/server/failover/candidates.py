"""Servers that want to lead, each with its hand on the leader's row and a clock to turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.core.store.database import Database
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.failover.election import Election
from fluss_tiering.server.failover.leadership import Leadership, LeadershipFence

LEASE_S = 60
"""Calls of the database may take half of it. It passes with `let_pass`."""


class Ticks:
    """A monotonic clock to turn by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Candidate:
    """A server's hand on the row, with a store behind its fence."""

    def __init__(self, url: str, name: str, lease_s: float = LEASE_S) -> None:
        self.url = url
        self.clock = Ticks()
        self.database = Database.postgresql(url)
        self.election = Election(self.database, name, f"{name}:1", lease_s)
        self.election.prepare()
        self.leadership = Leadership(self.election, lease_s, self.clock)

    def open_store(self) -> SqlTieringStore:
        return SqlTieringStore.open(self.url, LeadershipFence(self.leadership, self.database))


def let_pass(candidate: Candidate, seconds: float) -> None:
    """Let the leader's row grow older, which is all that the database sees of the time."""
    with candidate.database.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE server_leader SET valid_until = valid_until - interval '{seconds} s'")


def write(store: SqlTieringStore, token: int) -> None:
    with store.transaction() as transaction:
        transaction.put_attempt_token(token)


def refused(call: Callable[[], object]) -> FlussTieringError:
    with pytest.raises(FlussTieringError) as error:
        call()
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error.value


def waits_for_a_lock(candidate: Candidate) -> bool:
    with candidate.database.engine.connect() as connection:
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(connection.exec_driver_sql(waiting).scalar())
