"""Reduces the changes of a bucket to the last change of each key, in memory of bounded size.

Changes are collected until they take as many bytes as they may, and are then reduced. If that does not make them much
fewer, they are spread over files on the local disk by a hash of their keys, so that all changes of a key are in one
file. In the end each file is reduced on its own, in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.grouping import last_per_key, parts_of
from fluss_tiering.formats.log.batch import ChangeType, ChangeTypes, LogBatch
from fluss_tiering.formats.micros import column_of
from fluss_tiering.model.data_type import DataType
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.files import reporting_os_errors, temporary_folder

DEFAULT_BUFFER_BYTES: Final = 128 << 20
"""How many bytes of changes are held in memory by default."""
_PART_BYTES: Final = 8 << 20
"""About the greatest size of the parts in which changes are taken and yielded."""
_RUN_BYTES: Final = 512 << 10
"""The size up to which small changes are joined. To join larger ones takes longer than to write them as they are."""
_FILES: Final = 16
"""Over how many files changes are spread at once."""
_HASH_BITS: Final = 30
_MOST_SPREADS: Final = 6
"""How often changes can be spread over files. After that the bits of the hash are used up, and all are in memory."""

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Changes of one bucket, in the order of the log.

    Attributes:
        records: The records, in the table's Arrow schema.
        kinds: The change type of each record.
        offsets: The log offset of each record.
        timestamps: The commit time of each record, in milliseconds since the epoch.
    """

    records: pa.RecordBatch
    kinds: ChangeTypes
    offsets: Int64s
    timestamps: Int64s

    @classmethod
    def of(cls, batch: LogBatch) -> Self:
        """Return the changes of a log batch.

        Raises:
            FlussTieringError: CORRUPT_DATA if the batch has no change types.
        """
        if batch.change_types is None:
            raise FlussTieringError(
                ErrorCode.CORRUPT_DATA,
                f"the log batch at offset {batch.base_offset} of a primary-key table has no change types: "
                "expected one for each record; restore the log, or re-create the table",
            )
        count = batch.records.num_rows
        offsets = np.arange(batch.base_offset, batch.base_offset + count)
        return cls(batch.records, batch.change_types, offsets, np.full(count, batch.commit_timestamp, np.int64))

    @property
    def lives(self) -> npt.NDArray[np.bool_]:
        """Whether the row exists after each change."""
        lives: npt.NDArray[np.bool_] = self.kinds != ChangeType.DELETE
        return lives

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        return int(self.records.nbytes) + self.kinds.nbytes + self.offsets.nbytes + self.timestamps.nbytes

    def slice(self, start: int, count: int) -> Changes:
        """Return some of the changes, without a copy."""
        end = start + count
        return Changes(
            self.records.slice(start, count), self.kinds[start:end], self.offsets[start:end], self.timestamps[start:end]
        )

    def take(self, rows: Int64s) -> Changes:
        """Return the changes with these indexes."""
        records = self.records.take(column_of(pa.int64(), rows))
        return Changes(records, self.kinds[rows], self.offsets[rows], self.timestamps[rows])


class Reducer:
    """Reduces changes.

    Args:
        table: The table of the changes.
        buffer_bytes: How many bytes of changes are held in memory.
    """

    def __init__(self, table: TableInfo, buffer_bytes: int = DEFAULT_BUFFER_BYTES) -> None:
        self.table = table
        self._key_names = table.descriptor.primary_key
        self._keys = [table.descriptor.column(name) for name in self._key_names]
        self._buffer_bytes = buffer_bytes

    def reduced(self, batches: Iterable[LogBatch]) -> Iterator[Changes]:
        """Yield the last change of each key, in parts of some MiB. No key is in two of them.

        The parts are in the order of the log, unless changes had to be spread over files.

        Raises:
            FlussTieringError: CORRUPT_DATA if a batch has no change types; STORAGE if the local disk cannot be written.
        """
        return self._reduced((Changes.of(batch) for batch in batches if batch.records.num_rows), 0)

    def _reduced(self, changes: Iterable[Changes], spreads: int) -> Iterator[Changes]:
        arriving = self._parts(changes)
        held: list[Changes] = []
        while self._fill(held, arriving):
            held[:] = self._last(held)
            if _size(held) > self._buffer_bytes / 2 and spreads < _MOST_SPREADS and _count(held) > 1:
                yield from self._reduced_on_disk(held, arriving, spreads)
                return
        yield from self._last(held)

    def _fill(self, held: list[Changes], arriving: Iterator[Changes]) -> bool:
        """Hold more changes until they take too many bytes; return False if that does not happen."""
        size = _size(held)
        while (part := next(arriving, None)) is not None:
            held.append(part)
            size += part.nbytes
            if size > self._buffer_bytes:
                return True
        return False

    def _parts(self, changes: Iterable[Changes]) -> Iterator[Changes]:
        """Yield the changes in parts that are small beside the buffer, however large the batches of the log are."""
        most = min(_PART_BYTES, self._buffer_bytes // 4)
        for each in changes:
            start = 0
            for part in parts_of(each.records, most):
                yield each.slice(start, part.num_rows)
                start += part.num_rows

    def _reduced_on_disk(self, held: list[Changes], arriving: Iterator[Changes], spreads: int) -> Iterator[Changes]:
        """Yield the last changes, after those that are held and those that arrive were spread over files."""
        with temporary_folder("fluss-reduce") as folder:
            with _Files(folder) as files:
                more = True
                while more or held:
                    for part in held:
                        files.spread(part, self._file_numbers(part.records, spreads))
                    held.clear()
                    more = self._fill(held, arriving)
                    held[:] = self._last(held)
            for path in files.paths:
                yield from self._reduced(_stored(path), spreads + 1)

    def _last(self, changes: Sequence[Changes]) -> Iterator[Changes]:
        """Yield the last change of each key, in parts of some MiB."""
        if not changes:
            return
        keys = pa.Table.from_batches([each.records.select(self._key_names) for each in changes])
        last = last_per_key(keys, self._key_names, np.concatenate([each.kinds for each in changes]))
        start = 0
        for run in _runs(changes):
            end = start + _count(run)
            first, behind = np.searchsorted(last, (start, end))
            if first < behind:
                yield _joined(run).take(last[first:behind] - start)
            start = end

    def _file_numbers(self, records: pa.RecordBatch, spreads: int) -> npt.NDArray[np.int64]:
        """Return for each record the number of its file, by some bits of the hash of its key."""
        # Loading compiled code takes a worker longer than reading a small piece of a log.
        from fluss_tiering.formats.bucketing import assign_buckets  # noqa: PLC0415
        from fluss_tiering.formats.keys import encode_keys  # noqa: PLC0415

        hashes = assign_buckets(encode_keys(records, self._keys), DataType.parse("BYTES"), 1 << _HASH_BITS)
        numbers: npt.NDArray[np.int64] = hashes.astype(np.int64) // _FILES**spreads % _FILES
        return numbers


class _Files:
    """The files in a folder over which changes are spread. They are closed at the end of the block.

    Attributes:
        paths: The files that hold changes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}
        self.paths: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        with reporting_os_errors("write to", self._folder):
            for writer in self._writers.values():
                writer.close()

    def spread(self, changes: Changes, numbers: npt.NDArray[np.int64]) -> None:
        """Append each change to the file of its number. The order of the changes in a file stays."""
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=_FILES)
        sorted_changes = changes.take(order)
        with reporting_os_errors("write to", self._folder):
            start = 0
            for number, count in enumerate(counts.tolist()):
                if count:
                    part = _to_stored(sorted_changes.slice(start, count))
                    self._writer(number, part.schema).write_batch(part)
                start += count

    def _writer(self, number: int, schema: pa.Schema) -> pa.RecordBatchStreamWriter:
        writer = self._writers.get(number)
        if writer is None:
            path = self._folder / f"{number}.arrow"
            options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
            writer = self._writers[number] = pa.ipc.new_stream(str(path), schema, options=options)
            self.paths.append(path)
        return writer


_OWN_COLUMNS: Final = (("kind", pa.uint8()), ("offset", pa.int64()), ("timestamp", pa.int64()))
"""The columns of a file after those of the table. They are found by their place: a table may have such names itself."""


def _to_stored(changes: Changes) -> pa.RecordBatch:
    values: tuple[npt.NDArray[np.integer], ...] = (changes.kinds, changes.offsets, changes.timestamps)
    own = [column_of(kind, each) for (_, kind), each in zip(_OWN_COLUMNS, values, strict=True)]
    schema = pa.schema([*changes.records.schema, *(pa.field(*each) for each in _OWN_COLUMNS)])
    return pa.RecordBatch.from_arrays([*changes.records.columns, *own], schema=schema)


def _stored(path: Path) -> Iterator[Changes]:
    """Yield the changes in a file, which is deleted."""
    with reporting_os_errors("read", path), pa.OSFile(str(path)) as file:
        path.unlink()
        with pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(use_threads=False)) as stream:
            for batch in stream:
                *columns, kinds, offsets, timestamps = batch.columns
                records = pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(batch.schema)[: len(columns)]))
                yield Changes(records, kinds.to_numpy(), offsets.to_numpy(), timestamps.to_numpy())


def _size(changes: Iterable[Changes]) -> int:
    return sum(each.nbytes for each in changes)


def _count(changes: Iterable[Changes]) -> int:
    return sum(each.records.num_rows for each in changes)


def _runs(changes: Sequence[Changes]) -> Iterator[list[Changes]]:
    """Yield small changes in runs of about half a MiB, since writers take long for many small batches."""
    run: list[Changes] = []
    size = 0
    for each in changes:
        added = each.nbytes
        if run and size + added > _RUN_BYTES:
            yield run
            run, size = [], 0
        run.append(each)
        size += added
    if run:
        yield run


def _joined(run: Sequence[Changes]) -> Changes:
    if len(run) == 1:
        return run[0]
    return Changes(
        pa.concat_batches([each.records for each in run]),
        np.concatenate([each.kinds for each in run]),
        np.concatenate([each.offsets for each in run]),
        np.concatenate([each.timestamps for each in run]),
    )
