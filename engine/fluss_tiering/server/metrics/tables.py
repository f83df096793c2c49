"""The metrics of each table: a fixed number of series for each, read from memory at the scrape.

Names and meanings are those of Fluss (`LakeTableTieringManager`, `MetricNames`). Times are in milliseconds, as there.

The text is written here because Prometheus's client library takes a second and a half for ten thousand tables. For so
long heartbeats would compete with each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.server.core.lake.backlogs import Backlogs
from fluss_tiering.server.core.tiering.states import TieredTable
from fluss_tiering.server.core.tiering.totals import RoundTotals, TableTotals

_PREFIX: Final = "fluss_coordinator_lakeTiering_table_"
_LOST: Final = "fluss_tiering_dropped_untiered_records_total"
_LOST_MEANING: Final = (
    "Log records that were dropped before they were in the lake, with a partition or a table, since the server "
    "started; absent while there are none. A dropped table keeps it."
)
_UNKNOWN: Final = -1
"""The value that no round has reported yet, as in Fluss."""


@dataclass(frozen=True, slots=True)
class TableReading:
    """The values of a table at a scrape.

    Attributes:
        table: The table and its status.
        pending_records: The number of log records that are not in the lake.
        tier_lag_ms: How long the oldest of these records has waited, in milliseconds; 0 if there is none.
        pending_time_ms: How long the table has been Pending, in milliseconds; 0 if it is not.
    """

    table: TieredTable
    totals: TableTotals
    pending_records: int
    tier_lag_ms: int
    pending_time_ms: int


def read_tables(tables: Sequence[TieredTable], backlogs: Backlogs, totals: RoundTotals, now: int) -> list[TableReading]:
    """Return the values of the tables whose backlogs are known.

    Args:
        totals: The totals of their rounds.
        now: The present time, in milliseconds since the epoch.
    """
    readings = []
    for table in tables:
        status = table.status
        backlog = backlogs.of(status.table_id)
        if backlog is None:
            continue
        since = table.tiered_time if backlog.since is None else backlog.since
        readings.append(
            TableReading(
                table=table,
                totals=totals.of(status.table_id),
                pending_records=backlog.records,
                tier_lag_ms=max(0, now - since) if backlog.records else 0,
                pending_time_ms=max(0, now - status.state_since) if status.state is TieringState.PENDING else 0,
            )
        )
    return readings


def tables_text(readings: list[TableReading], lost: Mapping[TablePath, int]) -> str:
    """Return the metrics of tables in Prometheus's text format. The names of tables need no escaping in it.

    Args:
        readings: The values of the tables.
        lost: The number of records that were dropped before they were in the lake, also with dropped tables.
    """
    labelled = [(_labels(reading.table.status), reading) for reading in readings]
    lines = []
    for metric in _METRICS:
        lines += [f"# HELP {metric.name} {metric.meaning}", f"# TYPE {metric.name} {metric.type}"]
        for labels, reading in labelled:
            value = metric.value(reading)
            if value is not None:
                lines.append(f"{metric.name}{labels} {value}")
    lines += [f"# HELP {_LOST} {_LOST_MEANING}", f"# TYPE {_LOST} counter"]
    lines += [f'{_LOST}{{database="{path.database}",table="{path.table}"}} {records}' for path, records in lost.items()]
    return "\n".join(lines) + "\n"


def _labels(status: TieringStatus) -> str:
    path = status.path
    return f'{{database="{path.database}",table="{path.table}",tableId="{status.table_id}"}}'


@dataclass(frozen=True, slots=True)
class _TableMetric:
    """A metric of each table. A table without a value has no series."""

    name: str
    meaning: str
    value: Callable[[TableReading], int | None]
    type: str = "gauge"


def _known(value: int | None) -> int:
    return _UNKNOWN if value is None else value


def _maintained(reading: TableReading, value: int) -> int | None:
    return None if reading.totals.maintained_time is None else value


_METRICS: Final = (
    _TableMetric(
        _PREFIX + "tierLag",
        "How long the oldest log record has waited that is not in the lake, in ms; 0 without one.",
        lambda reading: reading.tier_lag_ms,
    ),
    _TableMetric(
        _PREFIX + "pendingRecords",
        "Log records that are not in the lake. An update of a row of a primary-key table is two.",
        lambda reading: reading.pending_records,
    ),
    _TableMetric(
        _PREFIX + "tieredTimestamp",
        "Time of the last success, in ms; before it, of the table's creation.",
        lambda reading: reading.table.tiered_time,
    ),
    _TableMetric(
        _PREFIX + "tierDuration",
        "How long the last round that was tiered took, in ms; -1 before the first.",
        lambda reading: _known(reading.totals.duration_ms),
    ),
    _TableMetric(
        _PREFIX + "fileSize",
        "Bytes of the lake table's files after the last round; -1 before the first.",
        lambda reading: _known(reading.totals.lake_file_size),
    ),
    _TableMetric(
        _PREFIX + "recordCount",
        "Records of the lake table's files after the last round; -1 before the first.",
        lambda reading: _known(reading.totals.lake_record_count),
    ),
    _TableMetric(
        _PREFIX + "pendingTime",
        "How long the table has been Pending, in ms; 0 while it is not.",
        lambda reading: reading.pending_time_ms,
    ),
    _TableMetric(_PREFIX + "freshness", "The table's freshness, in ms.", lambda reading: reading.table.freshness_ms),
    # A gauge, as Fluss's reporter makes of each counter.
    _TableMetric(
        _PREFIX + "failuresTotal",
        "Rounds that failed since the server started, without those that were interrupted.",
        lambda reading: reading.totals.failures,
    ),
    _TableMetric(
        "fluss_tiering_table_interrupted_rounds_total",
        "Rounds that were interrupted since the server started.",
        lambda reading: reading.totals.interruptions,
        "counter",
    ),
    _TableMetric(
        "fluss_tiering_table_written_rows_total",
        "Changes that rounds took into the lake since the server started: rows that were written or deleted.",
        lambda reading: reading.totals.rows,
        "counter",
    ),
    _TableMetric(
        "fluss_tiering_table_written_bytes_total",
        "Bytes of files that rounds wrote to the lake since the server started.",
        lambda reading: reading.totals.bytes,
        "counter",
    ),
    _TableMetric(
        "fluss_tiering_table_consecutive_failures",
        "Failures in a row; absent while there are none.",
        lambda reading: reading.table.status.consecutive_failures or None,
    ),
    _TableMetric(
        "fluss_tiering_table_parked",
        "1 for a parked table, absent for any other.",
        lambda reading: 1 if reading.table.status.parked else None,
    ),
    _TableMetric(
        "fluss_tiering_table_maintained_timestamp",
        "Time of the last maintenance of the lake table, in ms; absent before the first.",
        lambda reading: reading.totals.maintained_time,
    ),
    _TableMetric(
        "fluss_tiering_table_maintenance_saved_files_total",
        "Data files and delete files that maintenance saved since the server started; absent before the first.",
        lambda reading: _maintained(reading, reading.totals.saved_files),
        "counter",
    ),
    _TableMetric(
        "fluss_tiering_table_maintenance_rewritten_bytes_total",
        "Bytes of data files that maintenance rewrote since the server started; absent before the first.",
        lambda reading: _maintained(reading, reading.totals.rewritten_bytes),
        "counter",
    ),
    _TableMetric(
        "fluss_tiering_table_maintenance_expired_snapshots_total",
        "Lake snapshots that maintenance removed since the server started; absent before the first.",
        lambda reading: _maintained(reading, reading.totals.expired_snapshots),
        "counter",
    ),
    _TableMetric(
        "fluss_tiering_table_maintenance_deleted_files_total",
        "Files that maintenance deleted since the server started; absent before the first.",
        lambda reading: _maintained(reading, reading.totals.deleted_files),
        "counter",
    ),
)
