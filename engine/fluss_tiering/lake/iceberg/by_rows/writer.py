"""The writer of pieces whose rows are divided among files of their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from fluss_tiering.lake.files import LakeFile, RowPartition
from fluss_tiering.lake.iceberg.by_rows.transforms import RowTransform, rows_by_partition
from fluss_tiering.lake.iceberg.dictionaries import Dictionaries
from fluss_tiering.lake.iceberg.parquet import (
    FilePlace,
    ParquetFileWriter,
    ParquetPieceWriter,
    Written,
    most_buffered_bytes,
)
from fluss_tiering.lake.protocol import Int64s, PieceWriter

_DIVIDED_BYTES: Final = 16 << 20
"""How many bytes of rows are divided among the partitions at once."""
_OPEN_PARTITIONS: Final = 100
"""Into how many partitions a piece writes at once. With more, files are finished early."""


@dataclass(frozen=True, slots=True)
class PartitionedFileWriter(ParquetFileWriter):
    """Opens piece writers that write files of their own for each partition. It is a `LakeFileWriter`.

    Attributes:
        partition_by: The fields of the lake's partition; None if they do not follow from the rows.
    """

    partition_by: tuple[RowTransform, ...] | None = None

    def open_data(self, place: FilePlace, prefix: str, written: Written | None = None) -> PieceWriter:
        """Return a writer of files with the names `prefix`-p`partition`-`number`.parquet."""
        return PartitionedPieceWriter(self, place, prefix, written)


class PartitionedPieceWriter:
    """Writes the rows of one piece into files of their partitions. It is a `PieceWriter` for log tables.

    What all partitions hold in memory is bounded together, and so is the number of files that are open.

    Args:
        settings: How files are written.
        place: The bucket and the values of Fluss's partition.
        prefix: The beginning of the files' locations.
        written: Hears of the rows of data files.
    """

    def __init__(
        self, settings: PartitionedFileWriter, place: FilePlace, prefix: str, written: Written | None = None
    ) -> None:
        self._settings = settings
        self._place = place
        self._prefix = prefix
        self._written = written
        self._most_bytes = most_buffered_bytes(settings)
        self._writers: dict[RowPartition, ParquetPieceWriter] = {}
        self._dictionaries = Dictionaries()
        self._arrived: list[pa.RecordBatch] = []
        self._arrived_bytes = 0

    def write(self, rows: pa.RecordBatch, offsets: Int64s, timestamps_ms: Int64s) -> None:
        """Add rows. A lake table that is partitioned by its rows has none of Fluss's three columns."""
        self._arrived.append(rows)
        self._arrived_bytes += rows.nbytes
        if self._arrived_bytes >= min(_DIVIDED_BYTES, self._most_bytes):
            self._divide()

    def _divide(self) -> None:
        """Give the rows that have arrived to their partitions. One by one, small batches would take much longer."""
        rows = pa.concat_batches(self._arrived) if self._arrived else None
        self._arrived, self._arrived_bytes = [], 0
        if rows is None or not rows.num_rows:
            return
        for partition, columns in rows_by_partition(rows.columns, self._settings.partition_by or ()):
            self._writer(partition).write_columns(columns)
        while sum(each.buffered_bytes for each in self._writers.values()) > self._most_bytes:
            max(self._writers.values(), key=lambda each: each.buffered_bytes).flush()
        if sum(each.is_open for each in self._writers.values()) > _OPEN_PARTITIONS:
            for each in self._writers.values():
                each.flush(finish=True)

    def _writer(self, partition: RowPartition) -> ParquetPieceWriter:
        if partition not in self._writers:
            place = replace(self._place, row_partition=partition)
            prefix = f"{self._prefix}-p{len(self._writers)}"
            self._writers[partition] = ParquetPieceWriter(
                self._settings, place, prefix, self._written, self._dictionaries
            )
        return self._writers[partition]

    def delete(self, keys: pa.RecordBatch) -> None:
        """Raise an error, since rows are deleted in whatever partition they are: see `PositionFileWriter`."""
        raise TypeError("this writer deletes nothing: expected a table without a primary key")

    def close(self) -> Sequence[LakeFile]:
        """Finish the files and return them."""
        self._divide()
        return [file for each in self._writers.values() for file in each.close()]

    def abort(self) -> None:
        """Delete what was written, as far as possible. Files that remain are orphans."""
        for each in self._writers.values():
            each.abort()
