"""The executor's side of a rewrite: the files of one place become fewer, sorted ones without deleted rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark import TaskContext

from fluss_tiering.lake.files import LakeFile, LiveDataFile
from fluss_tiering.lake.iceberg.by_position import PositionFileWriter
from fluss_tiering.lake.iceberg.by_position.place_index import PlaceIndex
from fluss_tiering.lake.iceberg.deletes import DeletePlace, present_deletes
from fluss_tiering.lake.iceberg.maintenance.file_rows import (
    LINEAGE,
    Lineage,
    UnknownLayoutError,
    first_offset,
    read_rows,
)
from fluss_tiering.lake.iceberg.parquet import FilePlace, ParquetFileWriter, ParquetPieceWriter, Written
from fluss_tiering.lake.object_store import naming_expired_credentials, path_of
from fluss_tiering.lake.parallel import map_on_store
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


@dataclass(frozen=True, slots=True)
class PlaceWork:
    """The files of one bucket of one partition that are rewritten in one commit.

    Attributes:
        partition_values: The value of each partition key of the table.
        location: The beginning of the locations of the new files.
        live: All data files that the place has.
        groups: The indexes in `live` of the files of each group. Files of different groups do not become one file.
        lineage: The lineage of the rows of these files, by location; empty if the table has none.
    """

    bucket: int
    partition_values: tuple[str, ...]
    location: str
    live: tuple[LiveDataFile, ...]
    groups: tuple[tuple[int, ...], ...]
    lineage: Mapping[str, Lineage] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class NewFiles:
    """What became of the files of a place.

    Attributes:
        files: The new data files; none if no row is left.
        unknown_layout: Why the files cannot be read here; None if they can.
    """

    files: tuple[LakeFile, ...] = field(default=(), repr=False)
    unknown_layout: str | None = None


@dataclass(frozen=True, slots=True)
class PlaceRewriter:
    """Rewrites the files of places. It is pickled, and called on executors.

    Its memory is that of the buffer of a data file's writer, of the key index's buffers, and of the bitmaps of deleted
    rows.

    Attributes:
        writer: The table's writer of files.
    """

    writer: ParquetFileWriter

    def __call__(self, work: PlaceWork) -> NewFiles:
        """Write the rows of the files of a place again, each group on its own, and note them in the key index.

        Raises:
            FlussTieringError: CORRUPT_DATA if a file of the lake is damaged; STORAGE if this executor does not see the
                folder of the lake.
            ExpiredCredentialsError: if the credentials for the lake's store are not valid any more.
        """
        self.writer.require_access()
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        place = DeletePlace(self.writer, work.bucket, work.location, attempt, work.partition_values)
        files: list[LakeFile] = []
        try:
            with naming_expired_credentials(place.io_properties), self._index(place, work.live) as index:
                for number, group in enumerate(work.groups):
                    old = [work.live[each] for each in group]
                    files += self._rewritten(place, number, old, work.lineage, index)
                if index is not None and isinstance(self.writer, PositionFileWriter):
                    index.save(self.writer.base)
        except UnknownLayoutError as error:
            _delete(place, files)
            return NewFiles(unknown_layout=str(error))
        except BaseException:
            _delete(place, files)
            raise
        return NewFiles(tuple(files))

    def _index(self, place: DeletePlace, live: Sequence[LiveDataFile]) -> AbstractContextManager[PlaceIndex | None]:
        if isinstance(self.writer, PositionFileWriter):
            return self.writer.index_of(place, live)
        return nullcontext()

    def _rewritten(
        self,
        place: DeletePlace,
        number: int,
        files: Sequence[LiveDataFile],
        lineage: Mapping[str, Lineage],
        index: PlaceIndex | None,
    ) -> Sequence[LakeFile]:
        filesystem = place.open()
        if not self.writer.sorted_by:
            # The rows of a log come in its order, as far as files do not overlap.
            offsets = map_on_store(place.location, lambda file: first_offset(filesystem, file), files)
            files = [files[each] for each in sorted(range(len(files)), key=offsets.__getitem__)]
        present = present_deletes(place, {file.location: file.deletes for file in files})
        expected = 0
        with self._open(place, number, _noting(self.writer, index), with_lineage=bool(lineage)) as data:
            for file in files:
                deleted = present[file.location].everything()
                expected += file.rows - len(deleted)
                of_file = lineage.get(file.location)
                for columns in read_rows(filesystem, file, self.writer.schema, deleted, of_file):
                    data.write_columns(columns)
            written = data.close()
        rows = sum(file.metrics.record_count for file in written)
        if rows != expected:
            _delete(place, written)
            raise FlussTieringError(
                ErrorCode.CORRUPT_DATA,
                f"the data files {', '.join(file.location for file in files[:3])} have {rows} rows that are not "
                f"deleted, expected {expected}: a delete file names rows that do not exist; nothing was changed",
            )
        return written

    @contextmanager
    def _open(
        self, place: DeletePlace, number: int, written: Written | None, *, with_lineage: bool
    ) -> Iterator[ParquetPieceWriter]:
        writer = self.writer
        if with_lineage:
            writer = replace(writer, schema=pa.schema([*writer.schema, *LINEAGE]))
        data = ParquetPieceWriter(
            writer,
            FilePlace(place.bucket, place.partition_values),
            f"{place.location}-{place.attempt}-{number:03d}",
            written,
        )
        try:
            yield data
        except BaseException:
            data.abort()
            raise


def _noting(writer: ParquetFileWriter, index: PlaceIndex | None) -> Written | None:
    if index is None or writer.delete_schema is None:
        return None
    names = writer.delete_schema.names
    return lambda location, rows, first: index.add(location, [rows.column(name) for name in names], first)


def _delete(place: DeletePlace, files: Sequence[LakeFile]) -> None:
    """Delete files of this attempt, as far as possible. Files that remain are orphans."""
    # Whatever fails here, the failure that led here is the one to report.
    with suppress(Exception):
        filesystem = place.open()
        for file in files:
            with suppress(OSError):
                filesystem.delete_file(path_of(file.location))
