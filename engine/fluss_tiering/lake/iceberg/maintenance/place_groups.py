"""The driver's side of a rewrite by our own tasks: which files of which places it replaces, and its commit.

Iceberg's planner chooses the files, as for a rewrite by Spark. Spark has to rewrite what our tasks do not read: files
with equality deletes, of another format or partition spec, and tables with row lineage or with columns that only the
lake table has.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.deletes import live_data_files
from fluss_tiering.lake.iceberg.java import iceberg_class, jvm_of
from fluss_tiering.lake.iceberg.maintenance.place_rewriter import PlaceRewriter, PlaceWork
from fluss_tiering.lake.iceberg.maintenance.rewrites import PartitionValues, Rewritten, in_partitions
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeFile, LakePlace, LiveDataFile

_WITH_LINEAGE: Final = 3
"""The first format version whose rows have ids that a rewrite has to keep."""


@dataclass(frozen=True, slots=True)
class PlannedRewrite:
    """Files that are replaced in one commit.

    Attributes:
        rewriter: Writes the new files, on executors.
        places: What is written, by place.
        old: Iceberg's descriptions of the data files that are replaced.
        deletes: The delete files that only delete rows of these.
        bytes: The size of the old data files.
    """

    rewriter: PlaceRewriter
    places: tuple[PlaceWork, ...]
    old: tuple[JavaObject, ...] = field(repr=False)
    deletes: tuple[LakeFile, ...] = field(repr=False)
    bytes: int

    def commit(self, lake: IcebergTable, new: Sequence[LakeFile]) -> Rewritten:
        """Commit the new files. Errors are those of `IcebergTable.replace_files`."""
        if self.old:
            lake.replace_files(self.old, self.deletes, new)
        return Rewritten(len(self.old), self.bytes, len(new), len(self.deletes))


def planned_rewrite(
    spark: SparkSession,
    lake: IcebergTable,
    partitions: Sequence[PartitionValues] | None,
    options: Mapping[str, str],
) -> PlannedRewrite | None:
    """Plan a rewrite of the data files of some partitions; None if Spark has to rewrite them.

    Errors are those of the JVM.

    Args:
        spark: The session.
        lake: The lake table, which has a snapshot.
        partitions: The partitions; None for all of them.
        options: The options of Iceberg's planner.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    table = lake.java_table
    if int(table.operations().current().formatVersion()) >= _WITH_LINEAGE:
        return None
    writer = lake.file_writer()
    if not lake.keeps_every_column(writer):
        return None
    jvm = jvm_of(spark)
    where = None if partitions is None else in_partitions(spark, table, partitions)
    groups = _groups(spark, table, where, options)
    places: dict[LakePlace, list[LiveDataFile]] = defaultdict(list)
    found: dict[str, tuple[LakePlace, int]] = {}
    for file in live_data_files(jvm, table, lake.base(), where):
        place = lake.place_of(file)
        if place is not None:
            found[file.location] = place, len(places[place])
            places[place].append(file)
    work: dict[LakePlace, list[tuple[int, ...]]] = defaultdict(list)
    for group in groups:
        known = [found.get(str(file.location())) for file in group]
        (place, *others), indexes = {each[0] if each else None for each in known}, [each[1] for each in known if each]
        if place is None or others or any(places[place][each].has_equality_deletes for each in indexes):
            return None
        work[place].append(tuple(indexes))
    name = f"compacted-{uuid.uuid4()}"
    old = tuple(file for group in groups for file in group)
    return PlannedRewrite(
        PlaceRewriter(writer),
        tuple(
            PlaceWork(
                bucket, values, lake.piece_location(bucket, name, values), tuple(places[bucket, values]), tuple(of)
            )
            for (bucket, values), of in work.items()
        ),
        old,
        _only_for({places[place][each].location for place, of in work.items() for part in of for each in part}, places),
        sum(int(file.fileSizeInBytes()) for file in old),
    )


def _groups(
    spark: SparkSession, table: JavaObject, where: JavaObject | None, options: Mapping[str, str]
) -> list[list[JavaObject]]:
    """Return the data files of each group that Iceberg's planner would rewrite together."""
    jvm = jvm_of(spark)
    of_class = iceberg_class(jvm, "actions.BinPackRewriteFilePlanner")
    planner = of_class(table) if where is None else of_class(table, where)
    planner.init(dict(options))
    lists = iceberg_class(jvm, "relocated.com.google.common.collect.Lists")
    # Each step of an iterator would be two calls.
    planned = lists.newArrayList(planner.plan().groups().iterator())
    groups = []
    for number in range(planned.size()):
        tasks = planned.get(number).fileScanTasks()
        groups.append([tasks.get(each).file() for each in range(tasks.size())])
    return groups


def _only_for(rewritten: set[str], places: Mapping[LakePlace, Sequence[LiveDataFile]]) -> tuple[LakeFile, ...]:
    """Return the delete files that delete rows of no other data files."""
    files: dict[tuple[str, int], LakeFile] = {}
    needed: set[tuple[str, int]] = set()
    for file in (each for live in places.values() for each in live):
        for delete in file.deletes:
            key = delete.location, delete.vector.offset if delete.vector else 0
            files[key] = delete
            if file.location not in rewritten:
                needed.add(key)
    return tuple(delete for key, delete in files.items() if key not in needed)
