"""The scanners that clients have open: their limits, their numbers in sequence, and when they end (K1-K17).

Knows the storage by the scans that it is handed alone, and closes those outside of its lock. A scanner that gave its
last batch is closed for its client and counts no longer; the storage's scan is kept for a minute, since the answer may
have been lost and be asked for again (K15).
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
"""A client waits half a minute for an answer, and then asks again."""
_EXPIRED_KNOWN_TTLS: Final = 2


class KvScannerManager:
    """All scanners of a server; safe under concurrent calls."""

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
        """Scanners that hold a slot."""
        with self._lock:
            return self._slots.taken

    def reserve(self, bucket: TableBucket) -> bytes:
        """The id of a new scanner, which takes a slot from now on. Raises TOO_MANY_SCANNERS (K2)."""
        with self._lock:
            self._slots.take(bucket)
            scanner_id = uuid.uuid4().bytes
            self._sessions[scanner_id] = ScanSession(scanner_id, bucket, self._clock.now_ms(), in_flight=True)
            return scanner_id

    def opened(self, scanner_id: bytes, scan: KvScan, limit: int | None) -> ScanStep:
        """The storage's scan for a reserved scanner; what the opening call, which is under way, reads.

        Raises SCANNER_EXPIRED when the bucket was closed meanwhile.
        """
        with self._lock:
            session = self._sessions.get(scanner_id)
            if session is not None:
                return session.open(scan, limit)
        scan.close()
        raise _expired(scanner_id)

    def begin(self, scanner_id: bytes, call_seq_id: int) -> ScanStep:
        """What a continuation reads; the call is under way from now on, until `answered` or `failed`.

        Raises:
            FlussTieringError: SCANNER_EXPIRED, UNKNOWN_SCANNER_ID (K10); INVALID_SCAN_REQUEST for a number that is
                neither the next nor the last (K6), or while another call is under way (K14). None changes anything.
        """
        with self._lock:
            session = self._session(scanner_id, call_seq_id)
            if session.in_flight:
                raise FlussTieringError(
                    ErrorCode.INVALID_SCAN_REQUEST,
                    f"scanner {scanner_id.hex()} is answering another call: expected one call at a time; "
                    "wait for its answer, or ask again later",
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
        """A call's answer is prepared; whether more follows. The scanner is closed where nothing does."""
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
        """A call found an error; the scanner stands where it stood, so that the call may be tried again."""
        with self._lock:
            step.session.in_flight = False
            doomed = self._end(step.session) if step.session.closing else []
        _close(doomed)

    def close(self, scanner_id: bytes) -> None:
        """Closes a scanner, known or not (K13); one that is answering a call ends with that."""
        with self._lock:
            session = self._sessions.get(scanner_id) or self._finished.get(scanner_id)
            if session is None:
                return
            session.closing = True
            doomed = [] if session.in_flight else self._end(session)
        _close(doomed)

    def abandon(self, scanner_id: bytes) -> None:
        """Gives up a scanner whose opening failed."""
        with self._lock:
            session = self._sessions.get(scanner_id)
            doomed = [] if session is None else self._end(session)
        _close(doomed)

    def lost(self, scanner_id: bytes) -> None:
        """The bucket was closed, and the storage's scan with it: the scanner counts as expired (K12)."""
        with self._lock:
            session = self._sessions.get(scanner_id) or self._finished.get(scanner_id)
            if session is not None:
                self._expire(session)

    def drop_expired(self) -> int:
        """Ends scanners that were idle for longer than the TTL and forgets those that ended long ago (K10).

        An answer that is being prepared is no idleness, however long it takes. Returns how many were idle.
        """
        now, ttl = self._clock.now_ms(), self.limits.ttl
        with self._lock:
            doomed = [each for each in self._sessions.values() if not each.in_flight and now - each.last_used > ttl]
            for session in doomed:
                self._expire(session)
            expired = len(doomed)
            for session in list(self._finished.values()):
                if not session.in_flight and now - session.last_used > _FINISHED_KEPT_MS:
                    doomed += self._end(session)
            for scanner_id, since in list(self._expired.items()):
                if now - since > _EXPIRED_KNOWN_TTLS * ttl:
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
        if expired_at is not None and self._clock.now_ms() - expired_at <= _EXPIRED_KNOWN_TTLS * self.limits.ttl:
            raise _expired(scanner_id)
        raise _unknown(scanner_id)

    def _finish(self, session: ScanSession) -> list[ScanSession]:
        """Takes a scanner out of the count; the oldest finished ones go where there are too many."""
        if session.last_call_seq_id == 0:
            # Its client never learned its id before this answer: a lost one is not asked for again, but opened again.
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
