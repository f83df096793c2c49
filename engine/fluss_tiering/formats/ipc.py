"""The reading of Arrow IPC streams from untrusted senders. The memory that a stream takes is limited."""

from __future__ import annotations

import struct
from typing import Final, NoReturn

import pyarrow as pa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

MAX_ROWS_BYTES: Final = 256 << 20
"""The memory that the rows of one stream may take: four times the largest message, because buffers may be shared."""
_HEADER_FIELD: Final = 2
"""The field `header` of `Message` in Arrow's Message.fbs."""
_DATA_FIELD: Final = 1
"""The field `data` of `DictionaryBatch`, which is a record batch."""
_COMPRESSION_FIELD: Final = 3
"""The field `compression` of `RecordBatch`."""


def rows_from_ipc(arrow_ipc: bytes) -> pa.Table:
    """Read and validate the rows of an Arrow IPC stream.

    Raises:
        FlussTieringError: INVALID_ROWS if the bytes are not such a stream or the name of a column is not UTF-8;
            INVALID_REQUEST if a batch is compressed or the rows take more than `MAX_ROWS_BYTES`.
    """
    try:
        _check_uncompressed(arrow_ipc)
        with pa.ipc.open_stream(arrow_ipc) as reader:
            rows = pa.Table.from_batches(_bounded(reader), reader.schema)
        for field in rows.schema:
            _decode_names(field)
    except (pa.ArrowException, OSError, struct.error, UnicodeDecodeError) as error:
        raise FlussTieringError(
            ErrorCode.INVALID_ROWS,
            f"the rows are not a valid Arrow IPC stream: {error}; send a schema and batches, with names in UTF-8",
        ) from error
    return rows


def _decode_names(field: pa.Field) -> None:
    """Decode the names of a field and of those within it, as Arrow does at the first access only."""
    _ = field.name
    for index in range(field.type.num_fields):
        _decode_names(field.type.field(index))


def _bounded(reader: pa.RecordBatchStreamReader) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = []
    taken = 0
    for batch in reader:
        # The bytes come from a client. Offsets and UTF-8 are checked before any code uses them, even to count bytes.
        _validate(batch)
        # A column with nulls only takes no bytes here. After the cast it takes the bytes of the table's type.
        taken += max(batch.nbytes, batch.num_rows)
        if taken > MAX_ROWS_BYTES:
            _refuse(f"the rows take more than {MAX_ROWS_BYTES} bytes, which is the limit: write fewer rows at once")
        batches.append(batch)
    return batches


def _validate(batch: pa.RecordBatch) -> None:
    """Check all values, and name the column of one that does not fit."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise FlussTieringError(
                ErrorCode.INVALID_ROWS,
                f"column {field.name!r} has a value that its type {field.type} cannot have: {error}",
            ) from error
    batch.validate()


def _check_uncompressed(arrow_ipc: bytes) -> None:
    """Refuse a stream with compressed buffers.

    A compressed buffer names its own size. Arrow would allocate that size before any batch could be checked.
    """
    for message in pa.ipc.MessageReader.open_stream(arrow_ipc):
        if message.type == "schema":
            continue
        if message.metadata_version != pa.ipc.MetadataVersion.V5:
            _refuse("the Arrow IPC stream has a format older than Arrow 1.0: expected metadata version 5")
        metadata = message.metadata.to_pybytes()
        header = _header(metadata)
        if header is not None and message.type == "dictionary":
            header = _child(metadata, header, _DATA_FIELD)
        if header is None or _child(metadata, header, _COMPRESSION_FIELD) is not None:
            _refuse("the Arrow IPC stream has compressed buffers: expected none; write it without compression")


def child_of_header(metadata: bytes | bytearray, field: int) -> int | None:
    """Return the position of what is in a field of the header of a message, such as a record batch.

    Args:
        field: The number of the field in Arrow's Message.fbs.

    Returns:
        The position in the metadata; None if the field is absent.

    Raises:
        struct.error: If the metadata is damaged.
    """
    header = _header(metadata)
    return None if header is None else _child(metadata, header, field)


def has_compressed_buffers(metadata: bytes | bytearray) -> bool:
    """Return whether the buffers of a record batch are compressed. Raises the errors of `child_of_header`."""
    return child_of_header(metadata, _COMPRESSION_FIELD) is not None


def _header(metadata: bytes | bytearray) -> int | None:
    return _child(metadata, _uint32(metadata, 0), _HEADER_FIELD)


def _child(metadata: bytes | bytearray, table: int, field: int) -> int | None:
    """Return the position of the table in a field of a FlatBuffers table, or None if the field is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    entry = 4 + 2 * field
    if vtable < 0 or entry >= _uint16(metadata, vtable):
        return None
    offset = _uint16(metadata, vtable + entry)
    return table + offset + _uint32(metadata, table + offset) if offset else None


def _uint16(metadata: bytes | bytearray, position: int) -> int:
    return int(struct.unpack_from("<H", metadata, position)[0])


def _uint32(metadata: bytes | bytearray, position: int) -> int:
    return int(struct.unpack_from("<I", metadata, position)[0])


def _refuse(message: str) -> NoReturn:
    raise FlussTieringError(ErrorCode.INVALID_REQUEST, message)
