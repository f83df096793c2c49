"""Which tables are tiered: how they are added, changed and removed, also when the server starts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import structlog

from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import TieringRound, TieringState, TieringStatus
from fluss_tiering.server.core.lake.backlogs import Backlogs
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.core.tiering.changes import TieringLedger
from fluss_tiering.server.core.tiering.policy import ENABLED, LakeOptions, TieringPolicy
from fluss_tiering.server.core.tiering.states import (
    TieredTable,
    first_status,
    is_due,
    pend,
    resume,
    schedule,
    without_future,
)

_SWITCHED_OFF = f"the table's tiering was switched off ({ENABLED}=false)"

logger = structlog.get_logger(__name__)


class TableRegistration:
    """Registers, changes and removes tables. It is used in the control thread only."""

    def __init__(
        self, ledger: TieringLedger, store: SqlTieringStore, policy: TieringPolicy, backlogs: Backlogs
    ) -> None:
        """Prepare the registration of tables."""
        self._backlogs = backlogs
        self._ledger = ledger
        self._store = store
        self._policy = policy
        self._presumed: set[int] = set()

    def load(self, tables: Iterable[TableInfo], unusable: Collection[TablePath], now: int) -> None:
        """Continue where the server stopped: load the statuses of the storage's tables, delete those of dropped tables.

        The server may have stopped right after a table was created, before it was registered: such a table becomes
        Initialized. It may also have stopped while a table's tiering was switched on or off: then the table's options
        decide.

        A table that exists but cannot be used at present keeps its status, its running round and its epoch. Its options
        are not known: it counts as tiered, with the default freshness, until `register` tells them.

        Args:
            unusable: The paths of tables that the storage has, but that cannot be used.
            now: The present time, in milliseconds since the epoch.
        """
        infos = {info.table_id: (info, LakeOptions.of(info.descriptor.properties)) for info in tables}
        running = {
            each.table_id: replace(each, start_time=min(each.start_time, now)) for each in self._store.running_rounds()
        }
        longest_rest_ms = self._policy.backoff.longest_ms
        statuses = {each.table_id: without_future(each, longest_rest_ms, now) for each in self._store.statuses()}
        ledger = self._ledger
        new = []
        for table_id, (info, options) in infos.items():
            status = statuses.get(table_id)
            if not options.enabled:
                if status is not None:
                    self._load_withdrawn(status, running.get(table_id), now)
            elif status is None or status.state is TieringState.INITIALIZED:
                new.append(self._registered(info, options, TieringState.INITIALIZED, now, status))
            else:
                tiering_round = running.get(table_id)
                table = self._tiered(info, options, status, now)
                heartbeat = now if tiering_round else None
                ledger.tables.put(replace(table, round=tiering_round, last_heartbeat=heartbeat))
        with ledger.changes() as changes:
            for table in new:
                changes.put(table)
        for table_id in statuses.keys() - infos.keys():
            if statuses[table_id].path in unusable:
                self._load_unusable(statuses[table_id], running.get(table_id), now)
            else:
                ledger.delete_stored(statuses[table_id], running.get(table_id), now)

    def register(self, table: TableInfo, now: int) -> None:
        """Begin to tier a new table if its options ask for it. A repeated call changes nothing."""
        self.register_all([table], now)

    def register_all(self, tables: Iterable[TableInfo], now: int) -> None:
        """Begin to tier new tables whose options ask for it, all in one transaction. Tables that are known stay."""
        new: list[TieredTable] = []
        for table in tables:
            options = LakeOptions.of(table.descriptor.properties)
            if table.table_id in self._presumed:
                self.alter(table, now)
            elif options.enabled and self._ledger.tables.get(table.table_id) is None:
                before = self._ledger.tables.withdrawn.get(table.table_id)
                new.append(self._registered(table, options, TieringState.NEW, now, before))
        with self._ledger.changes() as changes:
            for each in new:
                changes.put(each)
        for each in new:
            logger.info("table registered for tiering", table=str(each.status.path), table_id=each.status.table_id)

    def alter(self, table: TableInfo, now: int) -> None:
        """Apply the options of a table that was altered, and resume it if it is parked.

        A new freshness reschedules a table that is Scheduled. A table whose tiering is switched off is removed, except
        for its epoch: it continues from there when its tiering is switched on again.
        """
        options = LakeOptions.of(table.descriptor.properties)
        self._ledger.look_at_backlogs()
        tiered = self._ledger.tables.get(table.table_id)
        self._presumed.discard(table.table_id)
        if tiered is None:
            if options.enabled:
                self._register(table, options, TieringState.INITIALIZED, now)
            return
        if not options.enabled:
            self._ledger.withdraw(tiered.status, tiered.round, _SWITCHED_OFF, now)
            logger.info("table withdrawn from tiering", table=str(table.path), table_id=table.table_id)
            return
        altered = replace(
            tiered,
            freshness_ms=options.freshness_ms,
            due_unchanged=options.due_unchanged,
            created_time=table.created_time,
        )
        if altered.status.parked:
            altered = resume(altered, now)
        elif altered.status.state is TieringState.SCHEDULED and is_due(altered, now):
            altered = pend(altered, now)
        with self._ledger.changes() as changes:
            changes.put(altered)

    def remove(self, table_id: int, now: int) -> None:
        """Delete everything about a dropped table except its running round, which ends as Failed.

        The round is kept for clients that wait for its outcome.
        """
        status = self._ledger.delete(table_id, now)
        if status is not None:
            self._presumed.discard(table_id)
            logger.info("table removed from tiering", table=str(status.path), table_id=table_id)

    def _register(self, table: TableInfo, options: LakeOptions, state: TieringState, now: int) -> None:
        before = self._ledger.tables.withdrawn.get(table.table_id)
        with self._ledger.changes() as changes:
            changes.put(self._registered(table, options, state, now, before))
        logger.info("table registered for tiering", table=str(table.path), table_id=table.table_id)

    def _registered(
        self, table: TableInfo, options: LakeOptions, state: TieringState, now: int, before: TieringStatus | None
    ) -> TieredTable:
        tiered = self._tiered(table, options, first_status(table, state, now, before), now)
        return schedule(replace(tiered, switched_on_time=None if before is None else now), now)

    def _tiered(self, table: TableInfo, options: LakeOptions, status: TieringStatus, now: int) -> TieredTable:
        due_by_freshness = self._policy.due_by_freshness
        created_time = min(table.created_time, now)
        return TieredTable(
            status,
            options.freshness_ms,
            created_time,
            due_by_freshness=due_by_freshness,
            due_unchanged=options.due_unchanged,
            may_wait=self._backlogs.may_wait(table.table_id),
        )

    def _load_unusable(self, status: TieringStatus, running: TieringRound | None, now: int) -> None:
        self._presumed.add(status.table_id)
        if status.state is TieringState.INITIALIZED:
            self._ledger.tables.withdrawn[status.table_id] = status
            return
        created_time = status.last_tiered_time or status.state_since
        self._ledger.tables.put(
            TieredTable(
                status,
                LakeOptions.of({}).freshness_ms,
                created_time,
                round=running,
                last_heartbeat=now if running else None,
                due_by_freshness=self._policy.due_by_freshness,
            )
        )
        logger.warning("table cannot be used and keeps its status", table=str(status.path), table_id=status.table_id)

    def _load_withdrawn(self, status: TieringStatus, running: TieringRound | None, now: int) -> None:
        if status.state is TieringState.INITIALIZED:
            self._ledger.tables.withdrawn[status.table_id] = status
        else:
            self._ledger.withdraw(status, running, _SWITCHED_OFF, now)
