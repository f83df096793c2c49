"""What is exported of each table: a fixed number of series each, read from memory at the scrape.

Names and meanings are Fluss's (`LakeTableTieringManager`, `MetricNames`); times are in milliseconds, as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import TieringState, TieringStats
from fluss_tiering.server.lake_manager import LakeSnapshotManager
from fluss_tiering.server.tiering.states import TieredTable
from fluss_tiering.server.tiering.totals import RoundTotals
from fluss_tiering.storage.protocol import TableStorage

_LABELS: Final = ("database", "table", "tableId")
_PREFIX: Final = "fluss_coordinator_lakeTiering_table_"
_UNKNOWN: Final = -1
"""As in Fluss: no round has told it yet."""


@dataclass(frozen=True, slots=True)
class TableReading:
    """A table at the scrape, with what of its log is not in the lake."""

    table: TieredTable
    pending_records: int
    tier_lag_ms: int


class TableReader:
    """Reads tables for a scrape.

    Lag is told by offsets and not by time alone: a table without anything new to tier has none, however long it is idle
    (Fluss #3464). Behind, it lags since its last success, or since a scrape last saw it without anything to tier.
    """

    def __init__(self, storage: TableStorage, lake: LakeSnapshotManager, clock: Clock) -> None:
        self._storage = storage
        self._lake = lake
        self._clock = clock
        self._up_to_date: dict[int, int] = {}

    def read(self, tables: list[TieredTable]) -> list[TableReading]:
        """The tables that still exist."""
        now = self._clock.now_ms()
        up_to_date: dict[int, int] = {}
        readings = []
        for table in tables:
            status = table.status
            pending = self._pending_records(status.path, status.table_id)
            if pending is None:
                continue
            seen = self._up_to_date.get(status.table_id, 0)
            if pending == 0:
                seen = now
            up_to_date[status.table_id] = seen
            tiered = table.created_time if status.last_tiered_time is None else status.last_tiered_time
            readings.append(TableReading(table, pending, max(0, now - max(tiered, seen)) if pending else 0))
        self._up_to_date = up_to_date
        return readings

    def _pending_records(self, path: TablePath, table_id: int) -> int | None:
        try:
            buckets = self._storage.buckets(path)
        except FlussTieringError:
            return None  # dropped since
        snapshot = self._lake.newest(table_id)
        tiered: Mapping[TableBucket, int] = {} if snapshot is None else snapshot.log_end_offsets
        return sum(max(0, each.log_end_offset - tiered.get(each.bucket, 0)) for each in buckets)


def table_metrics(readings: list[TableReading], totals: RoundTotals, now: int) -> Iterator[Metric]:
    """The metrics of the tables."""
    gauges = {
        name: GaugeMetricFamily(_PREFIX + name, meaning, labels=_LABELS) for name, meaning in _FLUSS_GAUGES.items()
    }
    failures = GaugeMetricFamily(
        _PREFIX + "failuresTotal", "Rounds that failed since the server started.", labels=_LABELS
    )
    rows = CounterMetricFamily(
        "fluss_tiering_table_written_rows", "Rows that rounds wrote to the lake.", labels=_LABELS
    )
    written = CounterMetricFamily(
        "fluss_tiering_table_written_bytes", "Bytes of files that rounds wrote to the lake.", labels=_LABELS
    )
    parked = GaugeMetricFamily(
        "fluss_tiering_table_parked", "1 for a table that is parked, else absent.", labels=_LABELS
    )
    in_a_row = GaugeMetricFamily(
        "fluss_tiering_table_consecutive_failures", "Failures in a row, where there are any.", labels=_LABELS
    )
    for reading in readings:
        status, of_rounds = reading.table.status, totals.of(reading.table.status.table_id)
        labels = (status.path.database, status.path.table, str(status.table_id))
        stats = of_rounds.stats or TieringStats()
        values = {
            "tierLag": reading.tier_lag_ms,
            "pendingRecords": reading.pending_records,
            "tieredTimestamp": reading.table.created_time
            if status.last_tiered_time is None
            else status.last_tiered_time,
            "tierDuration": _UNKNOWN if of_rounds.duration_ms is None else of_rounds.duration_ms,
            "fileSize": _known(stats.lake_file_size),
            "recordCount": _known(stats.lake_record_count),
            "pendingTime": max(0, now - status.state_since) if status.state is TieringState.PENDING else 0,
            "freshness": reading.table.freshness_ms,
        }
        for name, value in values.items():
            gauges[name].add_metric(labels, value)
        failures.add_metric(labels, of_rounds.failures)
        rows.add_metric(labels, of_rounds.rows)
        written.add_metric(labels, of_rounds.bytes)
        if status.parked:
            parked.add_metric(labels, 1)
        if status.consecutive_failures:
            in_a_row.add_metric(labels, status.consecutive_failures)
    yield from gauges.values()
    yield from (failures, rows, written, parked, in_a_row)


def _known(value: int | None) -> int:
    return _UNKNOWN if value is None else value


_FLUSS_GAUGES: Final = {
    "tierLag": "Time since the last success, in ms, while there is something to tier; else 0.",
    "pendingRecords": "Log records that are not in the lake.",
    "tieredTimestamp": "Time of the last success, in ms; before it, of the table's creation.",
    "tierDuration": "How long the last round that was tiered took, in ms; -1 before the first.",
    "fileSize": "Bytes of the lake table's files after the last round; -1 before the first.",
    "recordCount": "Records of the lake table's files after the last round; -1 before the first.",
    "pendingTime": "How long the table has been Pending, in ms; 0 while it is not.",
    "freshness": "The table's freshness, in ms.",
}
