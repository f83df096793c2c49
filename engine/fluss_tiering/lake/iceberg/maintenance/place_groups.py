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

from fluss_tiering.lake.files import LakeFile, LakePlace, LiveDataFile
from fluss_tiering.lake.iceberg.deletes import live_data_files
from fluss_tiering.lake.iceberg.file_counts import file_counts
from fluss_tiering.lake.iceberg.library import JavaPlan, ask, call
from fluss_tiering.lake.iceberg.maintenance.file_rows import Lineage
from fluss_tiering.lake.iceberg.maintenance.place_rewriter import PlaceRewriter, PlaceWork
from fluss_tiering.lake.iceberg.maintenance.rewrites import PartitionValues, Rewritten, largest
from fluss_tiering.lake.iceberg.table import IcebergTable

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
        plan: The plan in the JVM, which has the data files that are replaced.
        deletes: The delete files that only delete rows of these.
        files: The number of the old data files.
        bytes: Their size.
    """

    rewriter: PlaceRewriter
    places: tuple[PlaceWork, ...]
    plan: JavaPlan = field(repr=False)
    deletes: tuple[LakeFile, ...] = field(repr=False)
    files: int
    bytes: int

    def commit(self, lake: IcebergTable, new: Sequence[LakeFile]) -> Rewritten:
        """Commit the new files. Errors are those of `IcebergTable.replace_files`."""
        if self.files:
            lake.replace_files(self.plan, self.deletes, new)
        return Rewritten(self.files, self.bytes, len(new), len(self.deletes))


@dataclass(frozen=True, slots=True)
class _OldFile:
    """A data file that is replaced."""

    location: str
    bytes: int
    first_row_id: int | None
    sequence_number: int


def can_rewrite(lake: IcebergTable) -> bool:
    """Return whether our tasks may be able to rewrite all data files of a lake table, which has a snapshot.

    A plan looks at the files themselves and may find one that they do not read.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    return lake.keeps_every_column(lake.file_writer()) and not file_counts(lake.java_table).equality_deletes


def planned_rewrite(
    lake: IcebergTable,
    partitions: Sequence[PartitionValues] | None,
    options: Mapping[str, str],
    max_bytes: int | None = None,
) -> PlannedRewrite | None:
    """Plan a rewrite of the data files of some partitions; None if Spark has to rewrite them.

    Errors are those of the JVM.

    Args:
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
    asked = {"partitions": partitions, "options": {**largest(table), **options}, "maxBytes": max_bytes}
    plan = call(table, "planRewrite", asked)
    groups = [[_OldFile(*each) for each in group] for group in ask(plan, "files")]
    places: dict[LakePlace, list[LiveDataFile]] = defaultdict(list)
    listed = list(live_data_files(table, lake.base(), partitions=partitions))
    for file in listed:
        place = lake.placement.place_of(file)
        if place is not None:
            places[place].append(file)
    of_places = _by_place(groups, places)
    old = [file for group in groups for file in group]
    lineage = _lineage(lake, old)
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
        plan,
        _only_for({file.location for file in old}, listed),
        len(old),
        sum(file.bytes for file in old),
    )


def _by_place(
    groups: Sequence[Sequence[_OldFile]], places: Mapping[LakePlace, Sequence[LiveDataFile]]
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
        # Rows of a log without offsets stay in the order of its rounds.
        locations = [file.location for file in sorted(group, key=lambda each: (each.sequence_number, each.location))]
        if not all(each in known for each in locations):
            return None
        # All files of a group are in one partition.
        place, _ = known[locations[0]]
        found[place].append(tuple(known[each][1] for each in locations))
    return found


def _lineage(lake: IcebergTable, files: Sequence[_OldFile]) -> dict[str, Lineage] | None:
    """Return the lineage of files by location, none if the table has none; None if it has no ids for a file yet."""
    if lake.format_version < _WITH_LINEAGE:
        return {}
    found = {}
    for file in files:
        if file.first_row_id is None:
            # The table has just been upgraded. Its next commit gives ids to all rows.
            return None
        found[file.location] = Lineage(file.first_row_id, file.sequence_number)
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
