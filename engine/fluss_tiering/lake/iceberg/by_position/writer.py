"""The writer of pieces that delete rows by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.lake.iceberg.by_position.place_index import PlaceIndex
from fluss_tiering.lake.iceberg.deletes import (
    DeletePlace,
    PositionDeletes,
    present_deletes,
    write_position_deletes,
    write_vectors,
)
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.iceberg.parquet import FilePlace, ParquetFileWriter, ParquetPieceWriter
from fluss_tiering.lake.key_index import Hashes, IndexStore, Matches, Place
from fluss_tiering.lake.object_store import naming_expired_credentials, require_valid
from fluss_tiering.lake.protocol import Int64s, LakeFile, LiveDataFile, PieceWriter
from fluss_tiering.lake.shared_folder import require_shared

_KEYS_AT_ONCE: Final = 1 << 20
"""So many keys are looked up at once. They take 16 MB."""
_WITH_VECTORS: Final = 3
"""The first format version that has deletion vectors, and no new position delete files."""


@dataclass(frozen=True, slots=True)
class PositionFileWriter(ParquetFileWriter):
    """Opens piece writers that delete rows by position. It is a `LakeFileWriter`.

    Attributes:
        table_uuid: The UUID of the Iceberg table.
        index_location: The folder of the table's key index.
        format_version: The format version of the lake table, which decides the form of deletes.
        base: The id of the snapshot from which the round is planned; 0 for none.
    """

    table_uuid: str = ""
    index_location: str = ""
    format_version: int = 2
    base: int = 0

    def open_piece(
        self,
        bucket: int,
        location: str,
        attempt: int,
        partition_values: tuple[str, ...] = (),
        live: Sequence[LiveDataFile] | None = None,
    ) -> PieceWriter:
        """Return a writer that deletes rows of the live data files by position; by key if these are not given.

        Raises:
            FlussTieringError: STORAGE if this executor does not see the folder of the lake.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        if live is None:
            return ParquetFileWriter.open_piece(self, bucket, location, attempt, partition_values)
        require_shared(self.shared_folder)
        require_valid(self.io_properties)
        return PositionPieceWriter(self, DeletePlace(self, bucket, location, attempt, partition_values), live)


class PositionPieceWriter:
    """Writes the data files and the position deletes of one piece. It is a `PieceWriter`.

    Its memory is that of a row group, of some millions of hashes, and of bitmaps of the deleted positions.
    """

    def __init__(self, settings: PositionFileWriter, place: DeletePlace, live: Sequence[LiveDataFile]) -> None:
        assert settings.delete_schema is not None  # noqa: S101 - a log table has no writer of this kind
        self._settings = settings
        self._place = place
        self._live = {file.location: file for file in live}
        key = settings.delete_schema
        self._key_names = key.names
        self._index = PlaceIndex(
            IndexStore(settings.index_location, settings.io_properties),
            Place(settings.table_uuid, place.bucket, place.partition_values),
            live,
            key,
            place.open,
        )
        self._data = ParquetPieceWriter(
            settings,
            FilePlace(place.bucket, place.partition_values),
            f"{place.location}-{place.attempt}",
            self._written,
        )
        self._wanted: list[Hashes] = []
        self._deleted: dict[str, DeletionVector] = {}

    def write(self, rows: pa.RecordBatch, offsets: Int64s, timestamps_ms: Int64s) -> None:
        """Add rows, with the log offset and the commit timestamp of each row."""
        self._data.write(rows, offsets, timestamps_ms)

    def _written(self, location: str, rows: pa.Table, first: int) -> None:
        self._index.add(location, [rows.column(name) for name in self._key_names], first)

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows with these keys, whose columns are in the order of the schema."""
        if not self._live:
            return
        self._wanted.append(self._index.hashes(keys.columns))
        if sum(map(len, self._wanted)) >= _KEYS_AT_ONCE:
            self._look_up()

    def _look_up(self) -> None:
        wanted, self._wanted = self._wanted, []
        if not wanted:
            return
        with naming_expired_credentials(self._settings.io_properties):
            for matches in self._index.find(Hashes.concat(wanted)):
                self._note(matches)

    def _note(self, matches: Matches) -> None:
        starts = np.searchsorted(matches.files, np.arange(len(matches.paths) + 1))
        for number, location in enumerate(matches.paths):
            first, behind = starts[number], starts[number + 1]
            if first < behind:
                self._deleted.setdefault(location, DeletionVector()).add(matches.positions[first:behind])

    def close(self) -> Sequence[LakeFile]:
        """Finish the files and return them."""
        self._look_up()
        data = self._data.close()
        deletes = self._write_deletes()
        with naming_expired_credentials(self._settings.io_properties):
            self._index.save(self._settings.base)
        self._index.close()
        return [*data, *deletes]

    def _write_deletes(self) -> list[LakeFile]:
        present = present_deletes(self._place, {each: self._live[each].deletes for each in self._deleted})
        for location, vector in self._deleted.items():
            vector.remove(present[location].everything())
        deletes = PositionDeletes.of({each: vector for each, vector in self._deleted.items() if len(vector)})
        if self._settings.format_version >= _WITH_VECTORS:
            return write_vectors(self._place, deletes, present)
        return write_position_deletes(self._place, deletes, len(self._live), present)

    def abort(self) -> None:
        """Delete what was written, as far as possible. Files that remain are orphans."""
        self._data.abort()
        self._index.close()
