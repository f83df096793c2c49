"""The executor's side of an audit: it reads the source up to an offset, as Arrow batches that Spark compares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.micros import as_type, column_of, lake_type
from fluss_tiering.model.table import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN, StorageDescription, TableInfo
from fluss_tiering.spark.round.plan import LogPiece, Piece, SnapshotPiece
from fluss_tiering.spark.round.reduce import Reducer
from fluss_tiering.storage.open import open_split_reader
from fluss_tiering.storage.protocol import SplitReader

if TYPE_CHECKING:
    from fluss_tiering.client.security import ClientSecurity
    from fluss_tiering.storage.fluss.access import ClusterAccess

DELETED_COLUMN: Final = "__deleted"
"""The column that says whether the last change of the key was a delete."""
_FROM_SNAPSHOT: Final = -1
_MICROS_PER_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Reads pieces of the source. `mapInArrow` calls it with the numbers of pieces.

    A row of a primary-key table is the last change of its key in its piece. Spark finds the last one of all pieces.

    Attributes:
        storage: The description of the storage that holds the table.
        target: The server's address, for a reader that cannot open the storage's files.
        pieces: The pieces to read; tasks receive their numbers.
        access: The driver's access to a storage that is a cluster.
        security: The executors' credentials for the server.
    """

    table: TableInfo
    storage: StorageDescription
    target: str
    pieces: Sequence[Piece]
    access: ClusterAccess | None = None
    security: ClientSecurity | None = None

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the pieces with these numbers, in the columns of `schema_of`."""
        reader = open_split_reader(self.storage, self.target, self.access, self.security)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.pieces[number], reader)

    def _read(self, piece: Piece, reader: SplitReader) -> Iterator[pa.RecordBatch]:
        if isinstance(piece, SnapshotPiece):
            for rows in reader.read_kv_snapshot(self.table, piece.snapshot, piece.from_key, piece.to_key):
                stamps = np.full(rows.num_rows, _FROM_SNAPSHOT, np.int64)
                yield self._batch(piece, rows.columns, stamps, stamps, np.zeros(rows.num_rows, bool))
        elif self.table.has_primary_key:
            yield from self._last_changes(piece, reader)
        else:
            for batch in reader.read_log(self.table, piece.bucket, piece.start_offset, piece.end_offset):
                count = batch.records.num_rows
                offsets = np.arange(batch.base_offset, batch.base_offset + count)
                timestamps = np.full(count, batch.commit_timestamp, np.int64)
                yield self._batch(piece, batch.records.columns, offsets, timestamps, np.zeros(count, bool))

    def _last_changes(self, piece: LogPiece, reader: SplitReader) -> Iterator[pa.RecordBatch]:
        batches = reader.read_log(self.table, piece.bucket, piece.start_offset, piece.end_offset)
        for changes in Reducer(self.table).reduced(batches):
            yield self._batch(piece, changes.records.columns, changes.offsets, changes.offsets, ~changes.lives)

    def _batch(
        self,
        piece: Piece,
        columns: Sequence[pa.Array],
        offsets: npt.NDArray[np.int64],
        timestamps_ms: npt.NDArray[np.int64],
        deleted: npt.NDArray[np.bool_],
    ) -> pa.RecordBatch:
        schema = schema_of(self.table)
        own = [
            column_of(pa.int32(), np.full(len(offsets), piece.bucket.bucket, np.int32)),
            column_of(pa.int64(), offsets),
            column_of(pa.timestamp("us", "UTC"), timestamps_ms * _MICROS_PER_MILLI),
            pa.Array.from_buffers(
                pa.bool_(), len(deleted), [None, pa.py_buffer(np.packbits(deleted, bitorder="little"))]
            ),
        ]
        arrays = [as_type(column, field.type) for column, field in zip(columns, schema, strict=False)]
        return pa.RecordBatch.from_arrays([*arrays, *own], schema=schema)


def schema_of(table: TableInfo) -> pa.Schema:
    """Return the user's columns in the lake's types, and bucket, offset, timestamp and whether the key was deleted."""
    return pa.schema(
        [
            *((column.name, lake_type(column.data_type)) for column in table.descriptor.columns),
            (BUCKET_COLUMN, pa.int32()),
            (OFFSET_COLUMN, pa.int64()),
            (TIMESTAMP_COLUMN, pa.timestamp("us", "UTC")),
            (DELETED_COLUMN, pa.bool_()),
        ]
    )
