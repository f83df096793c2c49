"""The executor's side of a round: a worker reads a piece as Arrow batches and writes it as lake files.

One worker does both, since a round takes three times as long when rows pass through Spark. The driver receives one
result for each piece, from the task attempt that succeeded. The files of other attempts are orphans: no lake snapshot
refers to them.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark import TaskContext

from fluss_tiering.formats.log.batch import ChangeType, LogBatch
from fluss_tiering.lake.files import LakePlace, LiveDataFile
from fluss_tiering.lake.object_store import ExpiredCredentialsError
from fluss_tiering.lake.protocol import LakeFileWriter, PieceWriter
from fluss_tiering.model.table import StorageDescription, TableInfo
from fluss_tiering.spark.round.plan import LogPiece, Piece, SnapshotPiece
from fluss_tiering.spark.round.reduce import DEFAULT_BUFFER_BYTES, Reducer
from fluss_tiering.spark.round.result import PieceResult
from fluss_tiering.storage.open import open_split_reader
from fluss_tiering.storage.protocol import SplitReader

if TYPE_CHECKING:
    from fluss_tiering.client.security import ClientSecurity
    from fluss_tiering.storage.fluss.access import ClusterAccess

_FROM_SNAPSHOT: Final = -1
"""The values of `__offset` and `__timestamp` for rows of a KV snapshot, as in Fluss's `TieringSplitReader`."""


@dataclass(frozen=True, slots=True)
class PieceWork:
    """A piece, and the location where its files are written.

    Attributes:
        location: The beginning of the locations.
        live: The data files that the lake has of the piece's place, if the piece deletes rows by position; None if it
            deletes by key, or notes its keys.
        notes_keys: Whether the piece only notes its keys, since its place has several pieces: see `deletes`.
        place: The place of the piece's rows in the lake; None if that is its own bucket.
    """

    piece: Piece
    location: str
    live: tuple[LiveDataFile, ...] | None = None
    notes_keys: bool = False
    place: LakePlace | None = None


@dataclass(frozen=True, slots=True)
class StageJob:
    """The work of a round's Spark stage. Every task receives a copy of it.

    Attributes:
        table: The table to read.
        storage: The description of the storage that holds the table.
        target: The server's address, for a reader that cannot open the storage's files.
        writer: Writes lake files.
        work: The pieces to do; tasks receive their numbers.
        tasks: How many Spark tasks share the work.
        access: The driver's access to a storage that is a cluster. It holds secrets, so it is never printed.
        buffer_bytes: How many bytes of changes a task holds in memory. More are spread over files on its local disk.
        security: The executors' credentials for the server, for a reader that asks it. They are never printed.
    """

    table: TableInfo
    storage: StorageDescription
    target: str
    writer: LakeFileWriter
    work: Sequence[PieceWork]
    tasks: int
    access: ClusterAccess | None = None
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    security: ClientSecurity | None = None

    def __call__(self, numbers: Iterable[int]) -> Iterator[PieceResult]:
        """Do the pieces with these numbers. If the credentials for the lake end, tell which pieces are left."""
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        reader = open_split_reader(self.storage, self.target, self.access, self.security)
        return until_expired(numbers, lambda number: self._do(number, attempt, reader))

    def _do(self, number: int, attempt: int, reader: SplitReader) -> PieceResult:
        work = self.work[number]
        piece = work.piece
        bucket, partition_values = work.place or (piece.bucket.bucket, piece.partition_values)
        where = bucket, work.location, attempt, partition_values
        noting = self.writer.open_noting_piece(*where) if work.notes_keys else None
        writer = noting or self.writer.open_piece(*where, work.live)
        try:
            if isinstance(piece, SnapshotPiece):
                rows = _copy_snapshot(self.table, piece, reader, writer)
            elif self.table.has_primary_key:
                rows = _reduce_log(Reducer(self.table, self.buffer_bytes), piece, reader, writer)
            else:
                rows = _copy_log(self.table, piece, reader, writer)
            files = tuple(writer.close())
        except BaseException:
            writer.abort()
            raise
        return PieceResult(number, rows, files, peak_bytes(), keys=None if noting is None else noting.keys())


def until_expired(numbers: Iterable[int], do: Callable[[int], PieceResult]) -> Iterator[PieceResult]:
    """Yield the result of each piece of work. If the credentials for the lake end, tell what is left.

    Args:
        numbers: The numbers of the pieces of work.
        do: Does one of them.
    """
    expired: str | None = None
    for number in numbers:
        if expired is None:
            try:
                result = do(number)
            except ExpiredCredentialsError as error:
                # It is no failure of the task: Spark would repeat it with the same credentials.
                expired = error.message
        if expired is not None:
            result = PieceResult(number, 0, (), peak_bytes(), expired)
        yield result


def _copy_snapshot(table: TableInfo, piece: SnapshotPiece, reader: SplitReader, writer: PieceWriter) -> int:
    rows = 0
    for batch in reader.read_kv_snapshot(table, piece.snapshot, piece.from_key, piece.to_key):
        if piece.deletes:
            writer.delete(batch.select(list(table.descriptor.primary_key)))
        stamp = np.full(batch.num_rows, _FROM_SNAPSHOT, np.int64)
        writer.write(batch, stamp, stamp)
        rows += batch.num_rows
    return rows


def _copy_log(table: TableInfo, piece: LogPiece, reader: SplitReader, writer: PieceWriter) -> int:
    rows = 0
    for batch in reader.read_log(table, piece.bucket, piece.start_offset, piece.end_offset):
        count = batch.records.num_rows
        offsets = np.arange(batch.base_offset, batch.base_offset + count)
        timestamps = np.full(count, batch.commit_timestamp, np.int64)
        writer.write(batch.records, offsets, timestamps)
        rows += count
    return rows


def _reduce_log(reducer: Reducer, piece: LogPiece, reader: SplitReader, writer: PieceWriter) -> int:
    """Write the last change of each key: an equality delete for every changed key, and a row if the key still exists.

    Equality deletes do not apply to rows of their own commit, so a key must occur only once in a piece.
    """
    table, rows = reducer.table, 0

    def counted() -> Iterator[LogBatch]:
        nonlocal rows
        for batch in reader.read_log(table, piece.bucket, piece.start_offset, piece.end_offset):
            kinds = batch.change_types
            rows += 0 if kinds is None else int(np.count_nonzero(kinds != ChangeType.UPDATE_BEFORE))
            yield batch

    for changes in reducer.reduced(counted()):
        if piece.deletes:
            writer.delete(changes.records.select(list(table.descriptor.primary_key)))
        lives = changes.lives
        live = changes if lives.all() else changes.take(np.flatnonzero(lives))
        writer.write(live.records, live.offsets, live.timestamps)
    return rows


def peak_bytes() -> int:
    """Return the largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
