"""A log table and a primary-key table that are changed, and tiered by Fluss's Flink service and by us in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import fetch_flink_jars
from benchmarks import rows
from benchmarks.flink.flink_tiering import FlinkTiering
from benchmarks.flink.our_tiering import OurTiering
from benchmarks.flink.rounds import fresh
from benchmarks.flink.tables import BenchmarkTables
from fetch_fluss_jars import VERSIONS
from fluss_support import FlussCluster
from fluss_tiering.model.table import TableInfo

_APPENDED = 100


class Turns:
    """The two tables and what they must hold.

    Args:
        tables: Creates and changes tables of the cluster.
    """

    def __init__(self, tables: BenchmarkTables) -> None:
        self.log = tables.create("log", primary_key=False)
        self.keyed = tables.create("keyed", primary_key=True)
        self._number = 0
        self._live: dict[int, dict[str, Any]] = {}

    @property
    def both(self) -> list[TableInfo]:
        return [self.log, self.keyed]

    def change(self, tables: BenchmarkTables) -> None:
        """Append rows to the one; change rows that the last turn wrote, delete some and add others in the other one."""
        number, self._number = self._number, self._number + 1
        tables.append(self.log, _APPENDED * number, _APPENDED)
        upserted = _batch(100 * number, 100 * number + 200, seed=number)
        tables.upsert(self.keyed, [upserted])
        self._live |= {row["id"]: row for row in upserted.to_pylist()}
        deleted = _batch(100 * number + 80, 100 * number + 120, seed=number)
        tables.delete(self.keyed, [deleted])
        for row_id in deleted.column("id").to_pylist():
            del self._live[row_id]

    def appended(self) -> pa.Table:
        """What the log table must hold."""
        firsts = range(0, _APPENDED * self._number, _APPENDED)
        return pa.Table.from_batches([each for first in firsts for each in rows.batches(first, _APPENDED)])

    def left(self) -> pa.Table:
        """What the primary-key table must hold."""
        return pa.Table.from_pylist(list(self._live.values()), schema=_batch(0, 1, seed=0).schema)


def tier_by_us(tables: BenchmarkTables, turns: Turns, folder: Path, cluster: FlussCluster) -> None:
    with OurTiering(folder, cluster.bootstrap) as ours:
        fresh(ours, tables, turns.both)


def tier_by_flink(tables: BenchmarkTables, turns: Turns, folder: Path, cluster: FlussCluster) -> None:
    class_path = fetch_flink_jars.class_path(VERSIONS[cluster.version])
    fresh(FlinkTiering(folder, cluster.bootstrap, cluster.lake_catalog, class_path), tables, turns.both)


def _batch(first: int, end: int, seed: int) -> pa.RecordBatch:
    return rows.batch_of(np.arange(first, end, dtype=np.int64), seed)
