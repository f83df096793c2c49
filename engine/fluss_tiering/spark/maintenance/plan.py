"""The plan of a lake table's maintenance: what the table's metadata counts, what is worth doing, and what that saves.

Only metadata is read: the newest snapshot, its manifests and the list of snapshots. Old records are counted by a query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Final

from pyspark.sql import SparkSession

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.expired_records import expired_records
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.expiry import Expirable, expirable_snapshots
from fluss_tiering.lake.iceberg.file_counts import FileCounts, file_counts, manifest_sizes
from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.library import JavaTable
from fluss_tiering.lake.iceberg.maintenance.place_groups import can_rewrite
from fluss_tiering.lake.iceberg.maintenance.position_deletes import MergeableDeletes, mergeable_deletes
from fluss_tiering.lake.iceberg.maintenance.rewrites import (
    FileGroup,
    Part,
    PartitionValues,
    planned_groups,
    target_file_bytes,
)
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.iceberg.validation import has_times
from fluss_tiering.lake.names import lake_table_name, quoted
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.table_options import (
    LAKE_AUTO_COMPACTION,
    LAKE_AUTO_EXPIRE_SNAPSHOT,
    commit_branch_of,
    is_set,
    record_expiry,
)

_MANY_MANIFESTS: Final = 10
_SMALL_MANIFEST_BYTES: Final = 4 * 1024 * 1024
"""Half of the manifest size that Iceberg aims at (the default of `commit.manifest.target-size-bytes`)."""
_MANIFEST_BYTES: Final = 2 * _SMALL_MANIFEST_BYTES


class Step(StrEnum):
    """A part of the maintenance of a lake table."""

    EXPIRE_RECORDS = "expire-records"
    COMPACT = "compact"
    MANIFESTS = "manifests"
    EXPIRE = "expire"
    CLEAN = "clean"


ALL_STEPS: Final = frozenset(Step)


@dataclass(frozen=True, slots=True)
class MaintenanceLimits:
    """What is worth doing, and how much of it one run does for a table.

    Attributes:
        max_bytes: The largest size of the data files that are rewritten.
        cores: About how many tasks rewrite files at the same time.
        min_input_files: How many small files of a partition are worth merging.
        delete_files: How many delete files must apply to a data file, so that it is rewritten at any size.
        commit_bytes: About how many bytes of data files one commit replaces. A run that is ended keeps what was
            committed.
    """

    max_bytes: int = 10 << 30
    cores: int = 1
    min_input_files: int = 5
    delete_files: int = 5
    commit_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Batch:
    """Partitions whose files are rewritten in one commit.

    Attributes:
        groups: The groups of files in them that are replaced.
        part: What is rewritten of the partition at most; None for all that the planner finds in the partitions.
    """

    partitions: tuple[PartitionValues, ...]
    groups: tuple[FileGroup, ...]
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What maintenance of a lake table finds and what it would do.

    Attributes:
        files: The data files and delete files of the newest snapshot.
        manifests: The number of its manifests.
        snapshots: The number of the table's snapshots.
        metadata_files: The number of metadata files that the newest one names, and that one itself.
        batches: The rewrites of data files.
        groups_left: How many groups of files are worth rewriting but exceed the budget.
        merges: The position delete files that are merged, in partitions that keep some of their data files. Empty if
            the plan was not asked for them.
        fewer_manifests: About how many manifests fewer there are after they were merged; 0 if that is not worth it.
        expired_records: How many records are older than the table's options allow. 0 if the plan was not asked.
        expirable: The snapshots that can be expired.
        note: Why a step is left out; None if none is.
    """

    files: FileCounts
    manifests: int
    snapshots: int
    metadata_files: int
    batches: tuple[Batch, ...] = ()
    groups_left: int = 0
    merges: tuple[MergeableDeletes, ...] = ()
    fewer_manifests: int = 0
    expired_records: int = 0
    expirable: Expirable = field(default_factory=lambda: Expirable((), 0, 0))
    note: str | None = None

    @property
    def groups(self) -> list[FileGroup]:
        """The groups of files that are rewritten."""
        return [group for batch in self.batches for group in batch.groups]

    @property
    def fewer_files(self) -> int:
        """About how many data files fewer there are after the rewrites."""
        return sum(group.files - group.new_files for group in self.groups)

    @property
    def deletes_to_merge(self) -> int:
        """The number of position delete files that are merged."""
        return sum(each.files for each in self.merges)

    @property
    def fewer_deletes(self) -> int:
        """About how many position delete files fewer there are after they were merged."""
        return sum(each.fewer for each in self.merges)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do, besides looking for files that no snapshot refers to."""
        free = self.expirable.free
        return not (self.batches or self.merges or self.fewer_manifests or self.expired_records or free)


def wanted_steps(table: TableInfo) -> frozenset[Step]:
    """Return the steps that the options of a table ask for.

    Raises:
        FlussTieringError: INVALID_TABLE if an option has a wrong value.
    """
    properties = table.descriptor.properties
    steps: set[Step] = set()
    if record_expiry(properties) is not None:
        steps.add(Step.EXPIRE_RECORDS)
    if is_set(properties, LAKE_AUTO_COMPACTION):
        steps |= {Step.COMPACT, Step.MANIFESTS}
    if is_set(properties, LAKE_AUTO_EXPIRE_SNAPSHOT):
        steps |= {Step.EXPIRE, Step.CLEAN}
    return frozenset(steps)


def tables_to_maintain(
    client: TieringClient, paths: Sequence[TablePath], *, everything: bool = False
) -> list[tuple[TableInfo, frozenset[Step]]]:
    """Return tables with the steps that may be done for them.

    Args:
        paths: The tables, with all steps. If none is named, these are the tables whose options ask for maintenance,
            with the steps that they ask for.
        everything: Whether no names mean all tables that are tiered, with all steps.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if a named table does not exist; UNAVAILABLE if the server cannot be reached.
    """
    if paths:
        return [(table, ALL_STEPS) for table in client.get_tables(paths)]
    tiered = [status.path for status in client.list_tiering_statuses()]
    tables = client.get_tables(tiered) if tiered else []
    found = [(table, ALL_STEPS if everything else wanted_steps(table)) for table in tables]
    return [(table, steps) for table, steps in found if steps]


def plan_table(
    client: TieringClient,
    spark: SparkSession,
    table: TableInfo,
    steps: Collection[Step],
    limits: MaintenanceLimits,
    *,
    with_merges: bool = False,
) -> Plan | None:
    """Return the plan for a table; None if it has no lake table. For a lake table without snapshots it is empty.

    Args:
        steps: The steps that may be done.
        limits: What is worth doing, and how much of it is done.
        with_merges: Whether the plan has the merges of position delete files. Maintenance itself looks for them after
            it has rewritten data files.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read; LAKE_TABLE_MISMATCH if the lake table has another layout
            or another history.
    """
    # This is read before the lake table is opened: a snapshot that is registered in between is newer.
    known = client.lake_snapshot(table.path)
    lake = IcebergCatalogs(spark).find_table(table)
    if lake is None:
        return None
    if lake.base() is None:
        # This fails if the storage knows a snapshot. Without one, no round has found a row so far.
        lake.unregistered_commit(None if known is None else known.snapshot_id)
        steps = frozenset(steps) - {Step.COMPACT, Step.MANIFESTS, Step.EXPIRE, Step.EXPIRE_RECORDS}
    sizes = manifest_sizes(lake.java_table)
    batches, left, note = _batches(spark, table, lake, limits) if Step.COMPACT in steps else ((), 0, None)
    if lake.keeps_all_files and not {Step.EXPIRE, Step.CLEAN}.isdisjoint(steps):
        steps = frozenset(steps) - {Step.EXPIRE, Step.CLEAN}
        note = note or "expire and clean are left out, since the lake table has gc.enabled=false"
    merges = _merges(spark, table, lake, limits, batches) if with_merges and Step.COMPACT in steps else ()
    snapshots, metadata_files = lake.snapshots_and_metadata_files
    return Plan(
        files=file_counts(lake.java_table),
        manifests=len(sizes),
        snapshots=snapshots,
        metadata_files=metadata_files,
        batches=batches,
        groups_left=left,
        merges=merges,
        fewer_manifests=fewer_manifests(sizes) if Step.MANIFESTS in steps and lake.commits_to_main else 0,
        expired_records=count_expired(spark, expired_rows(table)) if Step.EXPIRE_RECORDS in steps else 0,
        expirable=(
            expirable_snapshots(
                lake, None if known is None else known.snapshot_id, older_than_ms=None, retain_last=None
            )
            if Step.EXPIRE in steps
            else Expirable((), 0, snapshots)
        ),
        note=note,
    )


def expired_rows(table: TableInfo) -> str | None:
    """Return the FROM and the WHERE of the lake table's records that are expired; None if none ever are.

    Raises:
        FlussTieringError: INVALID_TABLE if the table's options are wrong.
    """
    condition = expired_records(table)
    branch = commit_branch_of(table.descriptor.properties)
    return (
        None if condition is None else f"FROM {lake_table_name(table)}.{quoted(f'branch_{branch}')} WHERE {condition}"
    )


def count_expired(spark: SparkSession, rows: str | None) -> int:
    """Return how many records `expired_rows` of a lake table with a snapshot are. Errors are those of Spark."""
    if rows is None:
        return 0
    ((count,),) = spark.sql(f"SELECT count(*) {rows}").collect()
    return int(count)


def rewrite_options(table: JavaTable, limits: MaintenanceLimits) -> dict[str, str]:
    """Return the options of Iceberg's planner of rewrites. Errors are those of the JVM."""
    return {
        "min-input-files": str(limits.min_input_files),
        "delete-file-threshold": str(limits.delete_files),
        # A group of files is rewritten by about as many tasks as it makes new files, which is one of this size.
        "max-file-group-size-bytes": str(max(1, min(target_file_bytes(table), limits.max_bytes))),
    }


def _batches(
    spark: SparkSession, table: TableInfo, lake: IcebergTable, limits: MaintenanceLimits
) -> tuple[tuple[Batch, ...], int, str | None]:
    if has_times(table) and not can_rewrite(lake):
        return (), 0, "it has a TIME column and files that only Spark could compact, which does not know TIME"
    with lake_errors(f"plan a compaction of the lake table {table.lake_path}"):
        groups = planned_groups(lake.java_table, rewrite_options(lake.java_table, limits))
    chosen = choose(groups, limits)
    return chosen, len(groups) - sum(len(batch.groups) for batch in chosen), None


def _merges(
    spark: SparkSession, table: TableInfo, lake: IcebergTable, limits: MaintenanceLimits, batches: Iterable[Batch]
) -> tuple[MergeableDeletes, ...]:
    if has_times(table) or not file_counts(lake.java_table).position_deletes:
        return ()
    rewritten: Counter[PartitionValues] = Counter()
    for group in (group for batch in batches for group in batch.groups):
        rewritten[group.partition] += group.files
    with lake_errors(f"plan a merge of position delete files of the lake table {table.lake_path}"):
        found = mergeable_deletes(lake.java_table, limits.min_input_files)
    # The rewrite of all data files of a partition removes its position delete files, so that none is left to merge.
    return tuple(each for each in found if not 0 < each.data_files <= rewritten[each.partition])


def choose(groups: Iterable[FileGroup], limits: MaintenanceLimits) -> tuple[Batch, ...]:
    """Return the rewrites within the budget, those first that save most for each byte they rewrite."""
    # Sorting is stable: the groups of a partition keep the order in which Iceberg plans them.
    by_partition = [
        (partition, list(each))
        for partition, each in groupby(sorted(groups, key=_partition_order), key=lambda group: group.partition)
    ]
    left = limits.max_bytes
    whole: list[tuple[PartitionValues, list[FileGroup]]] = []
    parts: list[Batch] = []
    for partition, found in sorted(by_partition, key=lambda each: _worth(each[1]), reverse=True):
        fitting = _fitting(found, left)
        if not fitting:
            continue
        if len(fitting) == len(found):
            whole.append((partition, fitting))
        else:
            part = Part(left, sum(group.files for group in fitting))
            parts.append(Batch((partition,), tuple(fitting), part))
        left -= _bytes(fitting)
    return (*_commits(whole, limits.commit_bytes), *parts)


def _commits(partitions: Iterable[tuple[PartitionValues, list[FileGroup]]], commit_bytes: int) -> list[Batch]:
    commits: list[Batch] = []
    for partition, groups in partitions:
        if commits and _bytes(commits[-1].groups) + _bytes(groups) <= commit_bytes:
            last = commits.pop()
            commits.append(Batch((*last.partitions, partition), (*last.groups, *groups)))
        else:
            commits.append(Batch((partition,), tuple(groups)))
    return commits


def _fitting(groups: Sequence[FileGroup], limit_bytes: int) -> list[FileGroup]:
    fitting: list[FileGroup] = []
    for group in groups:
        limit_bytes -= group.bytes
        if limit_bytes < 0:
            break
        fitting.append(group)
    return fitting


def _partition_order(group: FileGroup) -> str:
    return repr(group.partition)


def _worth(groups: Sequence[FileGroup]) -> float:
    saved = sum(group.files - group.new_files + group.deletes for group in groups)
    return saved / max(1, _bytes(groups))


def _bytes(groups: Iterable[FileGroup]) -> int:
    return sum(group.bytes for group in groups)


def fewer_manifests(sizes: Sequence[int]) -> int:
    """Return about how many manifests fewer there are after they were merged; 0 if that is not worth it.

    Args:
        sizes: The sizes of the manifests, in bytes.
    """
    if len(sizes) <= _MANY_MANIFESTS or sum(sizes) >= len(sizes) * _SMALL_MANIFEST_BYTES:
        return 0
    return len(sizes) - max(1, -(-sum(sizes) // _MANIFEST_BYTES))
