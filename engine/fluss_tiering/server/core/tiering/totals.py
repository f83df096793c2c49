"""What is counted of each table's rounds, and tables that were dropped, whose outcomes are kept for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringRound, TieringState, TieringStats
from fluss_tiering.server.core.store.store import SqlTieringStore

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TableTotals:
    """The totals of one table's rounds.

    Attributes:
        failures: The number of rounds that failed, without those that were interrupted.
        duration_ms: The duration of the last round that was tiered, in milliseconds; None before the first.
        lake_file_size: The size of the lake table's files in bytes, as a driver last reported it; None until then.
        lake_record_count: The number of records in these files, as a driver last reported it; None until then.
        rows: The number of rows that all rounds wrote.
        bytes: The number of bytes that all rounds wrote.
        interruptions: The number of rounds that were interrupted.
        maintained_time: When the lake table was last maintained, in milliseconds since the epoch; None until then.
        saved_files: How many data files and delete files maintenance has saved.
        rewritten_bytes: The size of the data files that maintenance has rewritten, in bytes.
        expired_snapshots: How many lake snapshots maintenance has removed.
        deleted_files: How many files maintenance has deleted.
    """

    failures: int = 0
    duration_ms: int | None = None
    lake_file_size: int | None = None
    lake_record_count: int | None = None
    rows: int = 0
    bytes: int = 0
    interruptions: int = 0
    maintained_time: int | None = None
    saved_files: int = 0
    rewritten_bytes: int = 0
    expired_snapshots: int = 0
    deleted_files: int = 0


_NONE = TableTotals()


class RoundTotals:
    """The totals of all tables.

    Only the control thread changes them. Any thread may read a table's totals, because each change replaces them.
    """

    def __init__(self) -> None:
        self._totals: dict[int, TableTotals] = {}
        self._lost: dict[TablePath, int] = {}

    @property
    def lost(self) -> Mapping[TablePath, int]:
        """The log records that were dropped before they were in the lake, also with tables that no longer exist."""
        return self._lost

    def count_lost(self, path: TablePath, records: int) -> None:
        """Count log records that were dropped before they were in the lake, and log them."""
        if records:
            self._lost = {**self._lost, path: self._lost.get(path, 0) + records}
            logger.warning("records dropped before they were in the lake", table=str(path), records=records)

    def of(self, table_id: int) -> TableTotals:
        """Return a table's totals."""
        return self._totals.get(table_id, _NONE)

    def count(self, tiering_round: TieringRound) -> None:
        """Count a round that ended. A round that began is not counted."""
        totals = self.of(tiering_round.table_id)
        if tiering_round.interrupted:
            self._totals[tiering_round.table_id] = replace(totals, interruptions=totals.interruptions + 1)
        elif tiering_round.state is TieringState.FAILED:
            self._totals[tiering_round.table_id] = replace(totals, failures=totals.failures + 1)
        elif tiering_round.state is TieringState.TIERED and tiering_round.end_time is not None:
            stats = tiering_round.stats or TieringStats()
            self._totals[tiering_round.table_id] = replace(
                totals,
                duration_ms=tiering_round.end_time - tiering_round.start_time,
                # An empty round leaves the lake table as it was, and does not report its size.
                lake_file_size=totals.lake_file_size if stats.lake_file_size is None else stats.lake_file_size,
                lake_record_count=totals.lake_record_count
                if stats.lake_record_count is None
                else stats.lake_record_count,
                rows=totals.rows + stats.rows,
                bytes=totals.bytes + stats.bytes,
            )

    def count_maintenance(self, report: MaintenanceReport, now: int) -> None:
        """Count what maintenance has done by now, which is in milliseconds since the epoch."""
        totals = self.of(report.table_id)
        self._totals[report.table_id] = replace(
            totals,
            maintained_time=now,
            saved_files=totals.saved_files + report.saved_files,
            rewritten_bytes=totals.rewritten_bytes + report.rewritten_bytes,
            expired_snapshots=totals.expired_snapshots + report.expired_snapshots,
            deleted_files=totals.deleted_files + report.deleted_files,
        )

    def forget(self, table_id: int) -> None:
        """Delete the totals of a table that was dropped or is no longer tiered."""
        self._totals.pop(table_id, None)


_KEPT_MS: Final = 7 * 24 * 60 * 60 * 1000
"""How long an outcome is kept. No task waits for one, or is retried, for so long."""


class DroppedTables:
    """The dropped tables that still have rounds in the store. It is used in the control thread only."""

    def __init__(self, store: SqlTieringStore) -> None:
        self._store = store
        self._times = dict(store.dropped_tables())

    def note(self, table_id: int, now: int) -> None:
        """Begin to count the time since a table was dropped.

        Args:
            now: The time of the drop, in milliseconds since the epoch.
        """
        self._times[table_id] = now

    def prune(self, now: int) -> None:
        """Delete the rounds of tables that were dropped long ago."""
        old = [table_id for table_id, time in self._times.items() if time < now - _KEPT_MS]
        if not old:
            return
        with self._store.transaction() as transaction:
            transaction.delete_rounds(old)
        for table_id in old:
            del self._times[table_id]
