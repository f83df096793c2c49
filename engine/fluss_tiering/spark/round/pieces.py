"""The executor's side of a round: a worker reads a piece as Arrow batches and writes it as lake files.

One worker does both, since a round takes three times as long when rows pass through Spark. The driver receives one
result for each piece, from the task attempt that succeeded. The files of other attempts are orphans: no lake snapshot
refers to them.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from fluss_tiering.formats.changelog import last_per_key
from fluss_tiering.formats.log.batch import ChangeType, ChangeTypes, LogBatch
from fluss_tiering.lake.protocol import LakeFileWriter, PieceWriter
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import StorageDescription, TableInfo
from fluss_tiering.spark.round.plan import LogPiece, Piece, SnapshotPiece
from fluss_tiering.spark.round.result import PieceResult, StageSeconds
from fluss_tiering.storage.open import open_split_reader
from fluss_tiering.storage.protocol import SplitReader

if TYPE_CHECKING:
    from fluss_tiering.storage.fluss.access import ClusterAccess

_FROM_SNAPSHOT: Final = -1
"""The values of `__offset` and `__timestamp` for rows of a KV snapshot, as in Fluss's `TieringSplitReader`."""

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class PieceWork:
    """A piece, and the location where its files are written."""

    piece: Piece
    location: str


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
    """

    table: TableInfo
    storage: StorageDescription
    target: str
    writer: LakeFileWriter
    work: Sequence[PieceWork]
    tasks: int
    access: ClusterAccess | None = None

    def __call__(self, numbers: Iterable[int]) -> Iterator[PieceResult]:
        """Do the pieces with these numbers."""
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        reader = open_split_reader(self.storage, self.target, self.access)
        for number in numbers:
            yield self._do(number, attempt, reader)

    def _do(self, number: int, attempt: int, reader: SplitReader) -> PieceResult:
        work = self.work[number]
        piece = work.piece
        writer = self.writer.open_piece(piece.bucket.bucket, work.location, attempt, piece.partition_values)
        watch = _Stopwatch()
        try:
            if isinstance(work.piece, SnapshotPiece):
                rows = _copy_snapshot(self.table, work.piece, reader, writer, watch)
            elif self.table.has_primary_key:
                rows = _reduce_log(self.table, work.piece, reader, writer, watch)
            else:
                rows = _copy_log(self.table, work.piece, reader, writer, watch)
            with watch("encode"):
                files = tuple(writer.close())
        except BaseException:
            writer.abort()
            raise
        return PieceResult(number, rows, files, watch.seconds(), _peak_bytes())


def _copy_snapshot(
    table: TableInfo, piece: SnapshotPiece, reader: SplitReader, writer: PieceWriter, watch: _Stopwatch
) -> int:
    rows = 0
    for batch in watch.read(reader, reader.read_kv_snapshot(table, piece.snapshot, piece.from_key, piece.to_key)):
        with watch("encode"):
            if piece.deletes:
                writer.delete(batch.select(list(table.descriptor.primary_key)))
            stamp = np.full(batch.num_rows, _FROM_SNAPSHOT, np.int64)
            writer.write(batch, stamp, stamp)
        rows += batch.num_rows
    return rows


def _copy_log(table: TableInfo, piece: LogPiece, reader: SplitReader, writer: PieceWriter, watch: _Stopwatch) -> int:
    rows = 0
    for batch in watch.read(reader, reader.read_log(table, piece.bucket, piece.start_offset, piece.end_offset)):
        count = batch.records.num_rows
        with watch("encode"):
            offsets = np.arange(batch.base_offset, batch.base_offset + count)
            timestamps = np.full(count, batch.commit_timestamp, np.int64)
            writer.write(batch.records, offsets, timestamps)
        rows += count
    return rows


def _reduce_log(table: TableInfo, piece: LogPiece, reader: SplitReader, writer: PieceWriter, watch: _Stopwatch) -> int:
    """Write the last change of each key: an equality delete for every changed key, and a row if the key still exists.

    Equality deletes do not apply to rows of their own commit, so a key must occur only once in a piece.
    """
    batches = list(watch.read(reader, reader.read_log(table, piece.bucket, piece.start_offset, piece.end_offset)))
    counts = [batch.records.num_rows for batch in batches]
    if not sum(counts):
        return 0
    with watch("reduce"):
        records = pa.Table.from_batches([batch.records for batch in batches])
        kinds = np.concatenate([change_types_of(batch) for batch in batches])
        offsets = np.concatenate(
            [
                np.arange(batch.base_offset, batch.base_offset + count)
                for batch, count in zip(batches, counts, strict=True)
            ]
        )
        timestamps = np.repeat(np.array([batch.commit_timestamp for batch in batches], np.int64), counts)
        key_names = table.descriptor.primary_key
        last = last_per_key(records, key_names, kinds)
        live = last[kinds[last] != ChangeType.DELETE]
        keys = records.select(key_names).take(last) if piece.deletes else None
        rows = records.take(live)
    with watch("encode"):
        if keys is not None:
            writer.delete(_one_batch(keys))
        writer.write(_one_batch(rows), offsets[live], timestamps[live])
    return int(np.count_nonzero(kinds != ChangeType.UPDATE_BEFORE))


def change_types_of(batch: LogBatch) -> ChangeTypes:
    """Return the change types of a log batch of a primary-key table.

    Raises:
        FlussTieringError: CORRUPT_DATA if the batch has none.
    """
    if batch.change_types is None:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA,
            f"the log batch at offset {batch.base_offset} of a primary-key table has no change types: "
            "expected one for each record; restore the log, or re-create the table",
        )
    return batch.change_types


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in rows.columns], schema=rows.schema)


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class _Stopwatch:
    """Adds up the seconds that each stage takes."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count the time of the `with` block as time of the stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._add(stage, time.perf_counter() - start)

    def read(self, reader: SplitReader, items: Iterator[ItemT]) -> Iterator[ItemT]:
        """Yield the items, and count the time that the reader takes for them as reading and decoding."""
        while True:
            decoded, start = reader.decode_seconds, time.perf_counter()
            item = next(items, None)
            decoding = reader.decode_seconds - decoded
            self._add("decode", decoding)
            self._add("read", time.perf_counter() - start - decoding)
            if item is None:
                return
            yield item

    def _add(self, stage: str, seconds: float) -> None:
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

    def seconds(self) -> StageSeconds:
        """Return the seconds of each stage."""
        return StageSeconds(**self._seconds)
