"""A lake in plain Python, with real Parquet files: snapshots are lists of files, and a commit swaps the newest one.

It lets whole rounds run without a JVM. Its readers know nothing of Fluss: they read the files with pyarrow, and an
equality delete removes what the pieces before its own have written. A table may also delete by position: see
`plain_positions`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from plain_positions import PlainPositionWriter, deleted_rows

from fluss_tiering.formats.micros import lake_type
from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, LakePlace, LiveDataFile
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.lake.protocol import CommittedSnapshot, LakeCommit, LakeTableSize, ReadOffsets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableInfo

SYSTEM_COLUMNS = tuple(
    Column(name, DataType.parse(kind))
    for name, kind in (("__bucket", "INT"), ("__offset", "BIGINT"), ("__timestamp", "TIMESTAMP_LTZ(6)"))
)
Place = tuple[int, tuple[str, ...]]
Row = dict[str, Any]
AT = "__at"


@dataclass
class Snapshot:
    """A snapshot, with the rows of each bucket of each partition.

    A row has its data file and its position in it under the name `AT`, if a round has written it.
    """

    snapshot_id: int
    commit: LakeCommit | None
    rows: dict[Place, list[Row]]
    files: list[LakeFile]
    parts: int = 0
    rewrites: bool = False


@dataclass
class PlainLake:
    """A lake in a folder. It is a `LakeCatalog`.

    Attributes:
        folder: Where the files are.
        tables: The snapshots of each table, the oldest first.
        before_commit: Called when a commit begins.
    """

    folder: Path
    tables: dict[str, list[Snapshot]] = field(default_factory=dict)
    before_commit: Callable[[], None] = lambda: None

    def find_table(self, table: TableInfo, *, follow: bool = False) -> PlainTable | None:
        return PlainTable(self, table) if str(table.path) in self.tables else None

    def open_table(self, table: TableInfo) -> PlainTable:
        self.tables.setdefault(str(table.path), [])
        return PlainTable(self, table)

    def rows(self, table: TableInfo) -> list[Row]:
        """Return the newest rows, in the order of their ids."""
        snapshots = self.tables[str(table.path)]
        found = [row for part in snapshots[-1].rows.values() for row in part] if snapshots else []
        return sorted(found, key=lambda row: (row["id"], row["__offset"]))

    def add(
        self,
        table: TableInfo,
        commit: LakeCommit | None,
        rows: dict[Place, list[Row]],
        pieces: Sequence[Sequence[LakeFile]] = (),
    ) -> int:
        """Add a snapshot, as a round or as somebody else, and return its id."""
        snapshots = self.tables[str(table.path)]
        files = [file for piece in pieces for file in piece]
        snapshots.append(Snapshot(1000 + len(snapshots), commit, rows, files, len(pieces)))
        return snapshots[-1].snapshot_id

    def compact(self, table: TableInfo) -> None:
        """Write the rows of each place into one new data file, as somebody who rewrites data files does."""
        rewritten: dict[Place, list[Row]] = {}
        for place, rows in self.tables[str(table.path)][-1].rows.items():
            location = f"file://{self.folder}/rewritten-{uuid.uuid4()}.parquet"
            pq.write_table(
                pa.Table.from_pylist([{k: v for k, v in row.items() if k != AT} for row in rows]), location[7:]
            )
            rewritten[place] = [{**row, AT: (location, number)} for number, row in enumerate(rows)]
        self.add(table, None, rewritten)
        self.tables[str(table.path)][-1].rewrites = True

    def files_on_disk(self) -> set[str]:
        return {path.name for path in self.folder.rglob("*") if path.is_file()}


class PlainTable:
    """A `LakeTable`."""

    def __init__(self, lake: PlainLake, table: TableInfo) -> None:
        self._lake = lake
        self._table = table
        self._history = list(lake.tables[str(table.path)])

    def base(self) -> int | None:
        return self._history[-1].snapshot_id if self._history else None

    def only_rewritten_since(self, snapshot_id: int) -> bool:
        later = [each for each in self._history if each.snapshot_id > snapshot_id]
        return bool(later) and all(each.rewrites for each in later)

    commits_to_main = True

    def unregistered_commit(
        self, known: int | None, read_offsets: ReadOffsets | None = None, *, published: bool = False
    ) -> CommittedSnapshot | None:
        for snapshot in reversed(self._history):
            if snapshot.snapshot_id == known:
                return None
            if snapshot.commit is not None:
                return CommittedSnapshot(snapshot.snapshot_id, snapshot.commit)
        return None

    def place(self, bucket: int, partition_values: tuple[str, ...]) -> LakePlace:
        return bucket, partition_values

    def live_files(self, places: Collection[LakePlace]) -> Mapping[LakePlace, Sequence[LiveDataFile]]:
        if not self._by_position:
            return {}
        held = self._history[-1].rows if self._history else {}
        locations = {place: dict.fromkeys(row[AT][0] for row in held.get(place, [])) for place in places}
        return {place: [LiveDataFile(each, (), 0) for each in names] for place, names in locations.items()}

    @property
    def _by_position(self) -> bool:
        return self._table.descriptor.properties.get("table.datalake.delete-files") == "position"

    def partitions_with_rows(self, places: Mapping[tuple[str, ...], Collection[int]]) -> Collection[tuple[str, ...]]:
        held = self._history[-1].rows if self._history else {}
        return [values for values, buckets in places.items() if any(held.get((each, values)) for each in buckets)]

    def file_writer(self, *, renew: bool = False) -> ParquetFileWriter | PlainPositionWriter:
        columns = (*self._table.descriptor.columns, *SYSTEM_COLUMNS)
        schema = pa.schema([pa.field(column.name, lake_type(column.data_type)) for column in columns])
        keys = self._table.descriptor.primary_key
        deletes = pa.schema([schema.field(key) for key in keys]) if keys else None
        writer = ParquetFileWriter(schema, deletes, ("zstd", None), 512 << 20, {})
        return PlainPositionWriter(writer, keys) if self._by_position else writer

    def piece_location(self, bucket: int, name: str, partition_values: Sequence[str] = ()) -> str:
        return f"file://{self._lake.folder}/{'/'.join(partition_values)}/bucket-{bucket}/{name}"

    def commit(
        self,
        pieces: Sequence[Sequence[LakeFile]],
        commit: LakeCommit,
        partition_values: tuple[str, ...] = (),
        removed: Sequence[Place] = (),
        *,
        keep: bool = False,
    ) -> int:
        self._lake.before_commit()
        files = [file for piece in pieces for file in piece]
        if [each.snapshot_id for each in self._lake.tables[str(self._table.path)]] != [
            each.snapshot_id for each in self._history
        ]:
            assert keep
            raise FlussTieringError(ErrorCode.LAKE_CONFLICT, "the lake table was changed by somebody else")
        rows = {place: list(part) for place, part in (self._history[-1].rows if self._history else {}).items()}
        for place in removed:
            rows.pop(place, None)
        for piece in pieces:
            for file in piece:
                if file.content is FileContent.EQUALITY_DELETES:
                    self._delete(rows, file)
            for file in piece:
                if file.content is FileContent.DATA:
                    new = [{**row, AT: (file.location, number)} for number, row in enumerate(_read(file))]
                    rows.setdefault((file.bucket, file.partition_values), []).extend(new)
        # Deletes by position also apply to rows of their own commit.
        for file in files:
            if file.content is FileContent.POSITION_DELETES:
                place, gone = (file.bucket, file.partition_values), deleted_rows(file)
                rows[place] = [row for row in rows.get(place, []) if row[AT] not in gone]
        return self._lake.add(self._table, commit, rows, pieces)

    @staticmethod
    def _delete(rows: dict[Place, list[Row]], file: LakeFile) -> None:
        place = file.bucket, file.partition_values
        gone = [tuple(row.items()) for row in _read(file)]
        rows[place] = [row for row in rows.get(place, []) if not any(all(row[k] == v for k, v in key) for key in gone)]

    def size(self, snapshot_id: int) -> LakeTableSize:
        (snapshot,) = (each for each in self._lake.tables[str(self._table.path)] if each.snapshot_id == snapshot_id)
        everything = [file for each in self._lake.tables[str(self._table.path)] for file in each.files]
        return LakeTableSize(sum(file.size_bytes for file in everything), sum(map(len, snapshot.rows.values())))

    def packed(self, files: Sequence[LakeFile]) -> tuple[LakeFile, ...]:
        return tuple(replace(file, metrics=FileMetrics(0), packed=b"packed") for file in files)

    def delete_files(self, files: Sequence[LakeFile]) -> None:
        for file in files:
            Path(urlparse(file.location).path).unlink()


def _read(file: LakeFile) -> list[Row]:
    rows: list[Row] = pq.read_table(urlparse(file.location).path).to_pylist()
    return rows
