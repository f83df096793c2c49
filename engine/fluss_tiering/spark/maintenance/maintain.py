"""Maintenance of a lake table: what its plan says is done, step by step, while rounds and readers go on.

Each commit is complete in itself. Maintenance that is interrupted or killed leaves a table as after its last commit,
and perhaps files that no snapshot refers to, which a later clean-up finds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.file_counts import FileCounts, file_counts, manifest_sizes
from fluss_tiering.lake.iceberg.java import is_conflict, java_error_text, lake_errors
from fluss_tiering.lake.iceberg.maintenance.position_deletes import mergeable_deletes, rewrite_position_deletes
from fluss_tiering.lake.iceberg.maintenance.rewrites import Rewritten, rewrite_manifests
from fluss_tiering.lake.iceberg.orphans import DEFAULT_GRACE, find_orphans, stale_metadata_files
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.iceberg.validation import has_times, refuse_times
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.spark.maintenance.expire import expire_planned
from fluss_tiering.spark.maintenance.interruption import Interrupted, Interruption
from fluss_tiering.spark.maintenance.plan import (
    ALL_STEPS,
    Batch,
    MaintenanceLimits,
    Plan,
    Step,
    count_expired,
    expired_rows,
    fewer_manifests,
    plan_table,
    rewrite_options,
)
from fluss_tiering.spark.maintenance.rewriting import rewrite_data_files

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The result of maintenance of a lake table.

    Attributes:
        seconds: How long it took, in seconds.
        plan: What was planned; None if nothing was tiered yet, or if the table could not be read.
        after: The files of the table at the end; None as above, or if neither data files nor manifests were rewritten.
        manifests: The number of manifests at the end; None as `after`.
        expired_records: How many records were deleted because they are older than the table's options allow.
        rewritten: The data files that were replaced.
        fewer_manifests: How many manifests fewer there were after they were merged.
        expired: How many snapshots were removed.
        deleted_files: How many files were deleted that only expired snapshots needed.
        orphans: How many files were deleted that no snapshot refers to, and metadata files that are no longer named.
        conflicts: How many commits were given up because others changed the same files.
        interrupted: Whether it was asked to end before it was done.
        error: The reason of a failure; None if it worked.
    """

    path: TablePath
    seconds: float = 0.0
    plan: Plan | None = None
    after: FileCounts | None = None
    manifests: int | None = None
    expired_records: int = 0
    rewritten: Rewritten = field(default_factory=Rewritten)
    fewer_manifests: int = 0
    expired: int = 0
    deleted_files: int = 0
    orphans: int = 0
    conflicts: int = 0
    interrupted: bool = False
    error: str | None = None

    @property
    def was_never_tiered(self) -> bool:
        """Whether there was nothing to maintain, because nothing of the table is in the lake."""
        return self.plan is None and self.error is None and not self.interrupted

    @property
    def did_something(self) -> bool:
        """Whether the table or its files were changed."""
        return self.rewritten != Rewritten() or any(
            (self.expired_records, self.fewer_manifests, self.expired, self.deleted_files, self.orphans)
        )


def maintain_table(
    client: TieringClient,
    spark: SparkSession,
    table: TableInfo,
    *,
    steps: Collection[Step] = ALL_STEPS,
    limits: MaintenanceLimits | None = None,
    interruption: Interruption | None = None,
    grace: timedelta = DEFAULT_GRACE,
    planned: Callable[[Plan], None] = lambda plan: None,
) -> Maintenance:
    """Do what maintenance of a lake table is worth it. A failure is part of the result.

    Args:
        steps: The steps that may be done.
        limits: What is worth it, and how much is done; None for the defaults.
        interruption: Ends the maintenance; None if nothing does.
        grace: How old a file must be before it is deleted because no snapshot refers to it.
        planned: Takes the plan before the first step.
    """
    began = time.perf_counter()
    worker = _Worker(
        client,
        spark,
        table,
        limits=limits or MaintenanceLimits(),
        interruption=interruption or Interruption(),
        grace=grace,
    )
    try:
        worker.run(steps, planned)
    except Interrupted:
        worker.done = replace(worker.done, interrupted=True)
    except FlussTieringError as error:
        worker.done = replace(worker.done, error=error.message)
    done = replace(worker.done, seconds=time.perf_counter() - began)
    if done.did_something or (done.plan is not None and done.error is None and not done.interrupted):
        _report(client, table, done)
    return done


def _report(client: TieringClient, table: TableInfo, done: Maintenance) -> None:
    """Tell the server what was done, for the status of the table and for metrics."""
    report = MaintenanceReport(
        table.table_id,
        saved_files=max(0, done.rewritten.files - done.rewritten.new_files + done.rewritten.delete_files),
        rewritten_bytes=done.rewritten.bytes,
        expired_snapshots=done.expired,
        deleted_files=done.deleted_files + done.orphans,
    )
    try:
        client.heartbeat(maintained=[report])
    except FlussTieringError as error:
        logger.warning("%s: the server does not know of the maintenance: %s", table.path, error.message)


class _Worker:
    """Maintains one table, once."""

    def __init__(
        self,
        client: TieringClient,
        spark: SparkSession,
        table: TableInfo,
        *,
        limits: MaintenanceLimits,
        interruption: Interruption,
        grace: timedelta,
    ) -> None:
        self._client = client
        self._spark = spark
        self._table = table
        self._limits = limits
        self._interruption = interruption
        self._grace = grace
        self.done = Maintenance(table.path)

    def run(self, steps: Collection[Step], planned: Callable[[Plan], None]) -> None:
        """Plan the steps and do them, and note in `done` what was done.

        Raises:
            Interrupted: The maintenance was asked to end.
            FlussTieringError: The errors of `plan_table`; STORAGE if a step fails.
        """
        self._interruption.check()
        expired = expired_rows(self._table) if Step.EXPIRE_RECORDS in steps else None
        if expired is not None and IcebergCatalogs(self._spark).find_table(self._table) is not None:
            refuse_times(self._table, "delete old records with another engine")
            self._without_conflict(self._expire_records, expired)
        steps = frozenset(steps) - {Step.EXPIRE_RECORDS}
        plan = plan_table(self._client, self._spark, self._table, steps, self._limits)
        self.done = replace(self.done, plan=plan)
        if plan is None:
            return
        planned(plan)
        for batch in plan.batches:
            self._without_conflict(self._rewrite, batch)
        if Step.COMPACT in steps and not has_times(self._table):
            self._without_conflict(self._rewrite_position_deletes)
        if Step.MANIFESTS in steps:
            self._without_conflict(self._merge_manifests)
        if plan.expirable.free:
            self._interruption.check()
            # Its jobs are not cancelled: files of snapshots that are expired already would be left to the clean-up of
            # orphan files. It ends between two commits instead.
            done = expire_planned(
                self._client, self._spark, self._table, may_go_on=lambda: not self._interruption.is_asked
            )
            self.done = replace(self.done, expired=done.expired, deleted_files=done.deleted_files)
            self._interruption.check()
        if Step.CLEAN in steps:
            with self._interruption.jobs(self._spark):
                self.done = replace(self.done, orphans=self._clean())
        if self.done.rewritten != Rewritten() or self.done.fewer_manifests:
            table = self._open().java_table
            self.done = replace(self.done, after=file_counts(table), manifests=len(manifest_sizes(table)))

    def _expire_records(self, lake: IcebergTable, rows: str) -> None:
        """Delete old records: whole files where possible, and else as the properties of the lake table say.

        Who repeats this after an unknown outcome deletes the same records, so that nobody has to look it up.
        """
        count = 0 if lake.base() is None else count_expired(self._spark, rows)
        # A delete of nothing would be a snapshot, too.
        if count:
            self._spark.sql(f"DELETE {rows}")
            self.done = replace(self.done, expired_records=count)

    def _rewrite(self, lake: IcebergTable, batch: Batch) -> None:
        table = lake.java_table
        before = file_counts(table)
        # With the sequence number from which a rewrite starts, which is Iceberg's default, equality deletes of a round
        # apply to files that are rewritten meanwhile. Without it such a rewrite is given up, and position delete files
        # are older than the new data files, so that they are removed in the same go.
        by_position = before.position_deletes > 0 and not before.equality_deletes
        # A group that is larger than what is left of the budget would be left out.
        limits = self._limits if batch.part is None else replace(self._limits, max_bytes=batch.part.bytes)
        options = rewrite_options(table, limits)
        of_spark = {
            "max-concurrent-file-group-rewrites": str(self._limits.cores),
            "remove-dangling-deletes": "true",
            "use-starting-sequence-number": str(not by_position).lower(),
        }
        done = rewrite_data_files(
            self._spark,
            self._table,
            lake,
            batch.partitions,
            options=options,
            of_spark=of_spark,
            tasks=self._limits.cores,
            part=batch.part,
        )
        # A commit also drops delete files that are older than all data files, which Iceberg's result does not count.
        fewer = before.delete_files - file_counts(self._open().java_table).delete_files
        done = replace(done, delete_files=max(done.delete_files, fewer))
        self.done = replace(self.done, rewritten=self.done.rewritten + done)

    def _rewrite_position_deletes(self, lake: IcebergTable) -> None:
        table = lake.java_table
        if not file_counts(table).position_deletes:
            return
        found = mergeable_deletes(table, self._limits.min_input_files)
        if partitions := [each.partition for each in found]:
            fewer = rewrite_position_deletes(self._spark, table, partitions)
            self.done = replace(self.done, rewritten=self.done.rewritten + Rewritten(delete_files=fewer))

    def _merge_manifests(self, lake: IcebergTable) -> None:
        table = lake.java_table
        # Iceberg merges the manifests of main only.
        if lake.commits_to_main and fewer_manifests(manifest_sizes(table)):
            fewer = rewrite_manifests(self._spark, table)
            self.done = replace(self.done, fewer_manifests=fewer)

    def _without_conflict(self, step: Callable[..., None], *arguments: Batch | str) -> None:
        """Do a step. If others change the same files meanwhile, it is left to the next maintenance."""
        lake = self._open()
        with self._interruption.jobs(self._spark), lake_errors(f"maintain the lake table {self._table.lake_path}"):
            try:
                step(lake, *arguments)
            except Py4JError as error:
                # What Iceberg refuses to plan looks like a conflict, too.
                if not is_conflict(error) or self._open().metadata_file == lake.metadata_file:
                    raise
                self.done = replace(self.done, conflicts=self.done.conflicts + 1)
                logger.info(
                    "%s: others changed the same files, the rest is left to the next maintenance: %s",
                    self._table.path,
                    java_error_text(error),
                )

    def _clean(self) -> int:
        lake = self._open()
        if lake.keeps_all_files:
            return 0
        orphans = find_orphans(self._spark, self._table, lake, self._grace)
        free = [each.location for each in orphans if each.kept is None]
        free += stale_metadata_files(self._spark, self._table, lake, self._grace)
        return len(free) - len(lake.delete_locations(free))

    def _open(self) -> IcebergTable:
        lake = IcebergCatalogs(self._spark).find_table(self._table)
        if lake is None:
            raise FlussTieringError(
                ErrorCode.STORAGE, f"the lake table {self._table.lake_path} was dropped or renamed during maintenance"
            )
        return lake
