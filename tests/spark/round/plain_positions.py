"""Deletes by position in the lake of `plain_lake`: JSON files that say which rows of which data files are deleted.

A piece that is alone in its place finds the rows by itself. Of several pieces in a place, each only notes its keys, and
the deletes of all of them are written later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, LiveDataFile, NotedPlace, RebasedPlace
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.lake.protocol import PieceWriter

Key = tuple[Any, ...]
Positions = dict[str, list[int]]


@dataclass(frozen=True)
class PlainPositionWriter:
    """A `LakeFileWriter`, which writes rows as `ParquetFileWriter` does.

    Attributes:
        rows: Writes the rows.
        keys: The names of the columns of the key.
    """

    rows: ParquetFileWriter
    keys: tuple[str, ...]

    def open_piece(
        self,
        bucket: int,
        location: str,
        attempt: int,
        partition_values: tuple[str, ...] = (),
        live: Sequence[LiveDataFile] | None = None,
    ) -> PieceWriter:
        assert live is not None, "rows of this table are deleted by position"
        rows = self.rows.open_piece(bucket, location, attempt, partition_values)
        return PlainPositionPiece(self, rows, f"{location}-{attempt}", (bucket, partition_values), tuple(live))

    def open_noting_piece(
        self, bucket: int, location: str, attempt: int, partition_values: tuple[str, ...] = ()
    ) -> PlainNotingPiece:
        return PlainNotingPiece(self.rows.open_piece(bucket, location, attempt, partition_values))

    def write_deletes(self, place: NotedPlace, attempt: int) -> Sequence[LakeFile]:
        before = [file.location for file in place.live]
        found: Positions = {}
        for pieces in place.pieces:
            for noted in pieces:
                for location, rows in self.positions(before, _noted(noted)[1]).items():
                    found.setdefault(location, []).extend(rows)
            before += [location for noted in pieces for location in _noted(noted)[0]]
        return deletes_file(f"{place.location}-{attempt}", (place.bucket, place.partition_values), found)

    def rebase_deletes(self, place: RebasedPlace, attempt: int) -> Sequence[LakeFile]:
        there = {*(file.location for file in place.live), *place.added}
        found: Positions = {}
        for location, row in sorted(row for file in place.deletes for row in deleted_rows(file)):
            if location in there:
                found.setdefault(location, []).append(row)
                continue
            taken = pq.read_table(urlparse(location).path, columns=list(self.keys)).slice(row, 1).to_pylist()
            for moved, rows in self.positions(
                (file.location for file in place.live), {tuple(key.values()) for key in taken}
            ).items():
                found.setdefault(moved, []).extend(rows)
        return deletes_file(f"{place.location}-{attempt}", (place.bucket, place.partition_values), found)

    def positions(self, locations: Iterable[str], keys: set[Key]) -> Positions:
        """Return where rows with these keys are in data files."""
        found: Positions = {}
        for location in locations:
            columns = pq.read_table(urlparse(location).path, columns=list(self.keys)).to_pylist()
            rows = [number for number, row in enumerate(columns) if tuple(row[key] for key in self.keys) in keys]
            if rows:
                found[location] = rows
        return found


def deletes_file(begin: str, place: tuple[int, tuple[str, ...]], found: Positions) -> list[LakeFile]:
    """Write a file of deletes, if there are some."""
    if not found:
        return []
    location = f"{begin}-deletes.json"
    path = Path(urlparse(location).path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
    bucket, values = place
    metrics = FileMetrics(sum(map(len, found.values())))
    size = path.stat().st_size
    return [LakeFile(FileContent.POSITION_DELETES, bucket, location, size, metrics, values, referenced=tuple(found))]


def deleted_rows(file: LakeFile) -> set[tuple[str, int]]:
    """Return which rows a file of deletes deletes, each as its data file and its position there."""
    found: Positions = json.loads(Path(urlparse(file.location).path).read_text())
    return {(location, row) for location, rows in found.items() for row in rows}


class PlainNotingPiece:
    """A `NotingPieceWriter`: it notes keys by being asked for them."""

    def __init__(self, rows: PieceWriter) -> None:
        self._rows = rows
        self._deleted: set[Key] = set()
        self._locations: list[str] = []

    def write(self, rows: pa.RecordBatch, offsets: np.ndarray, timestamps_ms: np.ndarray) -> None:
        self._rows.write(rows, offsets, timestamps_ms)

    def delete(self, keys: pa.RecordBatch) -> None:
        self._deleted |= {tuple(row.values()) for row in keys.to_pylist()}

    def close(self) -> Sequence[LakeFile]:
        files = self._rows.close()
        self._locations = [file.location for file in files]
        return files

    def abort(self) -> None:
        self._rows.abort()

    def keys(self) -> Any:
        return self._locations, self._deleted


class PlainPositionPiece(PlainNotingPiece):
    """A `PieceWriter` that deletes rows of the data files that the lake has of its place."""

    def __init__(
        self,
        writer: PlainPositionWriter,
        rows: PieceWriter,
        begin: str,
        place: tuple[int, tuple[str, ...]],
        live: Sequence[LiveDataFile],
    ) -> None:
        super().__init__(rows)
        self._writer = writer
        self._begin = begin
        self._place = place
        self._live = live

    def close(self) -> Sequence[LakeFile]:
        found = self._writer.positions([file.location for file in self._live], self._deleted)
        return [*super().close(), *deletes_file(self._begin, self._place, found)]


def _noted(noted: Any) -> tuple[list[str], set[Key]]:
    locations, deleted = noted
    return locations, deleted
