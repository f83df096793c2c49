"""Reads log batches: what `log_batch` lays out becomes Arrow records and change types, of all columns or of some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.log.batch import (
    ChangeType,
    ChangeTypes,
    LogBatch,
    LogBatchHeader,
    check_crc,
    corrupt_batch,
    read_header,
)
from fluss_tiering.formats.projection import no_columns

_IN_THIS_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)
_LAST_CHANGE_TYPE: Final = int(max(ChangeType))


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
        corrupt_batch(position, "is incomplete")
    _check(buffer, position, header, verify_crc=verify_crc)
    change_types = _change_types(buffer, position, header)
    if included is not None and not included:
        records = no_columns(header.record_count)
    elif header.record_count == 0:
        records = _no_records(schema, included)
    else:
        start = position + header.records_start
        message = pa.py_buffer(buffer).slice(start, position + header.size - start)
        records = _read_records(message, schema, included, position, full=not verify_crc)
        if records.num_rows != header.record_count:
            corrupt_batch(position, f"holds {records.num_rows} records, expected {header.record_count}")
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
        if header.record_count:
            messages.append(view[position + header.records_start : position + header.size])
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


def _check(buffer: pa.Buffer | memoryview, position: int, header: LogBatchHeader, *, verify_crc: bool) -> None:
    if verify_crc:
        check_crc(buffer, position, header)
    elif header.next_offset - header.base_offset != max(header.record_count, 1):
        offsets = f"{header.base_offset} to {header.last_offset}"
        corrupt_batch(position, f"claims the offsets {offsets} for {header.record_count} records")


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
        corrupt_batch(position, f"claims {header.record_count} change types but ends before them")
    change_types = np.frombuffer(buffer, np.uint8, header.record_count, start)
    if change_types.size and int(change_types.max()) > _LAST_CHANGE_TYPE:
        corrupt_batch(position, f"has change type {change_types.max()}, expected at most {_LAST_CHANGE_TYPE}")
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
        corrupt_batch(position, f"holds no records of the table's schema ({what})", error)
    return records
