"""Arrow IPC streams from untrusted senders: read only as far as they take the memory that their bytes suggest."""

from __future__ import annotations

import struct
from typing import Final, NoReturn

import pyarrow as pa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

MAX_ROWS_BYTES: Final = 256 << 20
"""What the rows of one stream may take in memory: four times the largest message, since buffers may be shared."""
_HEADER_FIELD: Final = 2
"""Of `Message` in Arrow's Message.fbs."""
_DATA_FIELD: Final = 1
"""Of `DictionaryBatch`: the record batch in it."""
_COMPRESSION_FIELD: Final = 3
"""Of `RecordBatch`."""


def rows_from_ipc(arrow_ipc: bytes) -> pa.Table:
    """The rows of an Arrow IPC stream, fully validated.

    Raises:
        FlussTieringError: INVALID_ROWS when the bytes are no such stream or a column's name is not UTF-8;
            INVALID_REQUEST when a batch is compressed, or the rows take more than `MAX_ROWS_BYTES`.
    """
    try:
        _check_uncompressed(arrow_ipc)
        with pa.ipc.open_stream(arrow_ipc) as reader:
            rows = pa.Table.from_batches(_bounded(reader), reader.schema)
        # Names are decoded when they are first looked at.
        _ = rows.schema.names
    except (pa.ArrowException, OSError, struct.error, UnicodeDecodeError) as error:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"the rows are no valid Arrow IPC stream: {error}; send schema and record batches, with names in UTF-8",
        ) from error
    return rows


def _bounded(reader: pa.RecordBatchStreamReader) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = []
    taken = 0
    for batch in reader:
        # A client's bytes: offsets and UTF-8 are checked before anything reads by them, as counting bytes does.
        batch.validate(full=True)
        # A column of nulls only takes no bytes here, but those of the table's type once it is cast.
        taken += max(batch.nbytes, batch.num_rows)
        if taken > MAX_ROWS_BYTES:
            _refuse(f"the rows take more than {MAX_ROWS_BYTES} bytes: expected at most that; write fewer at once")
        batches.append(batch)
    return batches


def _check_uncompressed(arrow_ipc: bytes) -> None:
    """Compressed buffers say themselves how large they become, and are allocated so before any batch is seen."""
    for message in pa.ipc.MessageReader.open_stream(arrow_ipc):
        if message.type == "schema":
            continue
        if message.metadata_version != pa.ipc.MetadataVersion.V5:
            _refuse("the Arrow IPC stream is of a version before 1.0: expected metadata version 5")
        metadata = message.metadata.to_pybytes()
        header = _child(metadata, _uint32(metadata, 0), _HEADER_FIELD)
        if header is not None and message.type == "dictionary":
            header = _child(metadata, header, _DATA_FIELD)
        if header is None or _child(metadata, header, _COMPRESSION_FIELD) is not None:
            _refuse("the Arrow IPC stream has compressed buffers: expected none; write it without compression")


def _child(metadata: bytes, table: int, field: int) -> int | None:
    """Where the table in a field of the FlatBuffers table at a position is; None when the field is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    entry = 4 + 2 * field
    if vtable < 0 or entry >= _uint16(metadata, vtable):
        return None
    offset = _uint16(metadata, vtable + entry)
    return table + offset + _uint32(metadata, table + offset) if offset else None


def _uint16(metadata: bytes, position: int) -> int:
    return int(struct.unpack_from("<H", metadata, position)[0])


def _uint32(metadata: bytes, position: int) -> int:
    return int(struct.unpack_from("<I", metadata, position)[0])


def _refuse(message: str) -> NoReturn:
    raise FlussTieringError(ErrorCode.INVALID_REQUEST, message)
