"""Rounds of one bucket that delete by position, without Spark, beside a plain model of the rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from fluss_tiering.lake.files import FileContent, LakeFile, LiveDataFile, NotedPlace
from fluss_tiering.lake.iceberg.by_position import PositionFileWriter
from fluss_tiering.lake.protocol import PieceWriter

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"}),
        pa.field("name", pa.string(), metadata={"PARQUET:field_id": "2"}),
    ]
)
Changes = Mapping[int, str | None]
"""Keys with their new values; None deletes the row."""


@dataclass
class WrittenRounds:
    """A bucket of a lake table.

    Attributes:
        folder: The folder of the table.
        version: The format version.
        live: The live data files by their locations.
        rows: The model: the value of each key.
    """

    folder: Path
    version: int
    target_file_bytes: int = 1 << 20
    live: dict[str, LiveDataFile] = field(default_factory=dict)
    rows: dict[int, str] = field(default_factory=dict)
    table_uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    number: int = 0

    def writer(self) -> PositionFileWriter:
        return PositionFileWriter(
            schema=SCHEMA,
            delete_schema=pa.schema([SCHEMA.field("id")]),
            compression=("zstd", None),
            target_file_bytes=self.target_file_bytes,
            io_properties={},
            table_uuid=self.table_uuid,
            index_location=f"file://{self.folder}/_key_index",
            format_version=self.version,
            base=self.number,
        )

    def location(self) -> str:
        return f"file://{self.folder}/data/{uuid.uuid4()}"

    @contextmanager
    def data_files_away(self) -> Iterator[None]:
        """Let nobody read the live data files that there are now."""
        away = [Path(path_of(location)) for location in self.live]
        for path in away:
            path.rename(f"{path}.away")
        yield
        for path in away:
            Path(f"{path}.away").rename(path)

    def round(self, changes: Changes) -> list[LakeFile]:
        """Write changes as one piece, commit them, and return the files."""
        piece = self.writer().open_piece(0, self.location(), 0, (), list(self.live.values()))
        write(piece, changes)
        return self.commit(piece.close(), changes)

    def round_of_pieces(self, *ordinals: Sequence[Changes]) -> list[LakeFile]:
        """Write pieces as tasks of their own do, and then their deletes; commit all, and return the files."""
        files: list[LakeFile] = []
        noted = []
        for of_ordinal in ordinals:
            keys = []
            for changes in of_ordinal:
                piece = self.writer().open_noting_piece(0, self.location(), 0)
                write(piece, changes)
                files += piece.close()
                keys.append(piece.keys())
            noted.append(tuple(keys))
        place = NotedPlace(0, self.location(), (), tuple(self.live.values()), tuple(noted))
        files += self.writer().write_deletes(place, 0)
        changed = {key: value for of_ordinal in ordinals for piece in of_ordinal for key, value in piece.items()}
        return self.commit(files, changed)

    def commit(self, files: Iterable[LakeFile], changes: Changes) -> list[LakeFile]:
        """Make files visible, as an Iceberg commit does."""
        files = list(files)
        self.number += 1
        for file in files:
            if file.content is FileContent.DATA:
                self.live[file.location] = LiveDataFile(file.location, (0,), file.metrics.record_count)
        gone = {(each.location, each.vector) for file in files for each in file.replaces}
        for location, data in self.live.items():
            kept = [each for each in data.deletes if (each.location, each.vector) not in gone]
            added = [each for each in files if each.content is not FileContent.DATA and concerns(each, location)]
            self.live[location] = replace(data, deletes=(*kept, *added))
        for key, value in changes.items():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        return files

    def read(self) -> dict[int, str]:
        """Return the rows as PyArrow reads the data files, without those that PyIceberg finds in the delete files.

        Raises:
            AssertionError: A row is there twice, or is deleted twice.
        """
        found: dict[int, str] = {}
        for location, data in self.live.items():
            rows = pq.read_table(path_of(location)).to_pylist()
            deleted: list[int] = []
            for file in data.deletes:
                deleted += positions_in(file, location)
            assert len(set(deleted)) == len(deleted), f"{location} has rows that are deleted twice"
            for position, row in enumerate(rows):
                if position not in set(deleted):
                    assert row["id"] not in found, f"the key {row['id']} is there twice"
                    found[row["id"]] = row["name"]
        return found


def write(piece: PieceWriter, changes: Changes) -> None:
    """Write changes as a reduced piece of a log does."""
    piece.delete(pa.record_batch({"id": pa.array(list(changes), pa.int64())}))
    kept = [(key, value) for key, value in changes.items() if value is not None]
    for start in range(0, len(kept), 3):
        part = kept[start : start + 3]
        rows = pa.record_batch([pa.array([key for key, _ in part], pa.int64()), [value for _, value in part]], SCHEMA)
        stamps = np.zeros(len(part), np.int64)
        piece.write(rows, stamps, stamps)


def concerns(file: LakeFile, location: str) -> bool:
    return location in file.referenced if file.vector is not None else bool(positions_in(file, location))


def positions_in(file: LakeFile, location: str) -> list[int]:
    """Return which positions of a data file a delete file deletes."""
    if file.vector is not None:
        if location not in file.referenced:
            return []
        vectors = deletion_vectors_from_puffin_file(PuffinFile(Path(path_of(file.location)).read_bytes()))
        (positions,) = [each.to_vector() for each in vectors if each.referenced_data_file == location]
        return list(positions.to_pylist())
    table = pq.read_table(path_of(file.location))
    return [each["pos"] for each in table.to_pylist() if each["file_path"] == location]


def path_of(location: str) -> str:
    return location.removeprefix("file://")
