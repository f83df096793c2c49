"""Rounds in the process of the tests: a real server, storage and files, and the lake of `plain_lake`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from plain_lake import PlainLake

from engine_support import SCHEMA, descriptor
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath, WriteKind
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.round.deletes import DeleteJob
from fluss_tiering.spark.round.keepalive import KeepAlive, RoundGuard
from fluss_tiering.spark.round.lease import Releaser, TableLease, open_lease
from fluss_tiering.spark.round.pieces import StageJob
from fluss_tiering.spark.round.plan import PlanLimits
from fluss_tiering.spark.round.result import PieceResult, TableResult
from fluss_tiering.spark.round.services import RoundServices
from fluss_tiering.spark.round.stage import Job
from fluss_tiering.spark.runtime import Event, Runtime
from fluss_tiering.spark.table_run import TableRun

_NUMBERS = itertools.count(1)
LEASE_MS = 600_000
Rows = Mapping[int, str | None]
"""Names by their keys; None for a row without a name."""


@dataclass
class Told:
    """`Progress` that keeps what it hears."""

    steps: list[str] = field(default_factory=list)
    stages: list[tuple[str, int]] = field(default_factory=list)
    results: list[TableResult] = field(default_factory=list)

    def step(self, path: TablePath, what: str) -> None:
        self.steps.append(f"{path}: {what}")

    def stage(self, path: TablePath, group: str, tasks: int, pieces: object) -> None:
        self.stages.append((f"{path}: {group}", tasks))

    def done(self, result: TableResult) -> None:
        self.results.append(result)


@dataclass
class Application:
    """An application that runs the stages of its rounds in its own process, on a clock that tests move."""

    client: TieringClient
    target: str
    lake: PlainLake
    now: float = 5000.0
    told: Told = field(default_factory=Told)
    jobs: list[tuple[StageJob, str]] = field(default_factory=list)
    delete_jobs: list[tuple[DeleteJob, str]] = field(default_factory=list)
    written: list[PieceResult] = field(default_factory=list)
    on_stage: Callable[[StageJob, RoundGuard], None] = lambda job, guard: None
    cancelled: list[str] = field(default_factory=list)
    stopped: Event = field(default_factory=Runtime().new_event)
    spark_ended: bool = False

    def new_path(self) -> TablePath:
        """Return a name that no other table has."""
        return TablePath("db", f"r{next(_NUMBERS)}")

    def table(self, *, key: bool = True, num_buckets: int = 1, **options: Any) -> TableInfo:
        return self.client.create_table(
            self.new_path(), descriptor(primary_key=key, num_buckets=num_buckets, **options)
        )

    def write(self, table: TableInfo, rows: Rows, kind: WriteKind | None = None) -> None:
        kind = kind or (WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND)
        batch = pa.table({"id": list(rows), "name": list(rows.values())}, schema=SCHEMA)
        assert sum(self.client.write_rows(table.path, kind, [batch])) == len(rows)

    def rows(self, table: TableInfo) -> list[tuple[int, str | None]]:
        return [(row["id"], row["name"]) for row in self.lake.rows(table)]

    def ends(self, table: TableInfo) -> dict[TableBucket, int]:
        """Return the ends of the logs, which a round reads up to."""
        return {
            each.bucket: each.log_end_offset
            for each in self.client.list_buckets([table.path])[table.path]
            if each.log_end_offset
        }

    def _run_stage(self, spark: object, job: Job, group: str, guard: RoundGuard) -> list[PieceResult]:
        if isinstance(job, StageJob):
            self.jobs.append((job, group))
            self.on_stage(job, guard)
        else:
            self.delete_jobs.append((job, group))
        guard.check()
        results = list(job(range(len(job.work))))
        self.written += results
        return results

    def services(self, **settings: Any) -> RoundServices:
        known: dict[str, Any] = {
            "client": self.client,
            "spark": None,
            "catalog": self.lake,
            "storage": self.client.describe_storage(),
            "target": self.target,
            "limits": PlanLimits(),
            "progress": self.told,
            "runtime": replace(Runtime(), monotonic=lambda: self.now),
            "run_stage": self._run_stage,
            "cancel_stage": lambda spark, group: self.cancelled.append(group),
        }
        return RoundServices(**{**known, **settings})

    def run(self, table: TableInfo, *, claim_timeout_s: float = 5, **settings: Any) -> TableResult:
        """Run a round, whatever becomes of it."""
        self.told = replace(Told())
        self.jobs.clear()
        self.delete_jobs.clear()
        self.written.clear()
        table = self.client.get_tables([table.path])[0]
        lease = open_lease(self.client, [table.path], lease_id=None, attempt_token=None, duration_ms=LEASE_MS)
        with Releaser(self.client) as releaser, KeepAlive(self.client, LEASE_MS) as keepalive:
            held = TableLease(self.client, keepalive, lease, table)
            held.hold(set(lease.pinned.get(table.table_id, ())))
            run = TableRun(
                self.services(**settings),
                lease,
                keepalive=keepalive,
                releaser=releaser,
                claim_timeout_s=claim_timeout_s,
                driver="test",
                stopped=self.stopped,
                spark_ended=lambda: self.spark_ended,
            )
            result = run.tier(table, held)
        assert self.client.list_leases(lease.lease_id) == [], "everything is released"
        return result

    def tier(self, table: TableInfo, **settings: Any) -> TableResult:
        """Run a round that must not fail."""
        result = self.run(table, **settings)
        assert result.error is None, result.error
        return result

    def round(self, table: TableInfo, rows: Rows, kind: WriteKind | None = None, **settings: Any) -> TableResult:
        """Write rows, and run a round that must not fail."""
        self.write(table, rows, kind)
        return self.tier(table, **settings)

    def fail(self, table: TableInfo, **settings: Any) -> str:
        """Run a round that must fail, and let the table be claimed again at once."""
        result = self.run(table, **settings)
        assert result.error is not None
        assert result.state is TieringState.FAILED
        self.client.resume_tables([table.path])
        return result.error


def named(keys: Sequence[int], name: str) -> dict[int, str | None]:
    return {key: f"{name} {key}" for key in keys}
