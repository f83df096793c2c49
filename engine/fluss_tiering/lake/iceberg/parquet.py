"""The executor's side: it writes Arrow batches into Parquet files with Iceberg's field ids.

For local files it loads neither pyiceberg nor pandas. A Python worker that starts for a small round would spend more
time on importing them than on writing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fluss_tiering.formats.micros import as_type, column_of
from fluss_tiering.formats.nested_arrays import without_hidden_nulls
from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, LiveDataFile, NotedPlace, RebasedPlace
from fluss_tiering.lake.iceberg.dictionaries import Dictionaries
from fluss_tiering.lake.iceberg.metrics.collector import FileMetricsCollector, columns_with_nan, statistics_without
from fluss_tiering.lake.iceberg.metrics.modes import MetricsMode
from fluss_tiering.lake.iceberg.pruning.bloom_filters import BloomFilters
from fluss_tiering.lake.iceberg.pruning.row_order import sorted_groups
from fluss_tiering.lake.object_store import filesystem_of, naming_expired_credentials, path_of, require_valid
from fluss_tiering.lake.protocol import Int64s, NotingPieceWriter, PieceWriter
from fluss_tiering.lake.shared_folder import require_shared
from fluss_tiering.model.table import BUCKET_COLUMN

_MICROS_PER_MILLI: Final = 1000
_MAX_BUFFERED_ROWS: Final = 1 << 20
_MAX_BUFFERED_BYTES: Final = 64 << 20
"""How much is buffered, which is sorted and written at once: large, but far below memory. Unsorted rows become one row
group, since each has new dictionaries."""
_MIN_BUFFERED_BYTES: Final = 1 << 20
"""How much is buffered at least, also for small files. Rows take about twice as much memory as space in a file."""
_SORTED_GROUP_ROWS: Final = 1 << 17
_SORTED_GROUP_BYTES: Final = 16 << 20
"""About the greatest size of a row group of sorted rows, in memory. Many readers skip only whole row groups."""


@dataclass(frozen=True, slots=True)
class ParquetFileWriter:
    """Opens piece writers. It is a `LakeFileWriter`.

    Attributes:
        schema: The schema of data files: the table's columns and, unless the lake table is clean, Fluss's three, with
            Iceberg's field ids.
        delete_schema: The schema of equality-delete files: the key columns; None for a log table.
        compression: The codec, and the level or None.
        target_file_bytes: The size at which a file is finished and the next one begins.
        io_properties: The lake catalog's properties, for object stores.
        metrics_modes: Which metrics are wanted of each field, by its id.
        shared_folder: A folder that an executor must see, since the driver sees it; None for another store.
        sorted_by: The columns by which the rows of data files are sorted, each buffer of rows on its own. None of
            them: rows stay in the order in which they come.
    """

    schema: pa.Schema
    delete_schema: pa.Schema | None
    compression: tuple[str, int | None]
    target_file_bytes: int
    io_properties: Mapping[str, str] = field(repr=False)
    metrics_modes: Mapping[int, MetricsMode] = field(default_factory=dict)
    shared_folder: str | None = None
    sorted_by: tuple[str, ...] = ()
    bloom_filters: BloomFilters = field(default_factory=BloomFilters)

    def open_piece(
        self,
        bucket: int,
        location: str,
        attempt: int,
        partition_values: tuple[str, ...] = (),
        live: Sequence[LiveDataFile] | None = None,
    ) -> PieceWriter:
        """Return a writer of files with the names `location`-`attempt`-`number`.parquet, which deletes by key.

        Raises:
            FlussTieringError: STORAGE if this executor does not see the folder of the lake.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        if live is not None:
            raise TypeError("this writer deletes by key: expected no live data files")
        self.require_access()
        return self.open_data(FilePlace(bucket, partition_values), f"{location}-{attempt}")

    def open_data(self, place: FilePlace, prefix: str, written: Written | None = None) -> PieceWriter:
        """Return a writer of data files.

        Args:
            place: Where the rows come from.
            prefix: The beginning of the files' locations.
            written: Hears of the rows of data files.
        """
        return ParquetPieceWriter(self, place, prefix, written)

    def open_noting_piece(
        self, bucket: int, location: str, attempt: int, partition_values: tuple[str, ...] = ()
    ) -> NotingPieceWriter:
        """Raise an error, since the keys of deletes are written into the files."""
        raise TypeError("this writer deletes by key: expected no piece that only notes the keys")

    def write_deletes(self, place: NotedPlace, attempt: int) -> Sequence[LakeFile]:
        """Raise an error, since each piece writes its deletes by itself."""
        raise TypeError("this writer deletes by key: expected no pieces whose keys are noted")

    def rebase_deletes(self, place: RebasedPlace, attempt: int) -> Sequence[LakeFile]:
        """Raise an error, since deletes by key are right for each base."""
        raise TypeError("this writer deletes by key: expected no deletes by position")

    def require_access(self) -> None:
        """Look whether this executor can write to the lake.

        Raises:
            FlussTieringError: STORAGE if it does not see the folder of the lake.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        require_shared(self.shared_folder)
        require_valid(self.io_properties)


Written = Callable[[str, pa.Table, int], None]
"""Hears of rows that were written: the data file's location, the rows, and the position of the first one."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """The lake's partition for the files of a piece."""

    bucket: int
    partition_values: tuple[str, ...]
    row_partition: tuple[Any, ...] | None = None


class ParquetPieceWriter:
    """Writes the data files and the equality-delete files of one piece. It is a `PieceWriter`.

    Args:
        settings: How files are written.
        place: The lake's partition.
        prefix: The beginning of the files' locations.
        written: Hears of the rows of data files.
        dictionaries: What is known of the data files of other partitions of the piece.
    """

    def __init__(
        self,
        settings: ParquetFileWriter,
        place: FilePlace,
        prefix: str,
        written: Written | None = None,
        dictionaries: Dictionaries | None = None,
    ) -> None:
        self._bucket = place.bucket
        self._with_places = BUCKET_COLUMN in settings.schema.names
        self._io_properties = settings.io_properties
        self._data = _RollingFiles(
            settings, settings.schema, FileContent.DATA, place, prefix, dictionaries=dictionaries
        )
        self._data.written = written
        self._deletes: _RollingFiles | None = None
        if settings.delete_schema is not None:
            self._deletes = _RollingFiles(
                settings, settings.delete_schema, FileContent.EQUALITY_DELETES, place, f"{prefix}-deletes"
            )

    def write(self, rows: pa.RecordBatch, offsets: Int64s, timestamps_ms: Int64s) -> None:
        """Add rows, with the log offset and the commit timestamp of each row."""
        columns = list(rows.columns)
        if self._with_places:
            columns += [
                column_of(pa.int32(), np.full(rows.num_rows, self._bucket, np.int32)),
                column_of(pa.int64(), offsets),
                column_of(pa.timestamp("us", "UTC"), timestamps_ms * _MICROS_PER_MILLI),
            ]
        self.write_columns(columns)

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of rows are held in memory, before they are written."""
        return self._data.buffered_bytes

    @property
    def is_open(self) -> bool:
        """Whether a data file is open."""
        return self._data.is_open

    def flush(self, *, finish: bool = False) -> None:
        """Write the rows that are held in memory, and finish the file if that is wanted."""
        with naming_expired_credentials(self._io_properties):
            self._data.flush(finish=finish)

    def write_columns(self, columns: Sequence[pa.Array]) -> None:
        """Add rows that have all columns of the schema of data files."""
        with naming_expired_credentials(self._io_properties):
            self._data.write(columns)

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows with these keys, whose columns are in the order of the schema."""
        if self._deletes is None:
            raise TypeError("a log table has no keys to delete by")
        with naming_expired_credentials(self._io_properties):
            self._deletes.write(keys.columns)

    def close(self) -> Sequence[LakeFile]:
        """Finish the files and return them."""
        with naming_expired_credentials(self._io_properties):
            return [*self._data.close(), *(self._deletes.close() if self._deletes else ())]

    def abort(self) -> None:
        """Delete what was written, as far as possible. Files that remain are orphans."""
        self._data.abort()
        if self._deletes:
            self._deletes.abort()


def most_buffered_bytes(settings: ParquetFileWriter) -> int:
    """Return how many bytes of rows a piece holds in memory before it writes them."""
    return min(_MAX_BUFFERED_BYTES, max(_MIN_BUFFERED_BYTES, 2 * settings.target_file_bytes))


class _RollingFiles:
    """Writes files of one content, one after the other, each up to the target size.

    Attributes:
        written: Hears of the rows of the files; None if nobody does.
        buffered_bytes: The size of the rows that are held in memory.
    """

    def __init__(
        self,
        settings: ParquetFileWriter,
        schema: pa.Schema,
        content: FileContent,
        place: FilePlace,
        prefix: str,
        *,
        dictionaries: Dictionaries | None = None,
    ) -> None:
        self._dictionaries = dictionaries or Dictionaries()
        self._settings = settings
        self._schema = schema
        self._content = content
        self._place = place
        self._prefix = prefix
        self.written: Written | None = None
        self._rows_of_open = 0
        self._filesystem = filesystem_of(prefix, settings.io_properties)
        self._buffer: list[pa.RecordBatch] = []
        self._buffered_rows = 0
        self.buffered_bytes = 0
        self._most_bytes = most_buffered_bytes(settings)
        self._sorted_by = settings.sorted_by if content is FileContent.DATA else ()
        self._open: OpenFile | None = None
        self._files: list[LakeFile] = []
        self._with_nan: set[str] = set()
        """The Parquet columns with a NaN so far. The row groups of later files have no bounds of them."""

    def write(self, columns: Sequence[pa.Array]) -> None:
        if not len(columns[0]):
            return
        arrays = [
            without_hidden_nulls(as_type(column, field.type))
            for column, field in zip(columns, self._schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._buffer.append(batch)
        self._buffered_rows += batch.num_rows
        self.buffered_bytes += batch.nbytes
        if self._buffered_rows >= _MAX_BUFFERED_ROWS or self.buffered_bytes >= self._most_bytes:
            self.flush()

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def flush(self, *, finish: bool = False) -> None:
        if self._buffer:
            self._write_buffer()
        if finish:
            self._finish()

    def _write_buffer(self) -> None:
        rows, size = pa.Table.from_batches(self._buffer), self.buffered_bytes
        with_nan = columns_with_nan(rows)
        if not with_nan <= self._with_nan:
            self._with_nan |= with_nan
            self._finish()
        dictionaries = self._dictionaries.of(rows, size)
        groups = iter([rows])
        if self._sorted_by:
            groups = sorted_groups(
                self._buffer, self._sorted_by, most_rows=_SORTED_GROUP_ROWS, most_bytes=_SORTED_GROUP_BYTES
            )
        del rows
        for group in groups:
            self._write_group(group, dictionaries)
        self._buffer, self._buffered_rows, self.buffered_bytes = [], 0, 0

    def _bloom_filters(self, rows: int) -> dict[str, Any]:
        if self._content is not FileContent.DATA:
            return {}
        return self._settings.bloom_filters.options(rows)

    def _write_group(self, rows: pa.Table, dictionaries: Sequence[str]) -> None:
        if self._open is None:
            self._open = OpenFile(
                f"{self._prefix}-{len(self._files):05d}.parquet",
                self._schema,
                self._settings,
                self._filesystem,
                dictionaries=dictionaries,
                with_nan=frozenset(self._with_nan),
                bloom_filters=self._bloom_filters(rows.num_rows),
            )
        self._open.write(rows)
        if self.written is not None:
            self.written(self._open.location, rows, self._rows_of_open)
        self._rows_of_open += rows.num_rows
        if self._open.size >= self._settings.target_file_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._open is not None:
            size, metrics = self._open.close()
            place = self._place
            self._files.append(
                LakeFile(
                    self._content,
                    place.bucket,
                    self._open.location,
                    size,
                    metrics,
                    place.partition_values,
                    row_partition=place.row_partition,
                )
            )
            self._open = None
            self._rows_of_open = 0

    def close(self) -> list[LakeFile]:
        self.flush(finish=True)
        return self._files

    def abort(self) -> None:
        locations = [file.location for file in self._files]
        if self._open is not None:
            locations.append(self._open.location)
            self._open.abandon()
        for location in locations:
            # Whatever fails here, the failure that led here is the one to report.
            with suppress(Exception):
                self._filesystem.delete_file(path_of(location))


class OpenFile:
    """A Parquet file that is being written."""

    def __init__(
        self,
        location: str,
        schema: pa.Schema,
        settings: ParquetFileWriter,
        filesystem: fs.FileSystem,
        *,
        dictionaries: Sequence[str] = (),
        with_nan: Collection[str] = (),
        bloom_filters: Mapping[str, Any] | None = None,
    ) -> None:
        self.location = location
        path = path_of(location)
        if isinstance(filesystem, fs.LocalFileSystem):
            filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        self._metrics = FileMetricsCollector(schema, settings.metrics_modes, with_nan)
        self._footers: list[pq.FileMetaData] = []
        self._sink = filesystem.open_output_stream(path)
        codec, level = settings.compression
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=codec,
            compression_level=level,
            use_dictionary=list(dictionaries),
            write_statistics=statistics_without(schema, with_nan),
            store_schema=False,
            write_page_index=True,
            # Spark writes checksums, too. Nothing else shows that bits flipped within a page.
            write_page_checksum=True,
            # Iceberg's spec wants the physical types int32 and int64 for decimals of up to 9 and 18 digits.
            store_decimal_as_integer=True,
            metadata_collector=self._footers,
            **(bloom_filters or {}),
        )

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        """Add one row group."""
        self._metrics.add_row_group(rows)
        self._writer.write_table(rows, row_group_size=rows.num_rows)

    def close(self) -> tuple[int, FileMetrics]:
        """Finish the file and return its size and its metrics."""
        self._writer.close()
        size = self.size
        self._sink.close()
        return size, self._metrics.metrics(self._footers[0])

    def abandon(self) -> None:
        """Let go of the file, which may be in any state. Nothing is raised."""
        for each in (self._writer, self._sink):
            with suppress(Exception):
                each.close()


def write_file_without_rows(
    settings: ParquetFileWriter, bucket: int, location: str, partition_values: tuple[str, ...] = ()
) -> LakeFile:
    """Write a data file without rows, for a commit that has no other file: see `IcebergTable.commit`."""
    filesystem = filesystem_of(location, settings.io_properties)
    size, metrics = OpenFile(location, settings.schema, settings, filesystem).close()
    return LakeFile(FileContent.DATA, bucket, location, size, metrics, partition_values)
