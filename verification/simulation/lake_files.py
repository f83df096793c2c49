"""The files of a lake table in one snapshot, and the rows that a reader of Iceberg sees in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, VectorPlace

FILE_BYTES: Final = 1000
WITH_VECTORS: Final = 3
"""The first format version that has deletion vectors, and no new position delete files."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """The content of a file.

    Attributes:
        bucket: The bucket.
        content: What the file holds.
        rows: The rows of a data file as (key, value). The index of a row is its position.
        keys: The keys of an equality delete file.
        positions: What a Puffin file or a position delete file deletes, as data file -> positions.
    """

    bucket: int
    content: FileContent
    rows: tuple[tuple[int, int], ...] = ()
    keys: tuple[int, ...] = ()
    positions: Mapping[str, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A live data file. Equality deletes apply to it if their sequence number is greater."""

    sequence: int
    rows: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Deletes:
    """What a live delete file deletes of one data file: a deletion vector, or a part of a position delete file."""

    file: LakeFile
    positions: frozenset[int]


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The live files of a bucket.

    Attributes:
        data: The data files by location.
        deletes: The deletes by position of each data file. No engine can read a data file with two deletion vectors.
        deleted_keys: The sequence number of the newest equality delete of each key.
    """

    data: Mapping[str, DataFile] = field(default_factory=dict)
    deletes: Mapping[str, tuple[Deletes, ...]] = field(default_factory=dict)
    deleted_keys: Mapping[int, int] = field(default_factory=dict)

    def live_rows(self, location: str) -> list[tuple[int, int]]:
        """Return the rows of a data file that are not deleted, in their order."""
        file = self.data[location]
        deleted = {position for each in self.deletes.get(location, ()) for position in each.positions}
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
        """Return the files without some data files and what is deleted of them."""
        gone = set(locations)
        return replace(
            self,
            data={each: file for each, file in self.data.items() if each not in gone},
            deletes={each: deletes for each, deletes in self.deletes.items() if each not in gone},
        )


@dataclass(frozen=True, slots=True)
class LakeFiles:
    """The live files of a snapshot. Snapshots share the buckets that did not change between them."""

    sequence: int = 0
    buckets: Mapping[int, BucketFiles] = field(default_factory=dict)

    def bucket(self, number: int) -> BucketFiles:
        return self.buckets.get(number, BucketFiles())

    def has_deletes(self, file: LakeFile) -> bool:
        """Return whether a delete file is live. A rewrite of a data file removes its vector, but no other deletes."""
        bucket = self.bucket(file.bucket)
        if file.vector is None and not any(location in bucket.data for location in file.referenced):
            return True
        return any(
            each.file.location == file.location
            for location in file.referenced
            for each in bucket.deletes.get(location, ())
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
            removed: The files of deletes by position that it removes.
            contents: What is in each file.
        """
        sequence = self.sequence + 1
        buckets = dict(self.buckets)
        for number in {file.bucket for file in (*added, *removed)}:
            before = self.bucket(number)
            data, deleted_keys = dict(before.data), dict(before.deleted_keys)
            deletes = dict(before.deletes)
            for file in removed:
                if file.bucket == number:
                    _remove_deletes(deletes, file)
            for file in added:
                if file.bucket != number:
                    continue
                content = contents[file.location]
                if file.content is FileContent.DATA:
                    data[file.location] = DataFile(sequence, content.rows)
                elif file.content is FileContent.EQUALITY_DELETES:
                    deleted_keys |= dict.fromkeys(content.keys, sequence)
                else:
                    for location in file.referenced:
                        deletes[location] = (*deletes.get(location, ()), Deletes(file, content.positions[location]))
            buckets[number] = BucketFiles(data, deletes, deleted_keys)
        return LakeFiles(sequence, buckets)


def write_deletes(
    version: int,
    contents: dict[str, FileRows],
    bucket: int,
    location: str,
    positions: Mapping[str, frozenset[int]],
    replaces: Mapping[str, tuple[LakeFile, ...]] | None = None,
) -> list[LakeFile]:
    """Write deletes by position, and return their files.

    Args:
        version: The format version: deletion vectors in one Puffin file, or with version 2 one position delete file.
        contents: What is in each file.
        bucket: The bucket.
        location: The beginning of the file's location.
        positions: What is deleted, as data file -> positions.
        replaces: The live delete files that the new ones replace, by data file.
    """
    replaces = replaces or {}
    name = f"{location}.puffin" if version >= WITH_VECTORS else f"{location}-deletes.parquet"
    contents[name] = FileRows(bucket, FileContent.POSITION_DELETES, positions=positions)
    if version < WITH_VECTORS:
        old = tuple(file for each in positions for file in replaces.get(each, ()))
        count = sum(map(len, positions.values()))
        return [_delete_file(bucket, name, tuple(positions), count, None, old)]
    return [
        _delete_file(bucket, name, (each,), len(deleted), VectorPlace(number, 1), replaces.get(each, ()))
        for number, (each, deleted) in enumerate(positions.items())
    ]


def _delete_file(
    bucket: int,
    location: str,
    referenced: tuple[str, ...],
    count: int,
    vector: VectorPlace | None,
    replaces: tuple[LakeFile, ...],
) -> LakeFile:
    return LakeFile(
        FileContent.POSITION_DELETES,
        bucket,
        location,
        FILE_BYTES,
        FileMetrics(count),
        referenced=referenced,
        vector=vector,
        replaces=replaces,
    )


def _remove_deletes(deletes: dict[str, tuple[Deletes, ...]], file: LakeFile) -> None:
    for location in file.referenced:
        left = tuple(each for each in deletes.get(location, ()) if each.file.location != file.location)
        if left:
            deletes[location] = left
        else:
            deletes.pop(location, None)
