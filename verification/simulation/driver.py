"""A driver: the application's own steps with a model of Spark. Its process may be paused or killed anywhere."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

from airflow_provider_fluss.lease import LeaseHandle
from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, RebasedPlace
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import StorageDescription, TableInfo, TablePath
from fluss_tiering.model.tiering import Claim
from fluss_tiering.spark.round.deletes import DeleteJob
from fluss_tiering.spark.round.keepalive import KeepAlive, RoundGuard
from fluss_tiering.spark.round.lease import Releaser, TableLease, open_lease
from fluss_tiering.spark.round.pieces import StageJob
from fluss_tiering.spark.round.plan import Piece, PlanLimits, SnapshotPiece
from fluss_tiering.spark.round.progress import Progress
from fluss_tiering.spark.round.result import PieceResult, TableResult
from fluss_tiering.spark.round.services import RoundServices
from fluss_tiering.spark.round.shared_stage import SharedStages
from fluss_tiering.spark.round.stage import Job
from fluss_tiering.spark.table_run import TableRun
from simulation.key_index import ModelKeyIndexes, Rows
from simulation.lake import ModelLake, SimCatalog
from simulation.lake_files import FILE_BYTES, FileRows
from simulation.network import Endpoint, SimClient, SimRetryingClient
from simulation.position_deletes import PositionDeletes, noted_keys
from simulation.scheduler import Process, Scheduler, SimEvent, current_process, runtime_of
from simulation.storage import ROW_BYTES, Change, ModelStorage


class ModelSpark:
    """Runs stages: it reads pieces from the model storage and writes the rows of the real workers into memory."""

    def __init__(
        self,
        scheduler: Scheduler,
        storage: ModelStorage,
        lake: ModelLake,
        indexes: ModelKeyIndexes,
        chance: random.Random,
    ) -> None:
        self._scheduler = scheduler
        self._storage = storage
        self._lake = lake
        self._deletes = PositionDeletes(lake, indexes)
        self._chance = chance
        self._attempts = itertools.count()
        self._cancelled: set[str] = set()
        self.faults = 1.0
        self.on_snapshot_read: Callable[[Process, SnapshotPiece], None] = lambda process, piece: None
        self.counters = {
            "tasks failed": 0,
            "snapshots gone under a reader": 0,
            "compactions beside a stage": 0,
            "places with noted keys": 0,
            "places with deletes written anew": 0,
            "stages in shared jobs": 0,
        }

    def run_stage(self, spark: object, job: Job, group: str, guard: RoundGuard) -> list[PieceResult]:
        """Run a stage. Rounds receive this function instead of `stage.run_stage`."""
        self._scheduler.sleep(self._chance.choice((20, 500, 3_000, 9_000)))
        if self._chance.random() < 0.02 * self.faults:
            self._scheduler.sleep(self._chance.randrange(600_000))
        # Cancelled by the guard's `stop`, as Spark ends a job group.
        return self._done(job, guard.check)

    def run_together(
        self, spark: object, jobs: Sequence[StageJob], tasks: int, group: str
    ) -> list[list[PieceResult] | None]:
        """Run stages in one job, which takes the place of `shared_stage.run_together`."""
        self._scheduler.sleep(self._chance.choice((20, 500, 3_000, 70_000)))
        if self._chance.random() < 0.02 * self.faults:
            return [None] * len(jobs)
        self.counters["stages in shared jobs"] += len(jobs)
        return [self._done_or_none(job, group) for job in jobs]

    def cancel_shared(self, spark: object, group: str) -> None:
        """End a shared job."""
        self._cancelled.add(group)

    def _done_or_none(self, job: StageJob, group: str) -> list[PieceResult] | None:
        def check() -> None:
            if group in self._cancelled:
                raise FlussTieringError(ErrorCode.UNKNOWN, "the Spark job was cancelled")

        try:
            return self._done(job, check)
        except FlussTieringError:
            return None

    def _done(self, job: Job, check: Callable[[], None]) -> list[PieceResult]:
        results = []
        for number in range(len(job.work)):
            for _ in range(4):
                check()
                self._scheduler.sleep(self._chance.randrange(1, 400))
                check()
                if self._chance.random() < 0.025 * self.faults:
                    self.counters["compactions beside a stage"] += 1
                    self._lake.compact(str(job.table.path))
                # Spark counts the attempts of all tasks, so that none has the name of another one.
                attempt = next(self._attempts)
                if isinstance(job, StageJob):
                    result = self._do(job, number, attempt)
                else:
                    result = self._write_deletes(job, number, attempt)
                if self._chance.random() >= 0.02 * self.faults:
                    break
                # The executor died after it wrote: its files are orphans, and the task runs again.
                self.counters["tasks failed"] += 1
            else:
                raise FlussTieringError(ErrorCode.UNKNOWN, "a Spark task failed: executor lost")
            results.append(result)
        return results

    def write_file_without_rows(
        self, writer: object, bucket: int, location: str, partition_values: tuple[str, ...] = ()
    ) -> LakeFile:
        """Write a file without rows. The lake uses this function instead of that of `parquet`."""
        return self._write(location, FileRows(bucket, FileContent.DATA))

    def _do(self, job: StageJob, number: int, attempt: int) -> PieceResult:
        work = job.work[number]
        bucket, _ = work.place or (work.piece.bucket.bucket, ())
        location = f"{work.location}-{attempt}"
        rows, deleted = self._read(job.table, work.piece)
        files = [self._write(location, FileRows(bucket, FileContent.DATA, rows))] if rows else []
        data = [(file.location, rows) for file in files]
        keys: Any = None
        if work.notes_keys:
            keys = noted_keys(data, deleted)
        elif work.live is not None:
            writer: Any = job.writer
            files += self._deletes.of_piece(
                writer, work.live, bucket=bucket, location=location, data=data, keys=deleted
            )
        elif deleted:
            files.insert(0, self._write(location, FileRows(bucket, FileContent.EQUALITY_DELETES, keys=deleted)))
        return PieceResult(number, len(rows), tuple(files), 0, keys=keys)

    def _write_deletes(self, job: DeleteJob, number: int, attempt: int) -> PieceResult:
        writer: Any = job.writer
        place = job.work[number]
        if isinstance(place, RebasedPlace):
            self.counters["places with deletes written anew"] += 1
            files = self._deletes.rebased(writer, place, attempt)
        else:
            self.counters["places with noted keys"] += 1
            files = self._deletes.of_place(writer, place, attempt)
        return PieceResult(number, 0, tuple(files), 0)

    def _write(self, location: str, rows: FileRows) -> LakeFile:
        name = f"{location}-{rows.content}"
        self._lake.files[name] = rows
        return LakeFile(rows.content, rows.bucket, name, FILE_BYTES, FileMetrics(0))

    def _read(self, table: TableInfo, piece: Piece) -> tuple[Rows, tuple[int, ...]]:
        """Return the rows of a piece, and the keys whose earlier rows it deletes."""
        if isinstance(piece, SnapshotPiece):
            if self._chance.random() < 0.05 * self.faults:
                # For longer than some leases last.
                current_process().pause(self._scheduler.now + self._chance.randrange(900_000))
                self._scheduler.sleep(1)
            self.on_snapshot_read(current_process(), piece)
            try:
                return tuple(self._storage.read_kv_snapshot(piece.snapshot, piece.from_key, piece.to_key)), ()
            except FlussTieringError:
                self.counters["snapshots gone under a reader"] += 1
                raise
        changes = self._storage.read_log(piece.bucket, piece.start_offset, piece.end_offset)
        if not table.has_primary_key:
            return tuple((each.key, each.value or 0) for each in changes), ()
        last: dict[int, Change] = {each.key: each for each in changes}
        rows = tuple((each.key, each.value) for each in last.values() if each.value is not None)
        return rows, tuple(last) if piece.deletes else ()


class HandedOut(TableRun):
    """Runs the round of a table that the server handed out, instead of claiming one by name."""

    claim: Claim

    def _claim(self, table: TableInfo) -> Claim:
        return self.claim


class Driver:
    """What `application.run` does, in fibers of one process."""

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        endpoint: Endpoint,
        *,
        spark: ModelSpark,
        lake: ModelLake,
        round_rows: int | None,
    ) -> None:
        self._scheduler = scheduler
        self._process = process
        self._endpoint = endpoint
        self._spark = spark
        self._lake = lake
        round_bytes = None if round_rows is None else round_rows * ROW_BYTES
        self._limits = PlanLimits(parallelism=2, change_piece_bytes=4 * ROW_BYTES, round_bytes=round_bytes)
        self.ended = SimEvent(scheduler)
        self.results: list[TableResult] = []

    @property
    def alive(self) -> bool:
        """Whether the application still runs."""
        return self._process.alive and not self.ended.is_set()

    def run(self, paths: Sequence[TablePath], handle: LeaseHandle | None, duration_ms: int) -> None:
        """Tier the tables, each in a fiber of its own, under the given lease or one of its own.

        Without tables, ask for one that is due, as Fluss's own tiering service does (S7).
        """
        try:
            self._run(paths, handle, duration_ms)
        except FlussTieringError:
            # The application exits with a status that says so.
            return
        finally:
            self.ended.set()

    def _run(self, paths: Sequence[TablePath], handle: LeaseHandle | None, duration_ms: int) -> None:
        client = SimClient(self._endpoint)
        tables = client.get_tables(paths) if paths else []
        lease = open_lease(
            client,
            paths,
            lease_id=handle and handle.lease_id,
            attempt_token=handle and handle.attempt_token,
            duration_ms=duration_ms,
        )
        stopped = SimEvent(self._scheduler)
        target: Any = self._endpoint
        runtime = runtime_of(self._scheduler)
        client = SimRetryingClient(target, stopped=stopped, runtime=runtime)
        spark: Any = self._spark
        services = RoundServices(
            client=client,
            spark=spark,
            catalog=SimCatalog(self._lake),
            storage=StorageDescription("model", "", "", ""),
            target="",
            limits=self._limits,
            progress=Progress(lambda line: None),
            runtime=runtime,
            run_stage=SharedStages(
                lambda: 2,
                self._spark.run_stage,
                self._spark.run_together,
                self._spark.cancel_shared,
                runtime=runtime,
            ).run_stage,
            # A stage of the model asks its guard.
            cancel_stage=lambda spark, group: None,
        )
        claim = None
        if not paths:
            claim = client.heartbeat(
                request_table=True,
                lease_id=lease.lease_id,
                attempt_token=lease.attempt_token,
                driver=self._process.name,
            ).claim
            if claim is None:
                return
            tables = client.get_tables([claim.path])
        with (
            Releaser(client, runtime=runtime) as releaser,
            KeepAlive(client, duration_ms, runtime=runtime) as keepalive,
        ):
            run = (HandedOut if claim else TableRun)(
                services,
                lease,
                keepalive=keepalive,
                releaser=releaser,
                claim_timeout_s=180,
                driver=self._process.name,
                stopped=stopped,
                spark_ended=lambda: False,
            )
            if isinstance(run, HandedOut) and claim is not None:
                run.claim = claim
            leases = {table.path: TableLease(client, keepalive, lease, table) for table in tables}
            for table in tables:
                leases[table.path].hold(set(lease.pinned.get(table.table_id, ())))
            ends = [self._tier(run, table, leases[table.path]) for table in tables]
            for ended in ends:
                ended.wait()

    def _tier(self, run: TableRun, table: TableInfo, lease: TableLease) -> SimEvent:
        ended = SimEvent(self._scheduler)

        def tier() -> None:
            self.results.append(run.tier(table, lease))
            ended.set()

        self._scheduler.spawn(self._process, tier)
        return ended
