"""Compactions of lake tables: the rows that are left move to other files and positions, as rewrites of Iceberg do."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fluss_tiering.lake.files import FileContent
from simulation.lake_files import WITH_VECTORS, BucketFiles, DataFile, Deletes, FileRows, LakeFiles, write_deletes


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A compaction that was planned.

    Attributes:
        bucket: The bucket.
        replaced: The data files that vanish, with the deletes by position that they had when they were read.
        location: The location of the new data file.
        sequence: The sequence number of the new data file, which is that of the snapshot that was read. So equality
            deletes that come meanwhile apply to its rows.
        rows: The rows of the new data file.
        version: The format version of the lake table.
        only_deletes: Whether the deletes by position are rewritten, instead of the data files.
    """

    bucket: int
    replaced: Mapping[str, tuple[Deletes, ...]]
    location: str
    sequence: int
    version: int
    rows: tuple[tuple[int, int], ...] = ()
    only_deletes: bool = False

    @property
    def removed(self) -> frozenset[str]:
        """The data files that vanish."""
        return frozenset() if self.only_deletes else frozenset(self.replaced)

    @property
    def vectors(self) -> frozenset[str]:
        """The data files that get another deletion vector."""
        return frozenset(self.replaced) if self.only_deletes and self.version >= WITH_VECTORS else frozenset()

    def landed(self, files: LakeFiles, contents: dict[str, FileRows]) -> LakeFiles | None:
        """Return the files after the compaction; None if somebody else has changed what it replaces."""
        present = files.bucket(self.bucket)
        if any(
            location not in present.data or present.deletes.get(location, ()) != deletes
            for location, deletes in self.replaced.items()
        ):
            return None
        if self.only_deletes:
            return files.put(self.bucket, self._with_deletes(present, contents))
        after = present.without(self.replaced)
        if self.rows:
            contents[self.location] = FileRows(self.bucket, FileContent.DATA, self.rows)
            after = replace(after, data={**after.data, self.location: DataFile(self.sequence, self.rows)})
        return files.put(self.bucket, after)

    def _with_deletes(self, present: BucketFiles, contents: dict[str, FileRows]) -> BucketFiles:
        positions = {
            location: frozenset(position for each in deletes for position in each.positions)
            for location, deletes in self.replaced.items()
        }
        written = write_deletes(self.version, contents, self.bucket, self.location, positions)
        moved = {each: (Deletes(file, positions[each]),) for file in written for each in file.referenced}
        return replace(present, deletes={**present.deletes, **moved})


def plan_rewrite(
    files: LakeFiles, name: str, version: int, chance: random.Random, new_id: Callable[[], int]
) -> Rewrite | None:
    """Return a compaction of some files of a bucket; None if the table has no files."""
    buckets = [number for number, bucket in sorted(files.buckets.items()) if bucket.data]
    if not buckets:
        return None
    number = chance.choice(buckets)
    bucket = files.bucket(number)
    folder = f"memory://{name}/{number}"
    if bucket.deletes and chance.random() < 0.15:
        replaced = {each: deletes for each, deletes in bucket.deletes.items() if each in bucket.data}
        return Rewrite(number, replaced, f"{folder}/rewritten-{new_id()}", files.sequence, version, only_deletes=True)
    locations = list(bucket.data)
    if chance.random() < 0.5:
        locations = chance.sample(locations, chance.randrange(1, len(locations) + 1))
    rows = [row for location in locations for row in bucket.live_rows(location)]
    chance.shuffle(rows)
    replaced = {location: bucket.deletes.get(location, ()) for location in locations}
    return Rewrite(number, replaced, f"{folder}/compacted-{new_id()}", files.sequence, version, tuple(rows))
