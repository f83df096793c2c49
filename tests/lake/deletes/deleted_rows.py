"""A lake table whose rows tests delete by position, beside a plain model of the rows that must remain."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from places import deletes_of, shared_delete_file

import judges
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.files import LakeFile, LiveDataFile
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.deletes import (
    DeletePlace,
    live_data_files,
    present_deletes,
    write_position_deletes,
    write_vectors,
)
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath

COLUMNS = (
    Column("day", DataType.parse("STRING NOT NULL")),
    Column("k", DataType.parse("INT NOT NULL")),
    Column("v", DataType.parse("STRING")),
)
DAY = ("mon",)
_NUMBERS = itertools.count(1)


@dataclass
class DeletedRows:
    """A table partitioned by day. It has one bucket, so every key is where Iceberg's own transform puts it.

    Attributes:
        spark: The session.
        folder: The folder of the warehouse.
        version: The format version.
        merging: Whether a position delete file takes the place of those that its data file has.
        rows: The model: the key of each row at its position in each data file; None for a deleted row.
        history: The metadata file of each snapshot, and what the model said of it.
        snapshots: The metadata file of each snapshot, and the snapshot's id.
    """

    spark: Any
    folder: Path
    version: int
    merging: bool = False
    rows: dict[str, list[int | None]] = field(default_factory=dict)
    history: dict[str, list[int]] = field(default_factory=dict)
    snapshots: dict[str, int] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"positions_{next(_NUMBERS)}")

    @property
    def table(self) -> TableInfo:
        descriptor = TableDescriptor(COLUMNS, ("day", "k"), ("k",), 1, partition_keys=("day",))
        catalog = {"name": self.name, "type": "hadoop", "warehouse": f"file://{self.folder}"}
        return TableInfo(1, TablePath("db", "t"), 1, descriptor, 0, catalog)

    def open(self) -> IcebergTable:
        lake = IcebergCatalogs(self.spark).open_table(self.table)
        if lake.java_table.operations().current().formatVersion() < self.version:
            self.upgrade(self.version)
            lake = IcebergCatalogs(self.spark).open_table(self.table)
        return lake

    def upgrade(self, version: int) -> None:
        self.version = version
        self.spark.sql(f"ALTER TABLE {self.name}.db.t SET TBLPROPERTIES ('format-version' = '{version}')")

    def add(self, *files: Sequence[int], day: tuple[str, ...] = DAY) -> list[str]:
        """Commit data files with these keys, and return their locations."""
        lake = self.open()
        written = self.data_files(lake, *files, day=day)
        self.commit(lake, written)
        for file, keys in zip(written, files, strict=True):
            self.rows[file.location] = list(keys)
        self.remember()
        return [file.location for file in written]

    def data_files(self, lake: IcebergTable, *files: Sequence[int], day: tuple[str, ...] = DAY) -> list[LakeFile]:
        """Write data files with these keys."""
        return [self._data_file(lake, keys, day) for keys in files]

    def _data_file(self, lake: IcebergTable, keys: Sequence[int], day: tuple[str, ...]) -> LakeFile:
        writer = lake.file_writer().open_piece(0, lake.piece_location(0, str(uuid.uuid4()), day), 0, day)
        columns = {"day": [*day] * len(keys), "k": keys, "v": [f"value {key}" for key in keys]}
        stamps = np.arange(len(keys))
        writer.write(pa.RecordBatch.from_pydict(columns, schema=arrow_schema(COLUMNS)), stamps, stamps)
        (file,) = writer.close()
        return file

    def place(self, lake: IcebergTable, day: tuple[str, ...] = DAY) -> DeletePlace:
        return DeletePlace(lake.file_writer(), 0, lake.piece_location(0, str(uuid.uuid4()), day), 0, day)

    def delete(self, gone: Mapping[str, Sequence[int]], day: tuple[str, ...] = DAY) -> list[LakeFile]:
        """Delete these positions of data files as a round does, and return the new files."""
        lake = self.open()
        files = self.written(lake, gone, day)
        self.commit(lake, files)
        self.forget(gone)
        return files

    def delete_together(self, gone: Mapping[str, Sequence[int]]) -> None:
        """Delete these positions by one position delete file for all data files, as other engines do."""
        lake = self.open()
        self.commit(lake, [shared_delete_file(self.place(lake), gone)])
        self.forget(gone)

    def delete_by_key(self, gone: Mapping[str, Sequence[int]], day: tuple[str, ...] = DAY) -> None:
        """Delete the keys at these positions of data files by an equality delete file."""
        lake = self.open()
        writer = lake.file_writer().open_piece(0, lake.piece_location(0, str(uuid.uuid4()), day), 0, day)
        keys = [self.rows[location][position] for location, positions in gone.items() for position in positions]
        live = [key for key in keys if key is not None]
        schema = pa.schema(list(arrow_schema(COLUMNS))[:2])
        writer.delete(pa.RecordBatch.from_pydict({"day": [*day] * len(live), "k": live}, schema=schema))
        self.commit(lake, list(writer.close()))
        self.forget(gone)

    def written(
        self, lake: IcebergTable, gone: Mapping[str, Sequence[int]], day: tuple[str, ...] = DAY
    ) -> list[LakeFile]:
        """Write the deletes of these positions in the form of the format version."""
        live = {file.location: file.deletes for file in self.live_files(lake) if file.partition == (*day, 0)}
        place = self.place(lake, day)
        deletes = deletes_of(gone, others=[location for location in live if location not in gone])
        present = present_deletes(place, {**dict.fromkeys(gone, ()), **live})
        if self.version < 3:
            return write_position_deletes(place, deletes, present if self.merging else None)
        return write_vectors(place, deletes, present)

    def live_files(self, lake: IcebergTable) -> list[LiveDataFile]:
        return list(live_data_files(lake.java_table, lake.base()))

    def commit(self, lake: IcebergTable, *pieces: Sequence[LakeFile]) -> int:
        return lake.commit(pieces, LakeCommit(1, 5, str(uuid.uuid4()), "/offsets", {TableBucket(1, 0): 1}))

    def forget(self, gone: Mapping[str, Sequence[int]]) -> None:
        """Delete rows from the model: the positions in each data file."""
        for location, positions in gone.items():
            for position in positions:
                self.rows[location][position] = None
        self.remember()

    def remember(self) -> None:
        """Note what the newest snapshot holds."""
        metadata = self.metadata
        self.history[metadata] = self.live()
        self.snapshots[metadata] = self.open().java_table.currentSnapshot().snapshotId()

    def live(self) -> list[int]:
        return sorted(key for keys in self.rows.values() for key in keys if key is not None)

    @property
    def metadata(self) -> str:
        return judges.newest_metadata(self.folder / "db" / "t")

    def check(self, *readers: str) -> None:
        """Compare the rows that these readers find with the model, at each snapshot."""
        for reader in readers:
            for metadata, keys in self.history.items():
                rows = judges.read(reader, metadata, columns=["k"], spark=self.spark)
                assert sorted(rows.column("k").to_pylist()) == keys, (reader, metadata)
