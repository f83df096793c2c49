"""Compactions of lake tables: the rows that are left move to other files and positions, as rewrites of Iceberg do."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from fluss_tiering.lake.protocol import FileContent, FileMetrics, LakeFile, VectorPlace
from simulation.lake_files import BucketFiles, DataFile, FileRows, LakeFiles, Vector

_FILE_BYTES: Final = 1000


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A compaction that was planned.

    Attributes:
        bucket: The bucket.
        replaced: The data files that vanish, with the vectors that they had when they were read.
        location: The location of the new data file.
        sequence: The sequence number of the new data file, which is that of the snapshot that was read. So equality
            deletes that come meanwhile apply to its rows.
        rows: The rows of the new data file.
        vectors: Whether the deletion vectors are rewritten, instead of the data files.
    """

    bucket: int
    replaced: Mapping[str, tuple[Vector, ...]]
    location: str
    sequence: int
    rows: tuple[tuple[int, int], ...] = ()
    vectors: bool = False

    def landed(self, files: LakeFiles, contents: dict[str, FileRows]) -> LakeFiles | None:
        """Return the files after the compaction; None if somebody else has changed what it replaces."""
        present = files.bucket(self.bucket)
        if any(
            location not in present.data or present.vectors.get(location, ()) != vectors
            for location, vectors in self.replaced.items()
        ):
            return None
        if self.vectors:
            return files.put(self.bucket, self._with_vectors(present, contents))
        after = present.without(self.replaced)
        if self.rows:
            contents[self.location] = FileRows(self.bucket, FileContent.DATA, self.rows)
            after = replace(after, data={**after.data, self.location: DataFile(self.sequence, self.rows)})
        return files.put(self.bucket, after)

    def _with_vectors(self, present: BucketFiles, contents: dict[str, FileRows]) -> BucketFiles:
        positions = {each: frozenset().union(*(v.positions for v in found)) for each, found in self.replaced.items()}
        contents[self.location] = FileRows(self.bucket, FileContent.POSITION_DELETES, vectors=positions)
        moved = {
            location: (Vector(vector_file(self.bucket, self.location, location, deleted), deleted),)
            for location, deleted in positions.items()
        }
        return replace(present, vectors={**present.vectors, **moved})


def plan_rewrite(files: LakeFiles, name: str, chance: random.Random, new_id: Callable[[], int]) -> Rewrite | None:
    """Return a compaction of some files of a bucket; None if the table has no files."""
    buckets = [number for number, bucket in sorted(files.buckets.items()) if bucket.data]
    if not buckets:
        return None
    number = chance.choice(buckets)
    bucket = files.bucket(number)
    if bucket.vectors and chance.random() < 0.15:
        location = f"memory://{name}/{number}/rewritten-{new_id()}.puffin"
        replaced = {each: vectors for each, vectors in bucket.vectors.items() if each in bucket.data}
        return Rewrite(number, replaced, location, files.sequence, vectors=True)
    locations = list(bucket.data)
    if chance.random() < 0.5:
        locations = chance.sample(locations, chance.randrange(1, len(locations) + 1))
    rows = [row for location in locations for row in bucket.live_rows(location)]
    chance.shuffle(rows)
    replaced = {location: bucket.vectors.get(location, ()) for location in locations}
    return Rewrite(number, replaced, f"memory://{name}/{number}/compacted-{new_id()}", files.sequence, tuple(rows))


def vector_file(bucket: int, puffin: str, data_file: str, positions: frozenset[int], *replaces: LakeFile) -> LakeFile:
    """Return the description of a deletion vector in a Puffin file."""
    return LakeFile(
        FileContent.POSITION_DELETES,
        bucket,
        puffin,
        _FILE_BYTES,
        FileMetrics(len(positions)),
        referenced=(data_file,),
        vector=VectorPlace(0, 1),
        replaces=replaces,
    )
