"""How many scanners there may be, and how many there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class ScannerLimits:
    """What an operator set (K1).

    Attributes:
        ttl: ms that a scanner may be idle.
        max_per_bucket: open scanners of a bucket.
        max_per_server: open scanners of all buckets.
        max_batch_size: bytes of rows in one answer, whatever a client asks for.
    """

    ttl: int
    max_per_bucket: int
    max_per_server: int
    max_batch_size: int

    @classmethod
    def of(cls, settings: ServerSettings) -> ScannerLimits:
        """The limits in a server's settings."""
        return cls(
            settings.kv_scanner_ttl,
            settings.kv_scanner_max_per_bucket,
            settings.kv_scanner_max_per_server,
            settings.kv_scanner_max_batch_size,
        )


class ScannerSlots:
    """The slots that scanners hold, from before anything is opened for them until it is closed (K2)."""

    def __init__(self, limits: ScannerLimits) -> None:
        self._limits = limits
        self._by_bucket: Counter[TableBucket] = Counter()

    @property
    def taken(self) -> int:
        """By all buckets."""
        return self._by_bucket.total()

    def take(self, bucket: TableBucket) -> None:
        """One more. Raises TOO_MANY_SCANNERS, and then none is taken."""
        if self._by_bucket[bucket] >= self._limits.max_per_bucket:
            raise _too_many(f"{bucket} has {self._by_bucket[bucket]}", "kv.scanner.max-per-bucket")
        if self.taken >= self._limits.max_per_server:
            raise _too_many(f"the server has {self.taken}", "kv.scanner.max-per-server")
        self._by_bucket[bucket] += 1

    def give_back(self, bucket: TableBucket) -> None:
        """One less."""
        self._by_bucket[bucket] -= 1
        if not self._by_bucket[bucket]:
            del self._by_bucket[bucket]


def _too_many(found: str, option: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.TOO_MANY_SCANNERS,
        f"{found} open scanners, which is all that {option} allows: try again when some have ended",
    )
