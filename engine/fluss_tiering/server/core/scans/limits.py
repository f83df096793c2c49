"""The number of scanners that may be open, and the number that are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.settings.server_settings import ServerSettings


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
