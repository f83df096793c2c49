"""Position delete files of the format version 2 that a rewrite would save.

A rewrite of data files leaves position delete files of the snapshot from which it began, although no data file is left
to which they apply. Iceberg goes by the data sequence numbers, which new data files have from that snapshot. Here the
sequence numbers of the commits count that have added the data files: a position delete file names data files that were
there when it was written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.actions import spark_actions
from fluss_tiering.lake.iceberg.deletes import FIRST_WITH_VECTORS
from fluss_tiering.lake.iceberg.java import iceberg_class, jvm_of
from fluss_tiering.lake.iceberg.maintenance.rewrites import PartitionValues, in_partitions, partition_values
from fluss_tiering.lake.iceberg.shuffles import shuffles_of_its_size

_ALL: Final = {"rewrite-all": "true"}


@dataclass(frozen=True, slots=True)
class MergeableDeletes:
    """The position delete files of a partition that are worth a rewrite.

    Attributes:
        partition: The partition.
        files: The number of its position delete files.
        data_files: The number of its data files.
        fewer: How many position delete files a rewrite saves at least.
    """

    partition: PartitionValues
    files: int
    data_files: int
    fewer: int


def partitions_to_rewrite(spark: SparkSession, table: JavaObject, least_saved: int) -> list[PartitionValues]:
    """Return the partitions of `mergeable_deletes`."""
    return [each.partition for each in mergeable_deletes(spark, table, least_saved)]


def mergeable_deletes(spark: SparkSession, table: JavaObject, least_saved: int) -> list[MergeableDeletes]:
    """Return the partitions whose position delete files are worth a rewrite. Errors are those of the JVM.

    It is worth it if none of them applies to a data file any more, or if they are many more than the data files. Only
    metadata is read, in the driver.

    Args:
        spark: The session.
        table: Iceberg's table object, which has a snapshot.
        least_saved: How many files fewer are worth a rewrite of deletes that apply.
    """
    # Rewrites of data files leave no deletion vectors behind.
    if int(table.operations().current().formatVersion()) >= FIRST_WITH_VECTORS or len(table.specs()) != 1:
        return []
    jvm = jvm_of(spark)
    planner = iceberg_class(jvm, "actions.BinPackRewritePositionDeletePlanner")(table)
    planner.init(_ALL)
    deletes: dict[PartitionValues, list[int]] = defaultdict(list)
    groups = planner.plan().groups().iterator()
    while groups.hasNext():
        group = groups.next()
        partition = partition_values(jvm, group.info().partition())
        deletes[partition] += [int(task.file().dataSequenceNumber()) for task in group.fileScanTasks()]
    if not deletes:
        return []
    added: dict[PartitionValues, list[int]] = defaultdict(list)
    tasks = table.newScan().filter(in_partitions(spark, table, list(deletes))).planFiles()
    try:
        files = tasks.iterator()
        while files.hasNext():
            file = files.next().file()
            added[partition_values(jvm, file.partition())].append(int(file.fileSequenceNumber() or 0))
    finally:
        tasks.close()
    return [
        MergeableDeletes(partition, len(written), len(added[partition]), _fewer(written, added[partition]))
        for partition, written in deletes.items()
        if _is_worth(written, added[partition], least_saved)
    ]


def _is_worth(written: Sequence[int], added: Sequence[int], least_saved: int) -> bool:
    """Return whether delete files that were written by these commits save files, if these have added the data files."""
    return _apply_to_nothing(written, added) or _fewer(written, added) >= least_saved


def _fewer(written: Sequence[int], added: Sequence[int]) -> int:
    # At most one delete file for each data file remains.
    return len(written) if _apply_to_nothing(written, added) else max(0, len(written) - len(added))


def _apply_to_nothing(written: Sequence[int], added: Sequence[int]) -> bool:
    return all(commit < each for commit in written for each in added)


def rewrite_position_deletes(
    spark: SparkSession, table: JavaObject, partitions: Sequence[PartitionValues] | None = None
) -> int:
    """Rewrite position delete files, and return how many there are fewer. Errors are those of the JVM.

    Args:
        spark: The session.
        table: Iceberg's table object.
        partitions: The partitions whose files are all rewritten, at least one; None for what Iceberg chooses.
    """
    action = spark_actions(spark).rewritePositionDeletes(table)
    if partitions is not None:
        action = action.options(_ALL).filter(in_partitions(spark, table, partitions))
    with shuffles_of_its_size(spark):
        result = action.execute()
    return int(result.rewrittenDeleteFilesCount()) - int(result.addedDeleteFilesCount())
