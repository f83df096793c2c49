"""The writer of pieces that delete rows by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from fluss_tiering.lake.files import LakeFile, LiveDataFile, NotedPlace, RebasedPlace
from fluss_tiering.lake.iceberg.by_position.found_rows import FoundRows
from fluss_tiering.lake.iceberg.by_position.noted_keys import KeyNotingWriter, write_noted_deletes
from fluss_tiering.lake.iceberg.by_position.place_index import KEYS_AT_ONCE, PlaceIndex
from fluss_tiering.lake.iceberg.by_position.rebased_deletes import write_rebased_deletes
from fluss_tiering.lake.iceberg.by_rows import PartitionedFileWriter
from fluss_tiering.lake.iceberg.deletes import DeletePlace
from fluss_tiering.lake.iceberg.parquet import FilePlace, ParquetFileWriter, Written
from fluss_tiering.lake.key_index import Hashes, IndexStore, Place
from fluss_tiering.lake.object_store import naming_expired_credentials
from fluss_tiering.lake.protocol import Int64s, NotingPieceWriter, PieceWriter


@dataclass(frozen=True, slots=True)
class PositionFileWriter(PartitionedFileWriter):
    """Opens piece writers that delete rows by position. It is a `LakeFileWriter`.

    Attributes:
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
        self.require_access()
        return PositionPieceWriter(self, DeletePlace(self, bucket, location, attempt, partition_values), live)

    def open_data(self, place: FilePlace, prefix: str, written: Written | None = None) -> PieceWriter:
        """Return a writer of data files, for each partition its own if these follow from the rows."""
        kind = ParquetFileWriter if self.partition_by is None else PartitionedFileWriter
        return kind.open_data(self, place, prefix, written)

    def open_noting_piece(
        self, bucket: int, location: str, attempt: int, partition_values: tuple[str, ...] = ()
    ) -> NotingPieceWriter:
        """Return a writer that notes the keys of a piece, for `write_deletes`.

        Raises:
            FlussTieringError: STORAGE if this executor does not see the folder of the lake.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        self.require_access()
        assert self.delete_schema is not None  # noqa: S101 - a log table has no writer of this kind
        place = DeletePlace(self, bucket, location, attempt, partition_values)
        return KeyNotingWriter(place, self.delete_schema.names, self._index_store(), self.table_uuid)

    def write_deletes(self, place: NotedPlace, attempt: int) -> Sequence[LakeFile]:
        """Write the deletes of all pieces of a place whose keys were noted: see `LakeFileWriter`."""
        self.require_access()
        where = DeletePlace(self, place.bucket, place.location, attempt, place.partition_values)
        with self.index_of(where, place.live) as index:
            found = FoundRows(self.format_version, where, place.live, place.added)
            return write_noted_deletes(where, index, found, place.pieces, self.base)

    def rebase_deletes(self, place: RebasedPlace, attempt: int) -> Sequence[LakeFile]:
        """Write deletes anew, for a newer base whose files were rewritten: see `LakeFileWriter`."""
        self.require_access()
        where = DeletePlace(self, place.bucket, place.location, attempt, place.partition_values)
        with self.index_of(where, place.live) as index:
            found = FoundRows(self.format_version, where, place.live, place.added)
            return write_rebased_deletes(where, index, found, place, self.base)

    def index_of(self, place: DeletePlace, live: Sequence[LiveDataFile]) -> PlaceIndex:
        """Return the key index of a place, which has these live data files. The caller closes it."""
        assert self.delete_schema is not None  # noqa: S101 - a log table has no writer of this kind
        return PlaceIndex(
            self._index_store(),
            Place(self.table_uuid, place.bucket, place.partition_values),
            live,
            self.delete_schema,
            place.open,
        )

    def _index_store(self) -> IndexStore:
        return IndexStore(self.index_location, self.io_properties)


class PositionPieceWriter:
    """Writes the data files and the position deletes of one piece. It is a `PieceWriter`.

    Its memory is that of a row group, of some millions of hashes, and of bitmaps of the deleted positions.
    """

    def __init__(self, settings: PositionFileWriter, place: DeletePlace, live: Sequence[LiveDataFile]) -> None:
        assert settings.delete_schema is not None  # noqa: S101 - a log table has no writer of this kind
        self._settings = settings
        self._has_live = bool(live)
        self._key_names = settings.delete_schema.names
        self._index = settings.index_of(place, live)
        self._found = FoundRows(settings.format_version, place, live)
        prefix = f"{place.location}-{place.attempt}"
        self._data = settings.open_data(FilePlace(place.bucket, place.partition_values), prefix, self._written)
        self._wanted: list[Hashes] = []

    def write(self, rows: pa.RecordBatch, offsets: Int64s, timestamps_ms: Int64s) -> None:
        """Add rows, with the log offset and the commit timestamp of each row."""
        self._data.write(rows, offsets, timestamps_ms)

    def _written(self, location: str, rows: pa.Table, first: int) -> None:
        self._index.add(location, [rows.column(name) for name in self._key_names], first)

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows with these keys, whose columns are in the order of the schema."""
        if not self._has_live:
            return
        self._wanted.append(self._index.hashes(keys.columns))
        if sum(map(len, self._wanted)) >= KEYS_AT_ONCE:
            self._look_up()

    def _look_up(self) -> None:
        wanted, self._wanted = self._wanted, []
        if not wanted:
            return
        with naming_expired_credentials(self._settings.io_properties):
            for matches in self._index.find(Hashes.concat(wanted)):
                self._found.add(matches)

    def close(self) -> Sequence[LakeFile]:
        """Finish the files and return them."""
        self._look_up()
        data = self._data.close()
        with naming_expired_credentials(self._settings.io_properties):
            self._index.save(self._settings.base)
        self._index.close()
        # Nothing can fail after this: `abort` would not know the files.
        return [*data, *self._found.write()]

    def abort(self) -> None:
        """Delete what was written, as far as possible. Files that remain are orphans."""
        self._data.abort()
        self._index.close()
