"""One scanner: which rows its client reads next, and how to give the last batch again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.protocol import KvScan, KvScanBatch


@dataclass(frozen=True, slots=True, eq=False)
class ScanStep:
    """What a call reads.

    Attributes:
        scanner: The scanner.
        scan: The storage's scan.
        call_seq_id: The number of the call.
        position: The position to read from: see `KvScan.read`.
        max_rows: The largest number of rows to read: see `KvScan.read`.
        again: Whether the call reads the last batch again: exactly `max_rows` rows, whatever their size.
    """

    scanner: Scanner
    scan: KvScan
    call_seq_id: int
    position: bytes | None
    max_rows: int | None
    again: bool = False


@dataclass(slots=True, eq=False)
class Scanner:
    """An open scanner. It holds no rows, and the lock of its manager guards it.

    Attributes:
        scanner_id: The id under which the client knows the scanner.
        bucket: The bucket that is scanned.
        owner: The name of who opened the scanner. For others it does not exist.
        last_used: When the last call began or ended, in milliseconds since the epoch.
        in_flight: Whether a call is under way.
        closing: Whether the scanner ends with the call that is under way.
        scan: The storage's scan; None while it is being opened.
    """

    scanner_id: bytes
    bucket: TableBucket
    owner: str
    last_used: int
    in_flight: bool = False
    closing: bool = False
    scan: KvScan | None = field(default=None, init=False)
    _last: ScanStep | None = field(default=None, init=False)
    _next: ScanStep | None = field(default=None, init=False)

    @property
    def last_call_seq_id(self) -> int:
        """The number of the last call whose answer was prepared; -1 before the first."""
        return -1 if self._last is None else self._last.call_seq_id

    def open(self, scan: KvScan, limit: int | None) -> ScanStep:
        """Begin the scan, and return what the opening call reads.

        Args:
            scan: The storage's scan.
            limit: The number of rows after which the scan ends; None for all rows.
        """
        self.scan = scan
        self._next = ScanStep(self, scan, 0, None, limit)
        return self._next

    def step(self, call_seq_id: int) -> ScanStep | None:
        """Return what a call reads: the next rows, or the last ones again; None for any other number."""
        for step in (self._next, self._last):
            if step is not None and step.call_seq_id == call_seq_id:
                return step
        return None

    def answered(self, step: ScanStep, batch: KvScanBatch) -> bool:
        """Move on behind the batch of a step, and return whether more rows follow."""
        if not step.again:
            rows = len(batch.values)
            rows_left = None if step.max_rows is None else step.max_rows - rows
            self._last = replace(step, max_rows=rows, again=True)
            self._next = None
            if batch.next_position is not None and rows_left != 0:
                self._next = replace(
                    step, call_seq_id=step.call_seq_id + 1, position=batch.next_position, max_rows=rows_left
                )
        return self._next is not None
