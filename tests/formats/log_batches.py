"""The batches of a log, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from fluss_tiering.formats.log.batch import LogBatch, read_header
from fluss_tiering.formats.log.decoding import decode_log_batch


def iter_log_batches(
    buffer: memoryview, schema: pa.Schema, *, position: int = 0, verify_crc: bool = True
) -> Iterator[LogBatch]:
    """Decode the batches from a position on. An incomplete batch at the end of the buffer is left out."""
    while (header := read_header(buffer, position)) is not None:
        yield decode_log_batch(buffer, position, schema, verify_crc=verify_crc)
        position += header.size
