"""What executors do for pieces that delete rows by position, as `lake.iceberg.by_position` does it with real files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_tiering.lake.protocol import FileContent, LakeFile, LiveDataFile, NotedPlace
from simulation.compaction import vector_file
from simulation.key_index import ModelKeyIndexes, Position, Rows, Run, SimPlaceIndex, positions_of, run_of
from simulation.lake import ModelLake, PositionWriter
from simulation.lake_files import FileRows


@dataclass(frozen=True, slots=True)
class NotedKeys:
    """What a piece notes in a place that has several: its rows, and the keys whose earlier rows are deleted."""

    rows: Run
    deleted: tuple[int, ...]


class FoundRows:
    """Collects rows, and writes a deletion vector for each data file with new deletes."""

    def __init__(self, lake: ModelLake, live: Sequence[LiveDataFile]) -> None:
        self._lake = lake
        self._deletes = {file.location: file.deletes for file in live}
        self._rows: dict[str, set[int]] = {}

    def add(self, rows: Iterable[Position]) -> None:
        for location, position in rows:
            self._rows.setdefault(location, set()).add(position)

    def write(self, bucket: int, puffin: str) -> list[LakeFile]:
        """Write the vectors, which also hold what is deleted already, and return one file for each."""
        vectors: dict[str, frozenset[int]] = {}
        for location, rows in sorted(self._rows.items()):
            present = self.present(location)
            if not rows <= present:
                vectors[location] = present | rows
        if not vectors:
            return []
        self._lake.files[puffin] = FileRows(bucket, FileContent.POSITION_DELETES, vectors=vectors)
        return [
            vector_file(bucket, puffin, location, positions, *self._deletes.get(location, ()))
            for location, positions in vectors.items()
        ]

    def present(self, location: str) -> frozenset[int]:
        """Return the positions that the live vector of a data file deletes."""
        files = self._deletes.get(location, ())
        return frozenset().union(*(self._lake.files[file.location].vectors[location] for file in files))


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
        found = FoundRows(self._lake, live)
        found.add(index.find(keys))
        for data_file, rows in data:
            index.add(data_file, rows)
        index.save(writer.base)
        return found.write(bucket, f"{location}.puffin")

    def of_place(self, writer: PositionWriter, place: NotedPlace, attempt: int) -> list[LakeFile]:
        """Write the deletes of all pieces of a place whose keys were noted."""
        index = SimPlaceIndex(self._lake, self._indexes, (writer.table, place.bucket), place.live)
        found = FoundRows(self._lake, place.live)
        pieces: Any = place.pieces
        earlier: list[Run] = []
        for of_ordinal in pieces:
            for noted in of_ordinal:
                found.add(index.find(noted.deleted))
                found.add(positions_of(self.earlier_rows(earlier), noted.deleted))
            earlier += [noted.rows for noted in of_ordinal]
        index.adopt(earlier)
        index.save(writer.base)
        return found.write(place.bucket, f"{place.location}-{attempt}.puffin")

    def earlier_rows(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Return the rows that the earlier pieces of a place have written in this round."""
        return runs


def noted_keys(data: Sequence[tuple[str, Rows]], deleted: Iterable[int]) -> NotedKeys:
    """Return what a piece notes of the data files that it wrote, and of its deletes."""
    runs = [run_of(location, rows) for location, rows in data]
    return NotedKeys({location: keys for run in runs for location, keys in run.items()}, tuple(deleted))
