"""The driver's side of a rewrite by our own tasks: which files of which places it replaces, and its commit.

Iceberg's planner chooses the files, as for a rewrite by Spark. Spark has to rewrite what our tasks do not read: files
with equality deletes, of another format or partition spec, and tables with columns that only the lake table has.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.deletes import live_data_files
from fluss_tiering.lake.iceberg.file_counts import file_counts
from fluss_tiering.lake.iceberg.java import jvm_of
from fluss_tiering.lake.iceberg.maintenance.file_rows import Lineage
from fluss_tiering.lake.iceberg.maintenance.place_rewriter import PlaceRewriter, PlaceWork
from fluss_tiering.lake.iceberg.maintenance.rewrites import (
    PartitionValues,
    Rewritten,
    in_partitions,
    planned_by_iceberg,
)
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeFile, LakePlace, LiveDataFile

_UNREAD: Final = (".avro", ".orc")
"""What the names of delete files end with that our tasks do not read."""
_WITH_LINEAGE: Final = 3
"""The first format version whose rows have ids, which a rewrite keeps."""


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


def can_rewrite(lake: IcebergTable) -> bool:
    """Return whether our tasks may be able to rewrite all data files of a lake table, which has a snapshot.

    A plan looks at the files themselves and may find one that they do not read.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    return lake.keeps_every_column(lake.file_writer()) and not file_counts(lake.java_table).equality_deletes


def planned_rewrite(
    spark: SparkSession,
    lake: IcebergTable,
    partitions: Sequence[PartitionValues] | None,
    options: Mapping[str, str],
    max_bytes: int | None = None,
) -> PlannedRewrite | None:
    """Plan a rewrite of the data files of some partitions; None if Spark has to rewrite them.

    Errors are those of the JVM.

    Args:
        spark: The session.
        lake: The lake table, which has a snapshot.
        partitions: The partitions; None for all of them.
        options: The options of Iceberg's planner.
        max_bytes: The largest size of the files that are replaced; None for any size.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    table = lake.java_table
    writer = lake.file_writer()
    if not lake.keeps_every_column(writer):
        return None
    where = None if partitions is None else in_partitions(spark, table, partitions)
    groups = _groups(spark, table, where, options, max_bytes)
    places: dict[LakePlace, list[LiveDataFile]] = defaultdict(list)
    listed = list(live_data_files(jvm_of(spark), table, lake.base(), where))
    for file in listed:
        place = lake.place_of(file)
        if place is not None:
            places[place].append(file)
    of_places = _by_place(groups, places)
    old = [file for group in groups for file in group]
    lineage = _lineage(table, old)
    if of_places is None or lineage is None:
        return None
    rewrite = uuid.uuid4()
    work = []
    for number, ((bucket, values), indexes) in enumerate(of_places.items()):
        live = places[bucket, values]
        of_files = {live[each].location: lineage[live[each].location] for part in indexes for each in part if lineage}
        # DuckDB compares paths without case, so that partitions whose values differ only by case need other names.
        location = lake.piece_location(bucket, f"compacted-{rewrite}-{number:05d}", values)
        work.append(PlaceWork(bucket, values, location, tuple(live), tuple(indexes), of_files))
    return PlannedRewrite(
        PlaceRewriter(writer),
        tuple(work),
        tuple(old),
        _only_for({str(file.location()) for file in old}, listed),
        sum(int(file.fileSizeInBytes()) for file in old),
    )


def _by_place(
    groups: Sequence[Sequence[JavaObject]], places: Mapping[LakePlace, Sequence[LiveDataFile]]
) -> dict[LakePlace, list[tuple[int, ...]]] | None:
    """Return the groups of each place as indexes of its files; None if our tasks do not read one of these files."""
    known = {
        file.location: (place, number)
        for place, files in places.items()
        for number, file in enumerate(files)
        if not file.has_equality_deletes and not any(each.location.endswith(_UNREAD) for each in file.deletes)
    }
    found: dict[LakePlace, list[tuple[int, ...]]] = defaultdict(list)
    for group in groups:
        locations = [str(file.location()) for file in group]
        if not all(each in known for each in locations):
            return None
        # All files of a group are in one partition.
        place, _ = known[locations[0]]
        found[place].append(tuple(known[each][1] for each in locations))
    return found


def _lineage(table: JavaObject, files: Sequence[JavaObject]) -> dict[str, Lineage] | None:
    """Return the lineage of files by location, none if the table has none; None if it has no ids for a file yet."""
    if int(table.operations().current().formatVersion()) < _WITH_LINEAGE:
        return {}
    found = {}
    for file in files:
        first = file.firstRowId()
        if first is None:
            # The table has just been upgraded. Its next commit gives ids to all rows.
            return None
        found[str(file.location())] = Lineage(int(first), int(file.dataSequenceNumber()))
    return found


def _groups(
    spark: SparkSession, table: JavaObject, where: JavaObject | None, options: Mapping[str, str], max_bytes: int | None
) -> list[list[JavaObject]]:
    """Return the data files of each group that Iceberg's planner would rewrite together, up to a size in all."""
    groups = planned_by_iceberg(spark, table, where, options)
    # Each file is a call into the JVM, so only those are asked for that are rewritten.
    chosen = groups if max_bytes is None else _within(groups, max_bytes)
    tasks_of = [group.fileScanTasks() for group in chosen]
    return [[tasks.get(number).file() for number in range(tasks.size())] for tasks in tasks_of]


def _within(groups: Sequence[JavaObject], max_bytes: int) -> list[JavaObject]:
    """Return those of Iceberg's groups whose files together have at most this size. The first ones come first."""
    found = []
    for group in groups:
        size = int(group.inputFilesSizeInBytes())
        if size <= max_bytes:
            max_bytes -= size
            found.append(group)
    return found


def _only_for(rewritten: set[str], listed: Iterable[LiveDataFile]) -> tuple[LakeFile, ...]:
    """Return the delete files that delete rows of no other data files, among them files that our tasks do not read."""
    files: dict[tuple[str, int], LakeFile] = {}
    needed: set[tuple[str, int]] = set()
    for file in listed:
        for delete in file.deletes:
            key = delete.location, delete.vector.offset if delete.vector else 0
            files[key] = delete
            if file.location not in rewritten:
                needed.add(key)
    return tuple(delete for key, delete in files.items() if key not in needed)
