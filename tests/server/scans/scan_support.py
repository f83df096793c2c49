"""A scan that only counts."""

from __future__ import annotations

import pyarrow as pa

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.protocol import KvScanBatch


class CountingScan:
    """Rows 0, 1, 2, …; a position is the number of the row that comes next."""

    log_offset = 77

    def __init__(self, rows: int = 10, at_once: int = 4) -> None:
        self.rows = rows
        self.at_once = at_once
        self.closed = 0
        self.sizes: list[int | None] = []
        self.broken = False

    def read(self, position: bytes | None, max_bytes: int | None, max_rows: int | None) -> KvScanBatch:
        if self.broken:
            raise FlussTieringError(ErrorCode.CORRUPT_DATA, "a block is torn")
        self.sizes.append(max_bytes)
        start = int(position or b"0")
        stop = min(self.rows, start + min(self.at_once, max_rows or self.rows))
        values = pa.array([b"%d" % row for row in range(start, stop)], pa.binary())
        return KvScanBatch(values, None if stop == self.rows else b"%d" % stop)

    def close(self) -> None:
        self.closed += 1
