"""Deletes by position in a place with several pieces, which are written at the same time.

A piece may delete rows that an earlier piece of the same round writes. So each piece only notes its keys in runs of the
key index: those of the rows that it writes, and those whose earlier rows it deletes. When all pieces are written, one
task looks the deleted keys up, in the index of the place and in the runs of the earlier pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fluss_tiering.lake.files import LakeFile
from fluss_tiering.lake.iceberg.by_position.found_rows import FoundRows
from fluss_tiering.lake.iceberg.by_position.place_index import PlaceIndex
from fluss_tiering.lake.iceberg.deletes import DeletePlace
from fluss_tiering.lake.iceberg.parquet import FilePlace
from fluss_tiering.lake.key_index import (
    IndexStore,
    KeyIndex,
    PieceKeys,
    PieceKeysWriter,
    Place,
    Run,
    deleted_keys,
    hash_keys,
)
from fluss_tiering.lake.object_store import naming_expired_credentials
from fluss_tiering.lake.protocol import Int64s


class KeyNotingWriter:
    """Writes the data files of a piece and notes its keys. It is a `NotingPieceWriter`.

    Args:
        place: Where the files are written.
        store: Where the keys are noted.
    """

    def __init__(self, place: DeletePlace, key_names: Sequence[str], store: IndexStore, table_uuid: str) -> None:
        self._io_properties = place.io_properties
        self._key_names = key_names
        self._table_uuid = table_uuid
        self._keys = PieceKeysWriter(store, Place(table_uuid, place.bucket, place.partition_values))
        self._noted: PieceKeys | None = None
        self._data = place.writer.open_data(
            FilePlace(place.bucket, place.partition_values), f"{place.location}-{place.attempt}", self._written
        )

    def write(self, rows: pa.RecordBatch, offsets: Int64s, timestamps_ms: Int64s) -> None:
        """Add rows, with the log offset and the commit timestamp of each row."""
        self._data.write(rows, offsets, timestamps_ms)

    def _written(self, location: str, rows: pa.Table, first: int) -> None:
        hashes = hash_keys([rows.column(name) for name in self._key_names], self._table_uuid)
        self._keys.add(location, hashes, np.arange(first, first + len(hashes)))

    def delete(self, keys: pa.RecordBatch) -> None:
        """Note the keys whose earlier rows are deleted. Their columns are in the order of the schema."""
        self._keys.delete(hash_keys(keys.columns, self._table_uuid))

    def close(self) -> Sequence[LakeFile]:
        """Finish the data files and return them."""
        data = self._data.close()
        with naming_expired_credentials(self._io_properties):
            self._noted = self._keys.close()
        self._keys.abort()
        return data

    def keys(self) -> PieceKeys:
        """Return where the keys are noted, after `close`."""
        if self._noted is None:
            raise RuntimeError("the piece is not closed yet")
        return self._noted

    def abort(self) -> None:
        """Delete what was written, as far as possible. Files that remain are orphans."""
        self._data.abort()
        self._keys.abort()


def write_noted_deletes(
    place: DeletePlace, index: PlaceIndex, found: FoundRows, pieces: Sequence[Sequence[PieceKeys]], base: int
) -> list[LakeFile]:
    """Write the deletes of the pieces of a place, and the state of its index with the rows that they have written.

    Args:
        place: Where the delete files are written.
        found: Takes the rows that are found.
        pieces: The keys of the pieces by ordinal.
        base: The id of the snapshot from which the round is planned.

    Raises:
        FlussTieringError: STORAGE if what a piece noted cannot be read, or if the lake refuses; CORRUPT_DATA if a file
            of the lake is damaged.
        ExpiredCredentialsError: if the credentials are not valid any more.
    """
    earlier: list[Run] = []
    with naming_expired_credentials(place.io_properties):
        for of_ordinal in pieces:
            written = KeyIndex(index.store, index.place, earlier)
            files = {location for run in earlier for location in run.files}
            for keys in of_ordinal:
                for hashes in deleted_keys(index.store, keys):
                    for matches in [*index.find(hashes), *([written.find(hashes, files)] if files else ())]:
                        found.add(matches)
            earlier += [keys.rows for keys in of_ordinal if keys.rows is not None]
        index.adopt(earlier)
        index.save(base)
        # Nothing can fail after this: nobody else would know the files, so as to delete them.
        return found.write()
