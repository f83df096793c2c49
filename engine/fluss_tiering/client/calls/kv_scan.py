"""The calls of one bucket's scan, in order: which is next, and what an answer means for it."""

from __future__ import annotations

from fluss_tiering.model.table import TableBucket
from fluss_tiering.wire.kv_scan import CloseScan, ContinueScan, OpenScan, ScanCall, ScannedRows


class BucketScanCalls:
    """The conversation about one bucket; blocking and asyncio clients hold it alike.

    Attributes:
        bucket: that is scanned.
        next_call: to send next, or again when its answer was lost (K15); None when the scan has ended.
        log_offset: the log from here on is not in the scan; None before the first answer (K5).
    """

    def __init__(self, bucket: TableBucket, limit: int | None, batch_size_bytes: int) -> None:
        self.bucket = bucket
        self.next_call: ScanCall | None = OpenScan(bucket, limit, batch_size_bytes)
        self.log_offset: int | None = None
        self._scanner_id: bytes | None = None
        self._call_seq_id = 0
        self._batch_size_bytes = batch_size_bytes

    @property
    def is_open(self) -> bool:
        """Whether the server has answered once."""
        return self.log_offset is not None

    def answered(self, rows: ScannedRows) -> None:
        """Takes over the answer to `next_call`."""
        if rows.log_offset is not None:
            self.log_offset = rows.log_offset
        self._scanner_id = rows.scanner_id
        self._call_seq_id += 1
        self.next_call = None
        if rows.has_more and rows.scanner_id is not None:
            self.next_call = ContinueScan(rows.scanner_id, self._call_seq_id, self._batch_size_bytes)

    def close_call(self) -> CloseScan | None:
        """What ends the scan before its end; None where the server has nothing open, or nothing that is known here."""
        if self.next_call is None or self._scanner_id is None:
            return None
        return CloseScan(self._scanner_id)
