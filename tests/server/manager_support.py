"""The managers on a real store, which can be opened again as after a restart, and whose disk can be full."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa

from engine_support import VirtualClock, table_info
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.model.tiering import (
    AcquiredLease,
    Claim,
    HeartbeatAnswer,
    HeartbeatEntry,
    LeaseOutcome,
    TieringRound,
    TieringState,
    TieringStats,
    TieringStatus,
)
from fluss_tiering.server.core.lake.backlogs import Backlogs
from fluss_tiering.server.core.lake.manager import LakeSnapshotManager
from fluss_tiering.server.core.leases.attempts import LeaseAttempts, outcome_of
from fluss_tiering.server.core.leases.manager import KvSnapshotLeaseManager
from fluss_tiering.server.core.managers import Managers as ServerManagers
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.core.tiering.heartbeat import Heartbeat
from fluss_tiering.server.core.tiering.manager import LakeTieringManager
from fluss_tiering.server.core.tiering.policy import TieringPolicy
from fluss_tiering.server.core.tiering.states import FailureBackoff, RoundOwner

HEARTBEAT_TIMEOUT = 120_000
BACKOFF_BASE, BACKOFF_CAP = 10_000, 600_000


class Managers:
    """Store and managers; `tables` are what a storage would have."""

    def __init__(self, database: Path | str, clock: VirtualClock) -> None:
        self.clock = clock
        self.tables: dict[int, TableInfo] = {}
        self.unusable: set[TablePath] = set()
        self._database = database
        self._open()

    def _open(self) -> None:
        self.store = SqlTieringStore.open(self._database)
        self.attempts = LeaseAttempts(self.store, self.clock.now_ms())
        self.leases = KvSnapshotLeaseManager(self.clock, self.store, self.attempts)
        backoff = FailureBackoff(BACKOFF_BASE, BACKOFF_CAP, random.Random(7))
        policy = TieringPolicy(HEARTBEAT_TIMEOUT, backoff, kept_rounds=5)
        self.lake = LakeSnapshotManager(self.clock, self.store)
        # Tables that are not followed may have a backlog.
        self.backlogs = Backlogs(self.clock, self.lake.newest)
        self.tiering = LakeTieringManager(self.clock, self.store, self.attempts, policy, self.backlogs)
        self.tiering.load(self.tables.values(), self.unusable)

    def restart(self) -> None:
        """What a server that was killed finds again."""
        self.store.close()
        self._open()

    def close(self) -> None:
        self.store.close()

    def rounds(self, path: TablePath | None, lease_id: str | None, limit: int) -> Sequence[TieringRound]:
        """The newest rounds of each table that matches, all in one page."""
        page = self.tiering.rounds_page(path, lease_id, limit, None, sys.maxsize)
        return sorted(page.rounds, key=lambda each: each.path)

    def lease_outcome(self, lease_id: str, attempt_token: int | None) -> LeaseOutcome:
        return outcome_of(self.tiering.attempt(lease_id), self.rounds(None, lease_id, 1), attempt_token)

    @contextmanager
    def failing_disk(self) -> Iterator[None]:
        """Every write to the database fails."""
        self._set_writable(False)
        try:
            yield
        finally:
            self._set_writable(True)

    def _set_writable(self, writable: bool) -> None:
        database = self.store._database
        with database.engine.connect() as connection:
            if database.is_postgresql:
                kind = "READ WRITE" if writable else "READ ONLY"
                connection.exec_driver_sql(f"SET SESSION CHARACTERISTICS AS TRANSACTION {kind}")
                connection.commit()
            else:
                connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writable else 'ON'}")

    def acquire(self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int]) -> AcquiredLease:
        return self.leases.acquire(lease_id, duration_ms, snapshots, {})

    def add_table(self, table_id: int, **options: object) -> TableInfo:
        table = table_info(table_id, created_time=self.clock.now_ms(), **options)
        self.tables[table_id] = table
        self.tiering.register(table)
        return table

    def drop_table(self, table_id: int) -> None:
        del self.tables[table_id]
        self.tiering.remove(table_id)
        self.lake.forget(table_id)
        self.leases.release_tables(frozenset({table_id}))

    def alter_table(self, table: TableInfo, properties: Mapping[str, str]) -> TableInfo:
        """The table with these options set."""
        changed = {**table.descriptor.properties, **properties}
        altered = replace(table, descriptor=replace(table.descriptor, properties=changed))
        self.tables[table.table_id] = altered
        self.tiering.alter(altered)
        return altered

    def make_unusable(self, *table_ids: int) -> None:
        """What a server finds when it starts while the tables exist but cannot be used."""
        self.unusable |= {self.tables.pop(table_id).path for table_id in table_ids if table_id in self.tables}
        self.restart()

    def make_usable(self, table: TableInfo) -> None:
        """Let the table be found as it is now."""
        self.unusable.discard(table.path)
        self.tables[table.table_id] = table
        self.tiering.register(table)

    def loaded_as_by_a_server(self) -> ServerManagers:
        """The managers of a server that starts on this store with these tables."""
        storage: Any = SimpleNamespace(
            tables=lambda: list(self.tables.values()), unusable_tables=lambda _known: frozenset(self.unusable)
        )
        policy = TieringPolicy(HEARTBEAT_TIMEOUT, FailureBackoff(BACKOFF_BASE, BACKOFF_CAP, random.Random(7)), 5)
        return ServerManagers(storage, self.store, self.clock, policy)

    def status(self, table: TableInfo) -> TieringStatus:
        (status,) = self.tiering.statuses(table.path)
        return status

    def state(self, table: TableInfo) -> TieringState:
        return self.status(table).state

    def claim(self, table: TableInfo | TablePath, lease_id: str = "lease", token: int | None = None) -> Claim:
        """The claim of one table; its refusal is raised."""
        path = table.path if isinstance(table, TableInfo) else table
        (claim,) = self.tiering.claim([path], RoundOwner(lease_id, token, "driver-1"))
        if not isinstance(claim, Claim):
            raise claim
        return claim

    def finish(self, claim: Claim, stats: TieringStats | None = None, *, forced: bool = False) -> HeartbeatAnswer:
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=stats)
        force_finished = frozenset({claim.table_id} if forced else ())
        return self.tiering.heartbeat(Heartbeat(finished=(entry,), force_finished=force_finished))

    def fail(self, claim: Claim, error: str | None = "out of memory") -> HeartbeatAnswer:
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, error_message=error)
        return self.tiering.heartbeat(Heartbeat(failed=(entry,)))

    def beat(self, claim: Claim) -> HeartbeatAnswer:
        return self.tiering.heartbeat(Heartbeat(tiering=(HeartbeatEntry(claim.table_id, claim.tiering_epoch),)))

    def request(self, driver: str = "driver-1") -> Claim | None:
        return self.tiering.heartbeat(Heartbeat(requester=RoundOwner("", None, driver))).claim


class Turns:
    """Takes the place of the control thread, and counts its turns and the rows that each writes."""

    def __init__(self, managers: Managers, between: Callable[[], object] = lambda: None) -> None:
        self._managers = managers
        self._between = between
        self.rows: list[int] = []

    async def __call__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with rows_written(self._managers) as rows:
            result = function(*arguments, **options)
        self.rows.append(rows["rows"])
        self._between()
        return result


@contextmanager
def rows_written(managers: Managers) -> Iterator[Counter[str]]:
    """Count the rows that the store's statements insert, replace and delete."""
    counted: Counter[str] = Counter()

    def count(_connection: Any, cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if not statement.startswith(("SELECT", "BEGIN", "PRAGMA")):
            counted["rows"] += max(cursor.rowcount, len(parameters) if many else 1)

    engine = managers.store._database.engine
    sa.event.listen(engine, "after_cursor_execute", count)
    try:
        yield counted
    finally:
        sa.event.remove(engine, "after_cursor_execute", count)
