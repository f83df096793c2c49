"""What an audit found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fluss_tiering.model.table import TablePath


class Difference(StrEnum):
    """How a key of the lake (an offset, in a log table) differs from the source."""

    MISSING = "missing"
    EXTRA = "extra"
    REPEATED = "repeated"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Content:
    """Rows reduced to what can be compared: how many, and the sum of their hashes, in which order does not count."""

    rows: int = 0
    checksum: tuple[int, ...] = ()

    @property
    def hex_checksum(self) -> str:
        """The checksum in hexadecimal, for people and programs."""
        return "".join(f"{part:016x}" for part in self.checksum)


@dataclass(frozen=True, slots=True)
class BucketAudit:
    """One bucket up to the log offset that the lake holds; None where it says that it holds nothing of the bucket.

    Of a partitioned table the buckets of that number of all partitions, and the sum of their offsets.
    """

    bucket: int
    log_end_offset: int | None
    source: Content
    lake: Content

    @property
    def equal(self) -> bool:
        """Whether the lake holds what the source holds."""
        return self.source == self.lake


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key whose rows differ. For a log table the key is `__offset`."""

    bucket: int
    kind: Difference
    key: Mapping[str, object]
    source_rows: int
    lake_rows: int


@dataclass(frozen=True, slots=True)
class TableAudit:
    """A lake table compared with its source.

    Attributes:
        lake_snapshot_id: what was read of the lake; None while nothing has been tiered.
        differences: by bucket and key, as many as were asked for.
        more_differences: whether there are further ones.
    """

    path: TablePath
    lake_snapshot_id: int | None
    buckets: tuple[BucketAudit, ...] = ()
    differences: tuple[KeyDifference, ...] = ()
    more_differences: bool = False

    @property
    def equal(self) -> bool:
        """Whether every bucket is equal."""
        return all(bucket.equal for bucket in self.buckets)
