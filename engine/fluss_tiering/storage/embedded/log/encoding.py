"""Encoding records as log batches of limited size, so that a reader needs little memory however large a write was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.chunks import parts_of
from fluss_tiering.formats.log.batch import ChangeTypes, LogCompression, encode_log_batch
from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.log_compression import compression_of

_BATCH_ROWS: Final = 65_536
_BATCH_BYTES: Final = 8 << 20
"""The size of a batch before compression. One with rows of different sizes has twice as much at most."""


@dataclass(frozen=True, slots=True)
class LogEncoding:
    """How the batches of one table are written."""

    schema_id: int
    compression: LogCompression

    @classmethod
    def of(cls, info: TableInfo) -> LogEncoding:
        """Return the encoding that the table's descriptor asks for."""
        return cls(info.schema_id, compression_of(info.descriptor))

    def batches(
        self, records: pa.RecordBatch, change_types: ChangeTypes | None, base_offset: int, commit_timestamp: int
    ) -> Iterator[bytes]:
        """Yield consecutive batches that hold the records from `base_offset` on."""
        start = 0
        for part in parts_of(records, _BATCH_BYTES, _BATCH_ROWS):
            end = start + part.num_rows
            yield encode_log_batch(
                base_offset + start,
                commit_timestamp,
                part,
                schema_id=self.schema_id,
                change_types=None if change_types is None else change_types[start:end],
                compression=self.compression,
            )
            start = end
