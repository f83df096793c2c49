"""One scan of one bucket as a client goes through it: where it stands, and how to give its last batch again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.protocol import KvScan, KvScanBatch


@dataclass(frozen=True, slots=True, eq=False)
class ScanStep:
    """What a call reads.

    Attributes:
        session: that it is of.
        scan: of the storage.
        call_seq_id: of the call.
        position: see `KvScan.read`.
        max_rows: see `KvScan.read`.
        again: whether it is the last batch once more, of exactly `max_rows` rows, whatever bytes they take (K15).
    """

    session: ScanSession
    scan: KvScan
    call_seq_id: int
    position: bytes | None
    max_rows: int | None
    again: bool = False


@dataclass(slots=True, eq=False)
class ScanSession:
    """A scanner; its manager's lock guards it. It holds no rows.

    Attributes:
        scanner_id: what the client calls it by.
        bucket: that is scanned.
        last_used: ms since the epoch (K10).
        in_flight: whether a call is under way (K14).
        closing: whether it ends with the call that is under way.
        scan: of the storage; None while it is being opened.
    """

    scanner_id: bytes
    bucket: TableBucket
    last_used: int
    in_flight: bool = False
    closing: bool = False
    scan: KvScan | None = field(default=None, init=False)
    _last: ScanStep | None = field(default=None, init=False)
    _next: ScanStep | None = field(default=None, init=False)

    @property
    def last_call_seq_id(self) -> int:
        """Of the last call whose answer was prepared; -1 before the first (K6)."""
        return -1 if self._last is None else self._last.call_seq_id

    def open(self, scan: KvScan, limit: int | None) -> ScanStep:
        """What the opening call reads.

        Args:
            scan: of the storage.
            limit: rows of the whole scan; None for any number (K9).
        """
        self.scan = scan
        self._next = ScanStep(self, scan, 0, None, limit)
        return self._next

    def step(self, call_seq_id: int) -> ScanStep | None:
        """What a call reads: the rows that follow, or the last ones again; None for any other number (K6, K15)."""
        for step in (self._next, self._last):
            if step is not None and step.call_seq_id == call_seq_id:
                return step
        return None

    def answered(self, step: ScanStep, batch: KvScanBatch) -> bool:
        """Moves on behind the batch of a step; whether there is more."""
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
