"""What executors do for pieces that delete rows by position, as `lake.iceberg.by_position` does it with real files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fluss_tiering.lake.files import LakeFile, LiveDataFile, NotedPlace, RebasedPlace
from simulation.key_index import ModelKeyIndexes, Position, Rows, Run, SimPlaceIndex, positions_of, run_of
from simulation.lake import ModelLake, PositionWriter
from simulation.lake_files import WITH_VECTORS, write_deletes

_FEW_DATA_FILES: Final = 2
"""Up to this many touched data files have a position delete file each. With real files it is more."""
_FEW_POSITIONS: Final = 3
"""More deleted rows of a data file have a file of their own. With real files it is more."""
_MOST_OWN_FILES: Final = 3
"""A data file has at most so many delete files of its own. With real files it is one more."""


@dataclass(frozen=True, slots=True)
class NotedKeys:
    """What a piece notes in a place that has several: its rows, and the keys whose earlier rows are deleted."""

    rows: Run
    deleted: tuple[int, ...]


class FoundRows:
    """Collects rows, and writes deletes of those that are not deleted yet."""

    def __init__(self, lake: ModelLake, writer: PositionWriter, live: Sequence[LiveDataFile]) -> None:
        self._lake = lake
        self._version = writer.format_version
        self._deletes = {file.location: file.deletes for file in live}
        self._rows: dict[str, set[int]] = {}

    def add(self, rows: Iterable[Position]) -> None:
        for location, position in rows:
            self._rows.setdefault(location, set()).add(position)

    def write(self, bucket: int, location: str) -> list[LakeFile]:
        """Write the deletes, and return their files.

        They also hold what is deleted already, and replace the files that have it. With the format version 2, data
        files with few deletes share a file, if there are many, and large files stay beside the new ones.
        """
        new: dict[str, frozenset[int]] = {}
        for data_file, rows in sorted(self._rows.items()):
            if left := rows - self.present(data_file, self._deletes.get(data_file, ())):
                new[data_file] = frozenset(left)
        if not new:
            return []
        contents = self._lake.files
        own = {each: tuple(f for f in self._deletes.get(each, ()) if len(f.referenced) == 1) for each in new}
        if self._version >= WITH_VECTORS:
            merged = {each: rows | self.present(each, own[each]) for each, rows in new.items()}
            return write_deletes(self._version, contents, bucket, location, merged, own)
        taken = {each: self._taken_in(each, deleted, own[each]) for each, deleted in new.items()}
        merged = {each: positions for each, (positions, _) in taken.items()}
        replaced = {each: files for each, (_, files) in taken.items()}
        shared = {f.location: f for each in new for f in self._deletes.get(each, ()) if len(f.referenced) != 1}
        alone = [
            each
            for each, rows in merged.items()
            if len(rows) > _FEW_POSITIONS or (len(new) <= _FEW_DATA_FILES and not shared)
        ]
        others = {
            each: self.present(each, (f for f in files if len(f.referenced) != 1))
            for each, files in self._deletes.items()
            if each not in new and any(f.location in shared for f in files)
        }
        parts = [{each: merged[each]} for each in alone]
        if together := {each: rows for each, rows in {**merged, **others}.items() if each not in alone}:
            parts.append(together)
        files = [
            file
            for number, part in enumerate(parts)
            for file in write_deletes(self._version, contents, bucket, f"{location}-{number}", part, replaced)
        ]
        files[-1] = replace(files[-1], replaces=(*files[-1].replaces, *shared.values()))
        return files

    def _taken_in(
        self, data_file: str, rows: frozenset[int], own: Sequence[LakeFile]
    ) -> tuple[frozenset[int], tuple[LakeFile, ...]]:
        """Return what a new delete file has of a data file, and the data file's own delete files that it takes in."""
        shared = (f for f in self._deletes.get(data_file, ()) if len(f.referenced) != 1)
        rows |= self.present(data_file, shared)
        kept = sorted(own, key=lambda file: len(self.present(data_file, [file])), reverse=True)
        taken: list[LakeFile] = []
        while kept:
            smallest = self.present(data_file, kept[-1:])
            if len(kept) < _MOST_OWN_FILES and len(smallest) > max(len(rows), _FEW_POSITIONS):
                break
            rows |= smallest
            taken.append(kept.pop())
        return rows, tuple(taken)

    def present(self, location: str, files: Iterable[LakeFile]) -> frozenset[int]:
        """Return the positions that live delete files delete of a data file."""
        return frozenset(p for file in files for p in self._lake.files[file.location].positions[location])


class PositionDeletes:
    """The work of executors that delete by position."""

    def __init__(self, lake: ModelLake, indexes: ModelKeyIndexes) -> None:
        self._lake = lake
        self._indexes = indexes

    def of_piece(
        self,
        writer: PositionWriter,
        live: Sequence[LiveDataFile],
        *,
        bucket: int,
        location: str,
        data: Sequence[tuple[str, Rows]],
        keys: Iterable[int],
    ) -> list[LakeFile]:
        """Write the deletes of a piece that is alone in its place.

        Args:
            writer: The writer of the round.
            live: The data files that the base has of the place.
            bucket: The bucket.
            location: The beginning of the locations of its files.
            data: The data files of the piece, and their rows.
            keys: The keys whose earlier rows are deleted.
        """
        index = SimPlaceIndex(self._lake, self._indexes, (writer.table, bucket), live)
        found = FoundRows(self._lake, writer, live)
        found.add(index.find(keys))
        for data_file, rows in data:
            index.add(data_file, rows)
        index.save(writer.base)
        return found.write(bucket, location)

    def of_place(self, writer: PositionWriter, place: NotedPlace, attempt: int) -> list[LakeFile]:
        """Write the deletes of all pieces of a place whose keys were noted."""
        index = SimPlaceIndex(self._lake, self._indexes, (writer.table, place.bucket), place.live)
        found = FoundRows(self._lake, writer, place.live)
        pieces: Any = place.pieces
        earlier: list[Run] = []
        for of_ordinal in pieces:
            for noted in of_ordinal:
                found.add(index.find(noted.deleted))
                found.add(positions_of(self.earlier_rows(earlier), noted.deleted))
            earlier += [noted.rows for noted in of_ordinal]
        index.adopt(earlier)
        index.save(writer.base)
        return found.write(place.bucket, f"{place.location}-{attempt}")

    def rebased(self, writer: PositionWriter, place: RebasedPlace, attempt: int) -> list[LakeFile]:
        """Write deletes anew for a newer base: see `write_rebased_deletes`."""
        index = SimPlaceIndex(self._lake, self._indexes, (writer.table, place.bucket), place.live)
        found = FoundRows(self._lake, writer, place.live)
        there = {*(file.location for file in place.live), *place.added}
        before = {(file.location, row) for file in place.before for row in found.present(file.location, file.deletes)}
        for file in place.deletes:
            for location in file.referenced:
                rows = [(location, row) for row in found.present(location, [file]) if (location, row) not in before]
                if location in there:
                    found.add(rows)
                else:
                    found.add(index.find(self._lake.files[location].rows[row][0] for _, row in rows))
        index.keep(place.added)
        index.save(writer.base)
        return found.write(place.bucket, f"{place.location}-{attempt}")

    def earlier_rows(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Return the rows that the earlier pieces of a place have written in this round."""
        return runs


def noted_keys(data: Sequence[tuple[str, Rows]], deleted: Iterable[int]) -> NotedKeys:
    """Return what a piece notes of the data files that it wrote, and of its deletes."""
    runs = [run_of(location, rows) for location, rows in data]
    return NotedKeys({location: keys for run in runs for location, keys in run.items()}, tuple(deleted))
