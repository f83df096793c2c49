"""Fluss's log batch: the unit in which rows are appended to a bucket's log, kept in segment files and sent to readers.

    base offset i64 · length i32 · magic i8 · commit timestamp i64 · [leader epoch i32, magic 1] · CRC32C u32 ·
    schema id i16 · attributes i8 · last offset delta i32 · writer id i64 · batch sequence i32 · record count i32

in little-endian order (Fluss's `LogRecordBatchFormat`). Unless bit 0 of the attributes says append only, a change type
of one byte for each record follows; then one Arrow record-batch message without its schema, perhaps with a compressed
body. The length counts the bytes behind itself, the checksum covers the bytes behind itself. A batch without records
has no Arrow message, and still takes up the one offset that it starts at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from fluss_tiering.formats.projection import no_columns
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

LogCompression = Literal["NONE", "LZ4_FRAME", "ZSTD"]
"""Values of Fluss's `table.log.arrow.compression.type`."""

ChangeTypes = npt.NDArray[np.uint8]

_PREFIX: Final = struct.Struct("<qib")
_LAYOUTS: Final = {0: struct.Struct("<qibqIhbiqii"), 1: struct.Struct("<qibqiIhbiqii")}
_LENGTH_END: Final = 12
_CRC_SIZE: Final = 4
_CRC_TO_END_OF_HEADER: Final = 23
"""Bytes of the header that the checksum covers: from the schema id on, in both layouts."""
_MAX_LENGTH: Final = 2**31 - 1
_APPEND_ONLY: Final = 1
_NO_WRITER_ID: Final = -1
_NO_BATCH_SEQUENCE: Final = -1
_IN_THIS_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)
_ZSTD_LEVEL: Final = 3
"""The default of Fluss's `table.log.arrow.compression.zstd.level`."""


class ChangeType(IntEnum):
    """What a record does, as the byte that stands for it (Fluss's `ChangeType`)."""

    APPEND_ONLY = 0
    INSERT = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    DELETE = 4


_LAST_CHANGE_TYPE: Final = int(max(ChangeType))


@dataclass(frozen=True, slots=True)
class LogBatchHeader:
    """What stands before the records.

    Attributes:
        size: bytes of the whole batch, header included.
        commit_timestamp: ms since the epoch.
        last_offset: of the last record; equal to `base_offset` in a batch without records.
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

    @property
    def next_offset(self) -> int:
        """The offset at which the next batch starts."""
        return self.last_offset + 1

    @property
    def header_size(self) -> int:
        """Bytes up to the change types, or the records where there are none."""
        return _LAYOUTS[self.magic].size


@dataclass(frozen=True, slots=True, eq=False)
class LogBatch:
    """Records with consecutive offsets from `base_offset` on.

    Attributes:
        commit_timestamp: ms since the epoch.
        change_types: one `ChangeType` for each record; None when all are APPEND_ONLY.
    """

    base_offset: int
    commit_timestamp: int
    change_types: ChangeTypes | None
    records: pa.RecordBatch

    def slice(self, from_offset: int, to_offset: int) -> LogBatch:
        """The records of this batch in the offset range [from_offset, to_offset), without a copy; may be none."""
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
    """A batch in the layout of magic 0, from no writer in particular.

    Args:
        base_offset: offset of the first record.
        commit_timestamp: ms since the epoch.
        records: in the Arrow schema of the table; may be none.
        schema_id: of the table's schema.
        change_types: one for each record; None for an append-only batch.
        compression: of the Arrow message's body.

    Raises:
        FlussTieringError: INVALID_ROWS when the batch would be larger than its length field can say.
    """
    append_only = change_types is None
    kinds = b"" if change_types is None else np.ascontiguousarray(change_types, dtype=np.uint8).tobytes()
    if change_types is not None and len(kinds) != records.num_rows:
        raise ValueError(f"{len(kinds)} change types for {records.num_rows} records")
    message = _arrow_message(records, compression) if records.num_rows else memoryview(b"")
    layout = _LAYOUTS[0]
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
    covered = layout.size - _CRC_TO_END_OF_HEADER
    crc = crc32c(message, crc32c(kinds, crc32c(memoryview(header)[covered:])))
    header[covered - _CRC_SIZE : covered] = crc.to_bytes(_CRC_SIZE, "little")
    return b"".join((header, kinds, message))


def read_header(buffer: pa.Buffer | memoryview, position: int) -> LogBatchHeader | None:
    """The header of the batch at a position, or None when the buffer ends before that batch does (a torn tail).

    The checksum is not looked at: `check_crc` does that.

    Raises:
        FlussTieringError: CORRUPT_DATA when the bytes there are no header.
    """
    left = len(buffer) - position
    if left < _PREFIX.size:
        return None
    _, length, magic = _PREFIX.unpack_from(buffer, position)
    layout = _LAYOUTS.get(magic)
    if layout is None:
        _corrupt(position, f"has magic {magic}, expected 0 or 1")
    size = _LENGTH_END + length
    if size < layout.size:
        _corrupt(position, f"claims {size} bytes in all, which is less than its header")
    if left < size:
        return None
    base_offset, _, _, commit_timestamp, *_, crc, schema_id, attributes, delta, _, _, count = layout.unpack_from(
        buffer, position
    )
    if count < 0 or delta < max(count - 1, 0) or base_offset < 0:
        _corrupt(position, f"claims {count} records from offset {base_offset} to {base_offset + delta}")
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
    )


def check_crc(buffer: pa.Buffer | memoryview, position: int, header: LogBatchHeader) -> None:
    """Checks the batch with this header, which stands at this position, against its checksum.

    Raises:
        FlussTieringError: CORRUPT_DATA when they differ.
    """
    start = position + header.header_size - _CRC_TO_END_OF_HEADER
    actual = crc32c(memoryview(buffer)[start : position + header.size])
    if actual != header.crc:
        _corrupt(position, f"has the checksum {actual:#010x}, expected {header.crc:#010x}")


def decode_log_batch(
    buffer: pa.Buffer | memoryview,
    position: int,
    schema: pa.Schema,
    *,
    included: Sequence[int] | None = None,
    verify_crc: bool = True,
) -> LogBatch:
    """The whole batch at a position; an uncompressed one, of all columns, is not copied and keeps the buffer alive.

    Args:
        buffer: bytes of a log, from a file or a response.
        position: at which the batch starts.
        schema: Arrow schema of the columns that the batch holds: the table's.
        included: indexes of the columns that are decoded, ascending, none of which may be; None for all.
        verify_crc: whether to read all bytes once more to check them; without, a wrong byte may become a wrong value,
            and no more than that: what the batch says of itself must fit together.

    Raises:
        FlussTieringError: CORRUPT_DATA naming the position when the batch is incomplete, fails its checksum or does
            not hold records of that schema.
    """
    header = read_header(buffer, position)
    if header is None:
        _corrupt(position, "is incomplete")
    _check(buffer, position, header, verify_crc=verify_crc)
    change_types = _change_types(buffer, position, header)
    if included is not None and not included:
        records = no_columns(header.record_count)
    elif header.record_count == 0:
        records = _no_records(schema, included)
    else:
        message_start = position + header.header_size + (0 if header.append_only else header.record_count)
        message = pa.py_buffer(buffer).slice(message_start, position + header.size - message_start)
        records = _read_records(message, schema, included, position, full=not verify_crc)
        if records.num_rows != header.record_count:
            _corrupt(position, f"holds {records.num_rows} records, expected {header.record_count}")
    return LogBatch(header.base_offset, header.commit_timestamp, change_types, records)


def decode_log_batches(
    buffer: pa.Buffer | memoryview,
    batches: Sequence[tuple[int, LogBatchHeader]],
    schema: pa.Schema,
    *,
    included: Sequence[int] | None = None,
    verify_crc: bool = True,
) -> Iterator[LogBatch]:
    """Whole batches, with position and header of each, as `decode_log_batch` has them; many small ones in less time.

    Their messages are read as one stream: only a stream can be told not to decompress in threads of its own, which
    costs a third more and wins nothing where each core has batches of its own.

    Raises:
        FlussTieringError: CORRUPT_DATA, as `decode_log_batch`, for a batch that is damaged, behind those before it.
    """
    if included is not None and not included:
        for position, _ in batches:
            yield decode_log_batch(buffer, position, schema, included=included, verify_crc=verify_crc)
        return
    view = memoryview(buffer)
    messages = []
    for position, header in batches:
        kinds = 0 if header.append_only else header.record_count
        if header.record_count:
            messages.append(view[position + header.header_size + kinds : position + header.size])
    reader = _stream(schema, messages, included)
    for number, (position, header) in enumerate(batches):
        _check(buffer, position, header, verify_crc=verify_crc)
        try:
            records = reader.read_next_batch() if header.record_count else _no_records(schema, included)
            records.validate(full=not verify_crc)
        except (pa.ArrowException, OSError, StopIteration):
            records = None
        if records is None or records.num_rows != header.record_count:
            # Each by itself tells which one is damaged, and what stands behind a wrong end is not read as a message.
            for each, _ in batches[number:]:
                yield decode_log_batch(buffer, each, schema, included=included, verify_crc=verify_crc)
            return
        yield LogBatch(header.base_offset, header.commit_timestamp, _change_types(buffer, position, header), records)


def iter_log_batches(
    buffer: pa.Buffer | memoryview, schema: pa.Schema, *, position: int = 0, verify_crc: bool = True
) -> Iterator[LogBatch]:
    """The batches from a position on, up to the end of the buffer or the torn tail there.

    Raises:
        FlussTieringError: CORRUPT_DATA, as `decode_log_batch`.
    """
    while (header := read_header(buffer, position)) is not None:
        yield decode_log_batch(buffer, position, schema, verify_crc=verify_crc)
        position += header.size


def _arrow_message(records: pa.RecordBatch, compression: LogCompression) -> memoryview:
    """The encapsulated record-batch message: an IPC stream without its schema and its end mark."""
    if compression == "NONE":
        return memoryview(records.serialize())
    codec = pa.Codec("zstd", _ZSTD_LEVEL) if compression == "ZSTD" else pa.Codec("lz4")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(records)
        end = sink.tell()
    start = records.schema.serialize().size
    return memoryview(sink.getvalue())[start:end]


def _check(buffer: pa.Buffer | memoryview, position: int, header: LogBatchHeader, *, verify_crc: bool) -> None:
    if verify_crc:
        check_crc(buffer, position, header)
    elif header.next_offset - header.base_offset != max(header.record_count, 1):
        offsets = f"{header.base_offset} to {header.last_offset}"
        _corrupt(position, f"claims the offsets {offsets} for {header.record_count} records")


def _no_records(schema: pa.Schema, included: Sequence[int] | None) -> pa.RecordBatch:
    none = pa.RecordBatch.from_pylist([], schema=schema)
    return none if included is None else none.select(list(included))


def _stream(
    schema: pa.Schema, messages: Sequence[memoryview], included: Sequence[int] | None
) -> pa.RecordBatchStreamReader:
    """Reads record-batch messages of that schema; of each only what is included is decompressed."""
    # Arrow takes no field for all fields: see `no_columns`.
    options = _IN_THIS_THREAD
    if included is not None:
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=list(included))
    content = b"".join([memoryview(schema.serialize()), *messages])
    return pa.ipc.RecordBatchStreamReader(pa.BufferReader(content), options=options)


def _change_types(buffer: pa.Buffer | memoryview, position: int, header: LogBatchHeader) -> ChangeTypes | None:
    if header.append_only:
        return None
    start = position + header.header_size
    if start + header.record_count > position + header.size:
        _corrupt(position, f"claims {header.record_count} change types but ends before them")
    change_types = np.frombuffer(buffer, np.uint8, header.record_count, start)
    if change_types.size and int(change_types.max()) > _LAST_CHANGE_TYPE:
        _corrupt(position, f"has change type {change_types.max()}, expected at most {_LAST_CHANGE_TYPE}")
    return change_types


def _read_records(
    message: pa.Buffer, schema: pa.Schema, included: Sequence[int] | None, position: int, *, full: bool
) -> pa.RecordBatch:
    """The records in a message; `full` also checks each value, where no checksum stands for them."""
    try:
        if included is None:
            records = pa.ipc.read_record_batch(message, schema)
        else:
            records = _stream(schema, [memoryview(message)], included).read_next_batch()
        records.validate(full=full)
    except (pa.ArrowException, OSError, StopIteration) as error:
        what = str(error).partition("\n")[0] or "no message"
        _corrupt(position, f"holds no records of the table's schema ({what})", error)
    return records


def _corrupt(position: int, what: str, cause: BaseException | None = None) -> NoReturn:
    raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"the log batch at position {position} {what}") from cause
