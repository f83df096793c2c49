"""The findings of an audit, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.table_options import (
    LAKE_COMMIT_BRANCH,
    LAKE_RECORD_EXPIRE_TIME,
    commit_branch_of,
    value_of_own,
)
from fluss_tiering.plural import counted


class Difference(StrEnum):
    """How the rows of a key differ between the lake and the source. The key of a log table is the offset."""

    MISSING = "missing"
    EXTRA = "extra"
    REPEATED = "repeated"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Content:
    """A summary of rows, by which they are compared: their number, and the sum of their hashes in any order."""

    rows: int = 0
    checksum: tuple[int, ...] = ()

    @property
    def hex_checksum(self) -> str:
        """The checksum in hexadecimal, for people and programs."""
        return "".join(f"{part:016x}" for part in self.checksum)


@dataclass(frozen=True, slots=True)
class BucketAudit:
    """The comparison of one bucket, up to the log offset that the lake holds.

    In a partitioned table it is about the buckets with this number in all partitions, and the sum of their offsets.

    Attributes:
        bucket: The number of the bucket.
        log_end_offset: The log offset up to which the lake holds the bucket; None if the lake holds nothing of it.
        source: The rows of the source.
        lake: The rows of the lake, without those that may have expired.
        expired_rows: The number of rows that are only in the lake, and may have expired in Fluss without a changelog.
    """

    bucket: int
    log_end_offset: int | None
    source: Content
    lake: Content
    expired_rows: int = 0

    @property
    def equal(self) -> bool:
        """Whether the lake holds the same rows as the source."""
        return self.source == self.lake


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key whose rows differ. The key of a log table is `__offset`, or the row as JSON."""

    bucket: int
    kind: Difference
    key: Mapping[str, object]
    source_rows: int
    lake_rows: int


@dataclass(frozen=True, slots=True)
class TableAudit:
    """A lake table compared with its source.

    Attributes:
        lake_snapshot_id: The lake snapshot that was read; None while nothing has been tiered.
        buckets: The comparison of each bucket.
        differences: Keys that differ, in the order of bucket and key, as many as were asked for.
        more_differences: Whether more keys differ.
        kv_ttl: The time after which rows of the table expire in Fluss; None if they do not.
        after_snapshot_id: The lake snapshot after which rounds have added the rows that were compared; None if all rows
            were compared.
        both_empty: Whether there is a lake table without snapshots, and nothing was ever written to the table.
    """

    path: TablePath
    lake_snapshot_id: int | None
    buckets: tuple[BucketAudit, ...] = ()
    differences: tuple[KeyDifference, ...] = ()
    more_differences: bool = False
    kv_ttl: str | None = None
    both_empty: bool = False
    after_snapshot_id: int | None = None

    @property
    def was_never_tiered(self) -> bool:
        """Whether there was nothing to compare with, though the table may have rows."""
        return self.lake_snapshot_id is None and not self.both_empty

    @property
    def equal(self) -> bool:
        """Whether every bucket is equal."""
        return all(bucket.equal for bucket in self.buckets)


def equal_text(table: TableInfo, audit: TableAudit) -> str:
    """Return what an audit has compared and found equal."""
    if audit.both_empty:
        return "equal: neither the table nor its lake table has had a row yet"
    rows = counted(sum(each.lake.rows for each in audit.buckets), "row")
    properties = table.descriptor.properties
    branch = commit_branch_of(properties)
    where = "" if branch == LAKE_COMMIT_BRANCH.default else f" of the branch {branch}"
    after = value_of_own(properties, LAKE_RECORD_EXPIRE_TIME)
    without = "" if after is None else f", without records that are older than {after}"
    added = "" if audit.after_snapshot_id is None else f", added after snapshot {audit.after_snapshot_id}"
    return f"equal: {rows} at lake snapshot {audit.lake_snapshot_id}{where}{added}{without}"


def differing_text(audit: TableAudit) -> str:
    """Return which buckets an audit has found to differ."""
    buckets = ", ".join(str(each.bucket) for each in audit.buckets if not each.equal)
    return f"bucket {buckets} of lake snapshot {audit.lake_snapshot_id} differs from the table"
