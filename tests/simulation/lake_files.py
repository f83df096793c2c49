"""The files of a lake table in one snapshot, and the rows that a reader of Iceberg sees in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fluss_tiering.lake.protocol import FileContent, LakeFile


@dataclass(frozen=True, slots=True)
class FileRows:
    """The content of a file.

    Attributes:
        bucket: The bucket.
        content: What the file holds.
        rows: The rows of a data file as (key, value). The index of a row is its position.
        keys: The keys of an equality delete file.
        vectors: The deletion vectors of a Puffin file, as data file -> positions.
    """

    bucket: int
    content: FileContent
    rows: tuple[tuple[int, int], ...] = ()
    keys: tuple[int, ...] = ()
    vectors: Mapping[str, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A live data file. Equality deletes apply to it if their sequence number is greater."""

    sequence: int
    rows: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Vector:
    """A live deletion vector: its file, and the positions that it deletes."""

    file: LakeFile
    positions: frozenset[int]


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The live files of a bucket.

    Attributes:
        data: The data files by location.
        vectors: The deletion vectors of each data file. No engine can read a data file that has more than one.
        deleted_keys: The sequence number of the newest equality delete of each key.
    """

    data: Mapping[str, DataFile] = field(default_factory=dict)
    vectors: Mapping[str, tuple[Vector, ...]] = field(default_factory=dict)
    deleted_keys: Mapping[int, int] = field(default_factory=dict)

    def live_rows(self, location: str) -> list[tuple[int, int]]:
        """Return the rows of a data file that are not deleted, in their order."""
        file = self.data[location]
        deleted = {position for vector in self.vectors.get(location, ()) for position in vector.positions}
        return [
            (key, value)
            for position, (key, value) in enumerate(file.rows)
            if position not in deleted and file.sequence >= self.deleted_keys.get(key, 0)
        ]

    def rows(self) -> dict[int, list[int]]:
        """Return the values of each key. More than one is a doubled row."""
        found: dict[int, list[int]] = {}
        for location in self.data:
            for key, value in self.live_rows(location):
                found.setdefault(key, []).append(value)
        return found

    def without(self, locations: Iterable[str]) -> BucketFiles:
        """Return the files without some data files and their vectors."""
        gone = set(locations)
        return replace(
            self,
            data={each: file for each, file in self.data.items() if each not in gone},
            vectors={each: vectors for each, vectors in self.vectors.items() if each not in gone},
        )


@dataclass(frozen=True, slots=True)
class LakeFiles:
    """The live files of a snapshot. Snapshots share the buckets that did not change between them."""

    sequence: int = 0
    buckets: Mapping[int, BucketFiles] = field(default_factory=dict)

    def bucket(self, number: int) -> BucketFiles:
        return self.buckets.get(number, BucketFiles())

    def has_vector(self, file: LakeFile) -> bool:
        """Return whether a deletion vector is live."""
        return any(
            vector.file.location == file.location
            for location in file.referenced
            for vector in self.bucket(file.bucket).vectors.get(location, ())
        )

    def put(self, number: int, files: BucketFiles) -> LakeFiles:
        """Return the files of the next snapshot, in which one bucket has other files."""
        return LakeFiles(self.sequence + 1, {**self.buckets, number: files})

    def after(
        self, added: Sequence[LakeFile], removed: Sequence[LakeFile], contents: Mapping[str, FileRows]
    ) -> LakeFiles:
        """Return the files after a row delta, whose files all have the next sequence number.

        Args:
            added: The data files and delete files that it adds.
            removed: The deletion vectors that it removes.
            contents: What is in each file.
        """
        sequence = self.sequence + 1
        buckets = dict(self.buckets)
        for number in {file.bucket for file in (*added, *removed)}:
            before = self.bucket(number)
            data, deleted_keys = dict(before.data), dict(before.deleted_keys)
            vectors = dict(before.vectors)
            for file in removed:
                if file.bucket == number:
                    _remove_vector(vectors, file)
            for file in added:
                if file.bucket != number:
                    continue
                content = contents[file.location]
                if file.content is FileContent.DATA:
                    data[file.location] = DataFile(sequence, content.rows)
                elif file.content is FileContent.EQUALITY_DELETES:
                    deleted_keys |= dict.fromkeys(content.keys, sequence)
                else:
                    (location,) = file.referenced
                    vectors[location] = (*vectors.get(location, ()), Vector(file, content.vectors[location]))
            buckets[number] = BucketFiles(data, vectors, deleted_keys)
        return LakeFiles(sequence, buckets)


def _remove_vector(vectors: dict[str, tuple[Vector, ...]], file: LakeFile) -> None:
    (location,) = file.referenced
    left = tuple(each for each in vectors.get(location, ()) if each.file.location != file.location)
    if left:
        vectors[location] = left
    else:
        vectors.pop(location, None)
