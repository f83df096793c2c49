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
from fluss_tiering.server.scans.limits import ScannerLimits, ScannerSlots
from fluss_tiering.server.scans.session import ScanSession, ScanStep
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
        self._sessions: dict[bytes, ScanSession] = {}
        self._finished: dict[bytes, ScanSession] = {}
        self._expired: dict[bytes, int] = {}

    @property
    def open_count(self) -> int:
        """The number of scanners that hold a slot."""
        with self._lock:
            return self._slots.taken

    def reserve(self, bucket: TableBucket) -> bytes:
        """Reserve a slot for a new scanner and return its id.

        Raises:
            FlussTieringError: TOO_MANY_SCANNERS if no slot is free.
        """
        with self._lock:
            self._slots.take(bucket)
            scanner_id = uuid.uuid4().bytes
            self._sessions[scanner_id] = ScanSession(scanner_id, bucket, self._clock.now_ms(), in_flight=True)
            return scanner_id

    def opened(self, scanner_id: bytes, scan: KvScan, limit: int | None) -> ScanStep:
        """Give a reserved scanner its storage's scan, and return what the opening call reads.

        The opening call is under way until `answered` or `failed`.

        Raises:
            FlussTieringError: SCANNER_EXPIRED if the bucket was closed meanwhile.
        """
        with self._lock:
            session = self._sessions.get(scanner_id)
            if session is not None:
                return session.open(scan, limit)
        scan.close()
        raise _expired(scanner_id)

    def begin(self, scanner_id: bytes, call_seq_id: int) -> ScanStep:
        """Begin a call that continues a scan, and return what it reads.

        The call is under way until `answered` or `failed`. An error changes nothing.

        Raises:
            FlussTieringError: SCANNER_EXPIRED if the scanner expired; UNKNOWN_SCANNER_ID if there is no such scanner;
                INVALID_SCAN_REQUEST if the number is neither the next nor the last one, or if another call of the
                scanner is under way.
        """
        with self._lock:
            session = self._session(scanner_id, call_seq_id)
            if session.in_flight:
                raise FlussTieringError(
                    ErrorCode.INVALID_SCAN_REQUEST,
                    f"scanner {scanner_id.hex()} is answering another call: expected one call at a time; "
                    "wait for the other answer, or ask again later",
                )
            step = session.step(call_seq_id)
            if step is None:
                raise FlussTieringError(
                    ErrorCode.INVALID_SCAN_REQUEST,
                    f"call_seq_id is {call_seq_id}: expected {session.last_call_seq_id + 1}, or "
                    f"{session.last_call_seq_id} for the last batch again",
                )
            session.in_flight = True
            session.last_used = self._clock.now_ms()
            return step

    def answered(self, step: ScanStep, batch: KvScanBatch) -> bool:
        """End a call whose answer is prepared, and finish the scanner if it was the last one.

        Returns:
            Whether more rows follow.
        """
        session = step.session
        with self._lock:
            session.in_flight = False
            session.last_used = self._clock.now_ms()
            has_more = session.answered(step, batch)
            doomed: list[ScanSession] = []
            if session.closing:
                doomed = self._end(session)
            elif not has_more and session.scanner_id in self._sessions:
                doomed = self._finish(session)
        _close(doomed)
        return has_more

    def failed(self, step: ScanStep) -> None:
        """End a call that failed. The scanner stays where it was, so that the call may be tried again."""
        with self._lock:
            step.session.in_flight = False
            doomed = self._end(step.session) if step.session.closing else []
        _close(doomed)

    def close(self, scanner_id: bytes) -> None:
        """Close a scanner, or do nothing if it is not known. A scanner that is answering a call ends with that call."""
        with self._lock:
            session = self._sessions.get(scanner_id) or self._finished.get(scanner_id)
            if session is None:
                return
            session.closing = True
            doomed = [] if session.in_flight else self._end(session)
        _close(doomed)

    def abandon(self, scanner_id: bytes) -> None:
        """Drop a scanner that could not be opened."""
        with self._lock:
            session = self._sessions.get(scanner_id)
            doomed = [] if session is None else self._end(session)
        _close(doomed)

    def lost(self, scanner_id: bytes) -> None:
        """Let a scanner expire, because its bucket was closed and the storage's scan with it."""
        with self._lock:
            session = self._sessions.get(scanner_id) or self._finished.get(scanner_id)
            if session is not None:
                self._expire(session)

    def drop_expired(self) -> int:
        """Let scanners expire that were idle for longer than the TTL, and delete those that ended long ago.

        A scanner is not idle while it prepares an answer, however long that takes.

        Returns:
            How many scanners expired.
        """
        now, ttl_ms = self._clock.now_ms(), self.limits.ttl_ms
        with self._lock:
            doomed = [each for each in self._sessions.values() if not each.in_flight and now - each.last_used > ttl_ms]
            for session in doomed:
                self._expire(session)
            expired = len(doomed)
            for session in list(self._finished.values()):
                if not session.in_flight and now - session.last_used > _FINISHED_KEPT_MS:
                    doomed += self._end(session)
            for scanner_id, since in list(self._expired.items()):
                if now - since > _EXPIRED_KNOWN_TTLS * ttl_ms:
                    del self._expired[scanner_id]
        _close(doomed)
        return expired

    def _session(self, scanner_id: bytes, call_seq_id: int) -> ScanSession:
        session = self._sessions.get(scanner_id)
        if session is not None:
            return session
        finished = self._finished.get(scanner_id)
        if finished is not None and finished.last_call_seq_id == call_seq_id:
            return finished
        expired_at = self._expired.get(scanner_id)
        if expired_at is not None and self._clock.now_ms() - expired_at <= _EXPIRED_KNOWN_TTLS * self.limits.ttl_ms:
            raise _expired(scanner_id)
        raise _unknown(scanner_id)

    def _finish(self, session: ScanSession) -> list[ScanSession]:
        """Free the slot of a finished scanner. If too many finished scanners are kept, drop the oldest."""
        if session.last_call_seq_id == 0:
            # Only this answer tells the client the scanner's id. If it is lost, the client opens a new scanner.
            return self._end(session)
        del self._sessions[session.scanner_id]
        self._slots.give_back(session.bucket)
        self._finished[session.scanner_id] = session
        if len(self._finished) <= self.limits.max_per_server:
            return []
        return self._end(next(iter(self._finished.values())))

    def _end(self, session: ScanSession) -> list[ScanSession]:
        if self._sessions.pop(session.scanner_id, None) is not None:
            self._slots.give_back(session.bucket)
        self._finished.pop(session.scanner_id, None)
        return [session]

    def _expire(self, session: ScanSession) -> None:
        self._end(session)
        self._expired[session.scanner_id] = self._clock.now_ms()


def _close(sessions: Iterable[ScanSession]) -> None:
    for session in sessions:
        if session.scan is not None:
            session.scan.close()


def _expired(scanner_id: bytes) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.SCANNER_EXPIRED,
        f"scanner {scanner_id.hex()} has expired: it was idle for longer than kv.scanner.ttl, or its bucket was "
        "closed; start the scan again",
    )


def _unknown(scanner_id: bytes) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.UNKNOWN_SCANNER_ID,
        f"scanner {scanner_id.hex()[:64] or 'without an id'} is unknown: it has ended, or the server was restarted; "
        "start the scan again",
    )
