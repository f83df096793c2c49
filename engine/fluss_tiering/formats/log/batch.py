"""Fluss's log batch, the unit in which rows are appended to a log, kept in segment files and sent to readers.

A batch begins with this header, in little-endian order (Fluss 1.0's `LogRecordBatchFormat`):

    base offset i64 · length i32 · magic i8 · commit timestamp i64 · [leader epoch i32, magic 2] · CRC32C u32 ·
    schema id i16 · attributes i8 · last offset delta i32 · writer id i64 · batch sequence i32 · record count i32 ·
    [length of the statistics i32, magic 1 and 2]

After the header, magic 1 and 2 have statistics of some columns, which may be empty and are skipped here. Then a change
type of one byte follows for each record, unless bit 0 of the attributes says that the batch is append-only. Then an
Arrow record-batch message follows, without its schema. Its body may be compressed. The length counts the bytes after
itself, and the checksum covers the bytes after itself. A batch without records has no Arrow message. It still takes the
offset at which it starts. The batches of one log may have different magics.

Fluss 0.9.1 has another layout under the name of magic 1: that of magic 0 with a leader epoch. None of its writers makes
such batches, and 1.0 would not read them either.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

LogCompression = Literal["NONE", "LZ4_FRAME", "ZSTD"]
"""The values of Fluss's option `table.log.arrow.compression.type`."""

ChangeTypes = npt.NDArray[np.uint8]

_PREFIX: Final = struct.Struct("<qib")
_LENGTH_END: Final = 12
_CRC_SIZE: Final = 4
_MAX_LENGTH: Final = 2**31 - 1
_APPEND_ONLY: Final = 1
_NO_WRITER_ID: Final = -1
_NO_BATCH_SEQUENCE: Final = -1
_ZSTD_LEVEL: Final = 3
"""The default of Fluss's option `table.log.arrow.compression.zstd.level`."""
_STATISTICS_LENGTH: Final = struct.Struct("<i")
_DELTA: Final = struct.Struct("<i")
_DELTA_POSITION: Final = {0: 28, 1: 28, 2: 32}
"""The position of the last offset delta in a batch, by magic."""
_NO_WRITER: Final = struct.pack("<qi", -1, -1)
_NO_WRITER_POSITION: Final = 32
"""The position of writer id and batch sequence in a batch that `encode_log_batch` made. It names no writer."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout of a magic: `fields` has the header up to the record count, and a leader epoch may be among them."""

    fields: struct.Struct
    crc_end: int
    has_statistics: bool

    @property
    def header_size(self) -> int:
        return self.fields.size + (_STATISTICS_LENGTH.size if self.has_statistics else 0)


_LAYOUTS: Final = {
    0: _Layout(struct.Struct("<qibqIhbiqii"), crc_end=25, has_statistics=False),
    1: _Layout(struct.Struct("<qibqIhbiqii"), crc_end=25, has_statistics=True),
    2: _Layout(struct.Struct("<qibqiIhbiqii"), crc_end=29, has_statistics=True),
}


class ChangeType(IntEnum):
    """The kind of change that a record is, with the byte that stands for it (Fluss's `ChangeType`)."""

    APPEND_ONLY = 0
    INSERT = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    DELETE = 4


class UnknownMagicError(FlussTieringError):
    """CORRUPT_DATA for a batch of an unknown magic. If others write the log, a newer Fluss may have made it."""

    def __init__(self, position: int, magic: int) -> None:
        expected = ", ".join(map(str, _LAYOUTS))
        super().__init__(
            ErrorCode.CORRUPT_DATA,
            f"the log batch at position {position} has magic {magic}, expected one of {expected}",
        )


@dataclass(frozen=True, slots=True)
class LogBatchHeader:
    """The header of a batch.

    Attributes:
        base_offset: The offset of the first record.
        size: The number of bytes of the whole batch, including the header.
        magic: The version of the layout.
        commit_timestamp: The commit time of the records, in milliseconds since the epoch.
        crc: The checksum.
        schema_id: The id of the table's schema.
        append_only: Whether the batch has no change types.
        last_offset: The offset of the last record. It equals `base_offset` in a batch without records.
        record_count: The number of records.
        statistics_size: The number of bytes of the statistics, which follow the header.
    """

    base_offset: int
    size: int
    magic: int
    commit_timestamp: int
    crc: int
    schema_id: int
    append_only: bool
    last_offset: int
    record_count: int
    statistics_size: int

    @property
    def next_offset(self) -> int:
        """The offset at which the next batch starts."""
        return self.last_offset + 1

    @property
    def header_size(self) -> int:
        """The number of bytes before the statistics, or before what follows them if there are none."""
        return _LAYOUTS[self.magic].header_size

    @property
    def change_types_start(self) -> int:
        """The number of bytes before the change types, or before the records if there are no change types."""
        return self.header_size + self.statistics_size

    @property
    def records_start(self) -> int:
        """The number of bytes before the records: the header, the statistics and the change types."""
        return self.change_types_start + (0 if self.append_only else self.record_count)


@dataclass(frozen=True, slots=True, eq=False)
class LogBatch:
    """The records of a batch. Their offsets are consecutive.

    Attributes:
        base_offset: The offset of the first record.
        commit_timestamp: The commit time of the records, in milliseconds since the epoch.
        change_types: The `ChangeType` of each record, or None if all of them are APPEND_ONLY.
        records: The records, as Arrow columns.
    """

    base_offset: int
    commit_timestamp: int
    change_types: ChangeTypes | None
    records: pa.RecordBatch

    def slice(self, from_offset: int, to_offset: int) -> LogBatch:
        """Return the records with the offsets [from_offset, to_offset), without a copy. There may be none."""
        count = self.records.num_rows
        start = min(max(from_offset - self.base_offset, 0), count)
        stop = min(max(to_offset - self.base_offset, start), count)
        change_types = None if self.change_types is None else self.change_types[start:stop]
        return LogBatch(
            self.base_offset + start, self.commit_timestamp, change_types, self.records.slice(start, stop - start)
        )


def encode_log_batch(
    base_offset: int,
    commit_timestamp: int,
    records: pa.RecordBatch,
    *,
    schema_id: int,
    change_types: ChangeTypes | None,
    compression: LogCompression,
) -> bytes:
    """Return the bytes of a batch in the layout of magic 0, without the id of a writer.

    Args:
        base_offset: The offset of the first record.
        commit_timestamp: The commit time of the records, in milliseconds since the epoch.
        records: The records, in the Arrow schema of the table. There may be none.
        schema_id: The id of the table's schema.
        change_types: The change type of each record, or None for an append-only batch.
        compression: The compression of the body of the Arrow message.

    Raises:
        FlussTieringError: INVALID_ROWS if the length of the batch does not fit into its length field.
    """
    append_only = change_types is None
    kinds = b"" if change_types is None else np.ascontiguousarray(change_types, dtype=np.uint8).tobytes()
    if change_types is not None and len(kinds) != records.num_rows:
        raise ValueError(f"{len(kinds)} change types for {records.num_rows} records")
    message = _arrow_message(records, compression) if records.num_rows else memoryview(b"")
    layout = _LAYOUTS[0].fields
    length = layout.size - _LENGTH_END + len(kinds) + len(message)
    if length > _MAX_LENGTH:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"{records.num_rows} rows make a log batch of {length} bytes: expected at most {_MAX_LENGTH}; "
            "write fewer rows at once",
        )
    header = bytearray(layout.size)
    layout.pack_into(
        header,
        0,
        base_offset,
        length,
        0,
        commit_timestamp,
        0,
        schema_id,
        _APPEND_ONLY if append_only else 0,
        max(records.num_rows - 1, 0),
        _NO_WRITER_ID,
        _NO_BATCH_SEQUENCE,
        records.num_rows,
    )
    covered = _LAYOUTS[0].crc_end
    crc = crc32c(message, crc32c(kinds, crc32c(memoryview(header)[covered:])))
    header[covered - _CRC_SIZE : covered] = crc.to_bytes(_CRC_SIZE, "little")
    return b"".join((header, kinds, message))


def read_header(buffer: pa.Buffer | memoryview, position: int) -> LogBatchHeader | None:
    """Return the header of the batch at a position, or None if the buffer ends before the batch does.

    The checksum is not compared. `check_crc` does that.

    Raises:
        FlussTieringError: CORRUPT_DATA if the bytes at the position are not a header. It is an `UnknownMagicError` if
            the bytes may be one of a newer layout.
    """
    left = len(buffer) - position
    if left < _PREFIX.size:
        return None
    _, length, magic = _PREFIX.unpack_from(buffer, position)
    layout = _LAYOUTS.get(magic)
    if layout is None:
        raise UnknownMagicError(position, magic)
    size = _LENGTH_END + length
    if size < layout.header_size:
        corrupt_batch(position, f"claims {size} bytes in all, which is less than its header")
    if left < size:
        return None
    base_offset, _, _, commit_timestamp, *_, crc, schema_id, attributes, delta, _, _, count = layout.fields.unpack_from(
        buffer, position
    )
    if count < 0 or delta < max(count - 1, 0) or base_offset < 0:
        corrupt_batch(position, f"claims {count} records from offset {base_offset} to {base_offset + delta}")
    statistics_size = 0
    if layout.has_statistics:
        (statistics_size,) = _STATISTICS_LENGTH.unpack_from(buffer, position + layout.fields.size)
        if not 0 <= statistics_size <= size - layout.header_size:
            corrupt_batch(position, f"claims {statistics_size} bytes of statistics in a batch of {size} bytes")
    return LogBatchHeader(
        base_offset=base_offset,
        size=size,
        magic=magic,
        commit_timestamp=commit_timestamp,
        crc=crc,
        schema_id=schema_id,
        append_only=bool(attributes & _APPEND_ONLY),
        last_offset=base_offset + delta,
        record_count=count,
        statistics_size=statistics_size,
    )


def check_crc(buffer: pa.Buffer | memoryview, position: int, header: LogBatchHeader) -> None:
    """Compare a batch with its checksum.

    Raises:
        FlussTieringError: CORRUPT_DATA if the checksum differs.
    """
    start = position + _LAYOUTS[header.magic].crc_end
    actual = crc32c(memoryview(buffer)[start : position + header.size])
    if actual != header.crc:
        corrupt_batch(position, f"has the checksum {actual:#010x}, expected {header.crc:#010x}")


def _arrow_message(records: pa.RecordBatch, compression: LogCompression) -> memoryview:
    """Return the encapsulated record-batch message, which is an IPC stream without its schema and its end mark."""
    if compression == "NONE":
        return memoryview(records.serialize())
    codec = pa.Codec("zstd", _ZSTD_LEVEL) if compression == "ZSTD" else pa.Codec("lz4")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(records)
        end = sink.tell()
    start = records.schema.serialize().size
    return memoryview(sink.getvalue())[start:end]


def corrupt_batch(position: int, what: str, cause: BaseException | None = None) -> NoReturn:
    """Raise CORRUPT_DATA for the batch at a position."""
    raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"the log batch at position {position} {what}") from cause


def seek_batch(log: memoryview, offset: int) -> int:
    """Return the position of the first batch whose last offset is not below an offset.

    If there is no such batch, the result is the position after the last batch. The search goes from header to header,
    through about a million batches per second. It reads nothing after the batch that it finds.
    """
    position = 0
    limit = len(log) - max(_DELTA_POSITION.values()) - _DELTA.size
    while position <= limit:
        base_offset, length, magic = _PREFIX.unpack_from(log, position)
        delta_position = _DELTA_POSITION.get(magic)
        if delta_position is None or length < 0:
            return position
        if base_offset + _DELTA.unpack_from(log, position + delta_position)[0] >= offset:
            return position
        position += _LENGTH_END + length
    return position


def find_whole_batch(log: memoryview, position: int, after_offset: int) -> int | None:
    """Return the position of a whole batch after a damaged place, or None if there is none.

    Args:
        log: The bytes of a log that this package wrote.
        position: The position at which the search begins.
        after_offset: The offset that the base offset of the batch must exceed.
    """
    tail = bytes(log[position:])
    found = tail.find(_NO_WRITER)
    while found >= 0:
        candidate = found - _NO_WRITER_POSITION
        if candidate >= 0 and _is_whole(memoryview(tail), candidate, after_offset):
            return position + candidate
        found = tail.find(_NO_WRITER, found + 1)
    return None


def _is_whole(log: memoryview, position: int, after_offset: int) -> bool:
    try:
        header = read_header(log, position)
        if header is None or header.base_offset <= after_offset:
            return False
        check_crc(log, position, header)
    except FlussTieringError:
        return False
    return True
