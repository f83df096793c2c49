"""One scanner: which rows its client reads next, and how many scanners may be open."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.settings.server_settings import ServerSettings
from fluss_tiering.storage.protocol import KvScan, KvScanBatch


@dataclass(frozen=True, slots=True)
class ScannerLimits:
    """The limits of scanners, which an operator sets.

    Attributes:
        ttl_ms: How long a scanner may be idle, in milliseconds.
        max_per_bucket: How many scanners of one bucket may be open.
        max_per_server: How many scanners of all buckets together may be open.
        max_batch_size: The largest size of the rows in one answer in bytes, whatever a client asks for.
    """

    ttl_ms: int
    max_per_bucket: int
    max_per_server: int
    max_batch_size: int

    @classmethod
    def of(cls, settings: ServerSettings) -> ScannerLimits:
        """Return the limits in a server's settings."""
        return cls(
            settings.kv_scanner_ttl_ms,
            settings.kv_scanner_max_per_bucket,
            settings.kv_scanner_max_per_server,
            settings.kv_scanner_max_batch_size,
        )


class ScannerSlots:
    """The slots that scanners hold. A scanner takes its slot before anything is opened for it."""

    def __init__(self, limits: ScannerLimits) -> None:
        self._limits = limits
        self._by_bucket: Counter[TableBucket] = Counter()

    @property
    def taken(self) -> int:
        """The number of slots that are taken, for all buckets together."""
        return self._by_bucket.total()

    def take(self, bucket: TableBucket) -> None:
        """Take a slot for a scanner of the bucket.

        Raises:
            FlussTieringError: TOO_MANY_SCANNERS if no slot is free.
        """
        if self._by_bucket[bucket] >= self._limits.max_per_bucket:
            raise _too_many(f"{bucket} has {self._by_bucket[bucket]}", "kv.scanner.max-per-bucket")
        if self.taken >= self._limits.max_per_server:
            raise _too_many(f"the server has {self.taken}", "kv.scanner.max-per-server")
        self._by_bucket[bucket] += 1

    def give_back(self, bucket: TableBucket) -> None:
        """Free a slot of the bucket."""
        self._by_bucket[bucket] -= 1
        if not self._by_bucket[bucket]:
            del self._by_bucket[bucket]


def _too_many(found: str, option: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.TOO_MANY_SCANNERS,
        f"{found} open scanners, and {option} allows no more: try again when some have ended",
    )


@dataclass(frozen=True, slots=True, eq=False)
class ScanStep:
    """What a call reads.

    Attributes:
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
