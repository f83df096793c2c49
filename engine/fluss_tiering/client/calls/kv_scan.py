"""The calls that scan one bucket, in their order."""

from __future__ import annotations

from fluss_tiering.model.table import TableBucket
from fluss_tiering.wire.kv_scan import CloseScan, ContinueScan, OpenScan, ScanCall, ScannedRows


class BucketScanCalls:
    """The state of the scan of one bucket. It does no I/O, so that any client can use it.

    Attributes:
        bucket: The bucket.
        next_call: The call to send next, or to send again if its answer was lost; None when the scan has ended.
        log_offset: The offset from which on the log is not part of the scan; None before the first answer.
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
        """Whether the server has answered at least once."""
        return self.log_offset is not None

    def answered(self, rows: ScannedRows) -> None:
        """Take the answer to `next_call`, and set the call after it."""
        if rows.log_offset is not None:
            self.log_offset = rows.log_offset
        self._scanner_id = rows.scanner_id
        self._call_seq_id += 1
        self.next_call = None
        if rows.has_more and rows.scanner_id is not None:
            self.next_call = ContinueScan(rows.scanner_id, self._call_seq_id, self._batch_size_bytes)

    def close_call(self) -> CloseScan | None:
        """Return the call that closes the scanner early, or None if no scanner is known to be open."""
        if self.next_call is None or self._scanner_id is None:
            return None
        return CloseScan(self._scanner_id)
