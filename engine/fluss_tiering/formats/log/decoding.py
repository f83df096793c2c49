"""The decoding of log batches into Arrow records and change types, with all columns or with some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from fluss_tiering.formats.log.java_batches import with_offsets, without_empty_frames
from fluss_tiering.formats.schema import no_columns
from fluss_tiering.formats.stored_schemas import StoredSchemas

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
    """Decode the batch at a position.

    A batch that is not compressed is not copied if all of its columns are decoded. It then keeps the buffer alive.

    Args:
        buffer: The bytes of a log, from a file or a response.
        position: The position at which the batch starts.
        included: The indexes of the columns to decode, ascending, or None for all columns. There may be no index.
        verify_crc: Whether to read all bytes once more and compare the checksum. If it is False, a wrong byte may
            become a wrong value. It can do no other harm, because lengths, counts and offsets are still checked.

    Raises:
        FlussTieringError: CORRUPT_DATA if the batch is incomplete, its checksum differs, or it does not hold records of
            this schema. The message names the position.
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


def decode_stored_batch(buffer: pa.Buffer | memoryview, position: int, schemas: StoredSchemas) -> LogBatch:
    """Decode the batch at a position, of any schema of its table, to the wanted ones of the present columns.

    Raises:
        FlussTieringError: CORRUPT_DATA as for `decode_log_batch`; INVALID_TABLE as in `StoredSchemas.columns`.
    """
    header = read_header(buffer, position)
    if header is None:
        corrupt_batch(position, "is incomplete")
    stored = header.schema_id
    batch = decode_log_batch(buffer, position, schemas.arrow(stored), included=schemas.included(stored))
    return replace(batch, records=schemas.to_present(batch.records, stored))


def decode_log_batches(
    buffer: pa.Buffer | memoryview,
    batches: Sequence[tuple[int, LogBatchHeader]],
    schema: pa.Schema,
    *,
    included: Sequence[int] | None = None,
    verify_crc: bool = True,
) -> Iterator[LogBatch]:
    """Decode whole batches as `decode_log_batch` does, but take less time for many small batches.

    The messages are read as one stream, because only a stream can be told not to decompress in threads of its own. Such
    threads cost a third more, and they gain nothing if each core has batches of its own.

    Args:
        buffer: The bytes of a log, from a file or a response.
        batches: The position and the header of each batch.
        included: The indexes of the columns to decode, ascending, or None for all columns.
        verify_crc: Whether to compare the checksums.

    Raises:
        FlussTieringError: CORRUPT_DATA if a batch is damaged. The batches before it are yielded first.
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
            records = with_offsets(records)
        except (pa.ArrowException, OSError, StopIteration):
            records = None
        if records is None or records.num_rows != header.record_count:
            # Each batch is decoded by itself to find the damaged one. No bytes after a wrong end are read as a message.
            for each, _ in batches[number:]:
                yield decode_log_batch(buffer, each, schema, included=included, verify_crc=verify_crc)
            return
        yield LogBatch(header.base_offset, header.commit_timestamp, _change_types(buffer, position, header), records)


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
    """Return a reader of record-batch messages of this schema. It decompresses the included columns only."""
    # Arrow takes an empty list of fields for all fields, so `no_columns` is used for that case.
    options = _IN_THIS_THREAD
    if included is not None:
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=list(included))
    content = b"".join([memoryview(schema.serialize()), *messages])
    return pa.ipc.RecordBatchStreamReader(pa.BufferReader(content), options=options)


def _change_types(buffer: pa.Buffer | memoryview, position: int, header: LogBatchHeader) -> ChangeTypes | None:
    if header.append_only:
        return None
    start = position + header.change_types_start
    if start + header.record_count > position + header.size:
        corrupt_batch(position, f"claims {header.record_count} change types but ends before them")
    change_types = np.frombuffer(buffer, np.uint8, header.record_count, start)
    if change_types.size and int(change_types.max()) > _LAST_CHANGE_TYPE:
        corrupt_batch(position, f"has change type {change_types.max()}, expected at most {_LAST_CHANGE_TYPE}")
    return change_types


def _read_records(
    message: pa.Buffer, schema: pa.Schema, included: Sequence[int] | None, position: int, *, full: bool
) -> pa.RecordBatch:
    """Return the records of a message. `full` also checks each value, which is needed if no checksum was compared."""
    try:
        try:
            records = _decoded(message, schema, included)
        except (pa.ArrowException, OSError):
            # Few batches have such buffers, and to look for them takes longer than to decode a small batch.
            mended = without_empty_frames(message)
            if mended is None:
                raise
            records = _decoded(mended, schema, included)
        records.validate(full=full)
    except (pa.ArrowException, OSError, StopIteration) as error:
        what = str(error).partition("\n")[0] or "no message"
        corrupt_batch(position, f"holds no records of the table's schema ({what})", error)
    return with_offsets(records)


def _decoded(message: pa.Buffer, schema: pa.Schema, included: Sequence[int] | None) -> pa.RecordBatch:
    if included is None:
        return pa.ipc.read_record_batch(message, schema)
    return _stream(schema, [memoryview(message)], included).read_next_batch()
