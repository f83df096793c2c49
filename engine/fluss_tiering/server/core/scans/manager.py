"""The scanners that clients have open: their limits, the numbers of their calls, and when they end.

The manager is given the storage's scans, and closes them outside of its lock. A scanner is finished once it has given
its last batch: then it no longer counts as open. The storage's scan is kept for another minute, since the answer may
have been lost and the client may ask for it again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from typing import Final

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.core.scans.scanner import Scanner, ScannerLimits, ScannerSlots, ScanStep
from fluss_tiering.storage.protocol import KvScan, KvScanBatch

_FINISHED_KEPT_MS: Final = 60_000
"""How long a finished scanner is kept. A client waits half a minute for an answer and then asks again."""
_EXPIRED_KNOWN_TTLS: Final = 2
"""For how many TTLs the server remembers that a scanner expired."""


class KvScannerManager:
    """All scanners of a server. Any thread may call it."""

    def __init__(self, clock: Clock, limits: ScannerLimits) -> None:
        self.limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._slots = ScannerSlots(limits)
        self._scanners: dict[bytes, Scanner] = {}
        self._finished: dict[bytes, Scanner] = {}
        self._expired: dict[bytes, tuple[str, int]] = {}

    @property
    def open_count(self) -> int:
        """The number of scanners that hold a slot."""
        with self._lock:
            return self._slots.taken

    def reserve(self, bucket: TableBucket, owner: str) -> bytes:
        """Reserve a slot for a new scanner and return its id.

        Args:
            owner: The name of who opens the scanner.

        Raises:
            FlussTieringError: TOO_MANY_SCANNERS if no slot is free.
        """
        with self._lock:
            self._slots.take(bucket)
            scanner_id = uuid.uuid4().bytes
            self._scanners[scanner_id] = Scanner(scanner_id, bucket, owner, self._clock.now_ms(), in_flight=True)
            return scanner_id

    def opened(self, scanner_id: bytes, scan: KvScan, limit: int | None) -> ScanStep:
        """Give a reserved scanner its storage's scan, and return what the opening call reads.

        The opening call is under way until `answered` or `failed`.

        Raises:
            FlussTieringError: SCANNER_EXPIRED if the bucket was closed meanwhile.
        """
        with self._lock:
            scanner = self._scanners.get(scanner_id)
            if scanner is not None:
                return scanner.open(scan, limit)
        scan.close()
        raise _expired(scanner_id)

    def begin(self, scanner_id: bytes, call_seq_id: int, owner: str) -> ScanStep:
        """Begin a call of the scanner's owner that continues a scan, and return what it reads.

        The call is under way until `answered` or `failed`. An error changes nothing.

        Raises:
            FlussTieringError: SCANNER_EXPIRED if the scanner expired; UNKNOWN_SCANNER_ID if the owner has no such
                scanner; INVALID_SCAN_REQUEST if the number is neither the next nor the last one, or if another call of
                the scanner is under way.
        """
        with self._lock:
            scanner = self._scanner(scanner_id, call_seq_id, owner)
            if scanner.in_flight:
                raise FlussTieringError(
                    ErrorCode.INVALID_SCAN_REQUEST,
                    f"scanner {scanner_id.hex()} is answering another call: expected one call at a time; "
                    "wait for the other answer, or ask again later",
                )
            step = scanner.step(call_seq_id)
            if step is None:
                raise FlussTieringError(
                    ErrorCode.INVALID_SCAN_REQUEST,
                    f"call_seq_id is {call_seq_id}: expected {scanner.last_call_seq_id + 1}, or "
                    f"{scanner.last_call_seq_id} for the last batch again",
                )
            scanner.in_flight = True
            scanner.last_used = self._clock.now_ms()
            return step

    def answered(self, step: ScanStep, batch: KvScanBatch) -> bool:
        """End a call whose answer is prepared, and finish the scanner if it was the last one.

        Returns:
            Whether more rows follow.
        """
        scanner = step.scanner
        with self._lock:
            scanner.in_flight = False
            scanner.last_used = self._clock.now_ms()
            has_more = scanner.answered(step, batch)
            doomed: list[Scanner] = []
            if scanner.closing:
                doomed = self._end(scanner)
            elif not has_more and scanner.scanner_id in self._scanners:
                doomed = self._finish(scanner)
        _close(doomed)
        return has_more

    def failed(self, step: ScanStep) -> None:
        """End a call that failed. The scanner stays where it was, so that the call may be tried again."""
        with self._lock:
            step.scanner.in_flight = False
            doomed = self._end(step.scanner) if step.scanner.closing else []
        _close(doomed)

    def close(self, scanner_id: bytes, owner: str) -> None:
        """Close a scanner, or do nothing if the owner has no such scanner.

        A scanner that is answering a call ends with that call.
        """
        with self._lock:
            scanner = self._scanners.get(scanner_id) or self._finished.get(scanner_id)
            if scanner is None or scanner.owner != owner:
                return
            scanner.closing = True
            doomed = [] if scanner.in_flight else self._end(scanner)
        _close(doomed)

    def abandon(self, scanner_id: bytes) -> None:
        """Drop a scanner that could not be opened."""
        with self._lock:
            scanner = self._scanners.get(scanner_id)
            doomed = [] if scanner is None else self._end(scanner)
        _close(doomed)

    def lost(self, scanner_id: bytes) -> None:
        """Let a scanner expire, because its bucket was closed and the storage's scan with it."""
        with self._lock:
            scanner = self._scanners.get(scanner_id) or self._finished.get(scanner_id)
            if scanner is not None:
                self._expire(scanner)

    def allow_for_standstill(self, ms: int) -> None:
        """Give idle scanners more time, because this server stood still and could not be called.

        Args:
            ms: How long this server stood still, in milliseconds.
        """
        with self._lock:
            for scanner in self._scanners.values():
                scanner.last_used += ms

    def drop_expired(self) -> int:
        """Let scanners expire that were idle for longer than the TTL, and delete those that ended long ago.

        A scanner is not idle while it prepares an answer, however long that takes.

        Returns:
            How many scanners expired.
        """
        now, ttl_ms = self._clock.now_ms(), self.limits.ttl_ms
        with self._lock:
            doomed = [each for each in self._scanners.values() if not each.in_flight and now - each.last_used > ttl_ms]
            for scanner in doomed:
                self._expire(scanner)
            expired = len(doomed)
            for scanner in list(self._finished.values()):
                if not scanner.in_flight and now - scanner.last_used > _FINISHED_KEPT_MS:
                    doomed += self._end(scanner)
            for scanner_id, (_, since) in list(self._expired.items()):
                if now - since > _EXPIRED_KNOWN_TTLS * ttl_ms:
                    del self._expired[scanner_id]
        _close(doomed)
        return expired

    def _scanner(self, scanner_id: bytes, call_seq_id: int, owner: str) -> Scanner:
        scanner = self._scanners.get(scanner_id)
        if scanner is not None and scanner.owner == owner:
            return scanner
        finished = self._finished.get(scanner_id)
        if finished is not None and finished.owner == owner and finished.last_call_seq_id == call_seq_id:
            return finished
        expired_owner, expired_at = self._expired.get(scanner_id, (None, 0))
        if expired_owner == owner and self._clock.now_ms() - expired_at <= _EXPIRED_KNOWN_TTLS * self.limits.ttl_ms:
            raise _expired(scanner_id)
        raise _unknown(scanner_id)

    def _finish(self, scanner: Scanner) -> list[Scanner]:
        """Free the slot of a finished scanner. If too many finished scanners are kept, drop the oldest."""
        if scanner.last_call_seq_id == 0:
            # Only this answer tells the client the scanner's id. If it is lost, the client opens a new scanner.
            return self._end(scanner)
        del self._scanners[scanner.scanner_id]
        self._slots.give_back(scanner.bucket)
        self._finished[scanner.scanner_id] = scanner
        if len(self._finished) <= self.limits.max_per_server:
            return []
        return self._end(next(iter(self._finished.values())))

    def _end(self, scanner: Scanner) -> list[Scanner]:
        if self._scanners.pop(scanner.scanner_id, None) is not None:
            self._slots.give_back(scanner.bucket)
        self._finished.pop(scanner.scanner_id, None)
        return [scanner]

    def _expire(self, scanner: Scanner) -> None:
        self._end(scanner)
        self._expired[scanner.scanner_id] = scanner.owner, self._clock.now_ms()


def _close(scanners: Iterable[Scanner]) -> None:
    for scanner in scanners:
        if scanner.scan is not None:
            scanner.scan.close()


def _expired(scanner_id: bytes) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.SCANNER_EXPIRED,
        f"scanner {scanner_id.hex()} has expired: it was idle for longer than kv.scanner.ttl, its bucket was "
        "closed, or the bucket's leader in the cluster has changed; start the scan again",
    )


def _unknown(scanner_id: bytes) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.UNKNOWN_SCANNER_ID,
        f"scanner {scanner_id.hex()[:64] or 'without an id'} is unknown: it has ended, or the server was restarted; "
        "start the scan again",
    )
