"""What a storage does for the server (`TableStorage`) and for a reader of splits (`SplitReader`).

The server calls a `TableStorage` from worker threads, several at once; each method is safe under that. Methods raise
`FlussTieringError` with the code named; whatever they acknowledged is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from fluss_tiering.formats.log.batch import LogBatch
from fluss_tiering.model.table import (
    BucketInfo,
    KvSnapshot,
    StorageDescription,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    WriteKind,
)


@dataclass(frozen=True, slots=True, eq=False)
class KvScanBatch:
    """Rows of a scan, as stored.

    Attributes:
        values: a binary array; each a schema id and a compacted row.
        next_position: where the rows behind these begin; None at the end.
    """

    values: pa.Array
    next_position: bytes | None


class KvScan(Protocol):
    """The rows of one bucket as of one moment, which holds no rows itself; safe under concurrent calls.

    Attributes:
        log_offset: the log from here on is not in the scan (K5).
    """

    log_offset: int

    def read(self, position: bytes | None, max_bytes: int | None, max_rows: int | None) -> KvScanBatch:
        """The rows from a position on, at least one; from the same position so many rows are always the same.

        Args:
            position: None for the first row; a batch's `next_position` for the rows behind it.
            max_bytes: of the values' array; None for any number.
            max_rows: 1 or more; None for any number.

        Raises:
            FlussTieringError: SCANNER_EXPIRED once the scan is closed or its bucket is; CORRUPT_DATA, STORAGE.
        """
        ...

    def close(self) -> None:
        """Lets go of what the scan keeps; again does nothing."""
        ...


class TableStorage(Protocol):
    """The tables behind a server."""

    def describe(self) -> StorageDescription:
        """Kind and data folder."""
        ...

    def create_table(self, path: TablePath, descriptor: TableDescriptor) -> TableInfo:
        """A new table. Raises TABLE_ALREADY_EXIST, INVALID_TABLE."""
        ...

    def alter_table(self, path: TablePath, properties: Mapping[str, str]) -> TableInfo:
        """The table with these options instead of its own; columns and keys stay. In one step, and durable.

        Raises TABLE_NOT_EXIST; INVALID_TABLE for an option that cannot be so, or cannot change.
        """
        ...

    def drop_table(self, path: TablePath) -> TableInfo:
        """Drops the table with its files and returns what it was. Raises TABLE_NOT_EXIST."""
        ...

    def drop_partition(self, path: TablePath, values: Sequence[str]) -> None:
        """Drops the partition of these values, one for each partition key.

        Raises TABLE_NOT_EXIST, PARTITION_NOT_EXIST.
        """
        ...

    def table(self, path: TablePath) -> TableInfo:
        """The table of that path. Raises TABLE_NOT_EXIST."""
        ...

    def table_by_id(self, table_id: int) -> TableInfo:
        """The table of that id. Raises TABLE_NOT_EXIST."""
        ...

    def tables(self) -> Sequence[TableInfo]:
        """All tables, by path."""
        ...

    def write(self, path: TablePath, kind: WriteKind, rows: pa.Table) -> Mapping[TableBucket, int]:
        """Writes the rows, durably, and returns the log end offset of each bucket touched.

        All rows are checked before the first is written. Raises TABLE_NOT_EXIST, INVALID_ROWS.
        """
        ...

    def buckets(self, path: TablePath) -> Sequence[BucketInfo]:
        """Every bucket with its log range and latest KV snapshot. Raises TABLE_NOT_EXIST."""
        ...

    def take_kv_snapshots(self, path: TablePath) -> Sequence[KvSnapshot]:
        """A KV snapshot of each bucket, now. A bucket whose latest snapshot is up to date keeps that one.

        Raises TABLE_NOT_EXIST, TABLE_WITHOUT_PRIMARY_KEY.
        """
        ...

    def kv_snapshot(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        """The snapshot, or None when it does not exist (any more)."""
        ...

    def collect_kv_snapshots(self, protected: frozenset[tuple[TableBucket, int]]) -> int:
        """Deletes snapshots that are neither protected nor among the newest kept of their bucket; returns how many.

        The caller makes sure that nothing becomes protected while this runs.
        """
        ...

    def reader(self) -> SplitReader:
        """A reader of this storage's own files."""
        ...

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """The log batches that hold [start_offset, end_offset), whole and as stored, cut anywhere into chunks of a MiB.

        For readers that cannot open the files. Raises TABLE_NOT_EXIST, LOG_OFFSET_OUT_OF_RANGE, CORRUPT_DATA.
        """
        ...

    def fetch_kv_snapshot(
        self, bucket: TableBucket, snapshot_id: int, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """The entries of the key range [from_key, to_key) as stored (columns key: binary, value: binary).

        For readers that cannot open the files. Raises KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA.
        """
        ...

    def open_kv_scan(
        self, bucket: TableBucket, *, admit: Callable[[], None], on_lost: Callable[[], None]
    ) -> tuple[int, KvScan | None]:
        """The bucket's log end offset and a scan of its rows, both as of now; no scan for a bucket without rows (K4).

        Args:
            bucket: of a primary-key table.
            admit: called before anything is opened, where the bucket may have rows; its error is this call's.
            on_lost: called when the bucket is closed or dropped, and its scan with it (K12); perhaps from a thread that
                holds the bucket's lock.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST, TABLE_WITHOUT_PRIMARY_KEY, NOT_LEADER_OR_FOLLOWER (K3); INVALID_REQUEST
                for a bucket that the table has not; CORRUPT_DATA, STORAGE.
        """
        ...

    def write_lake_offsets(self, table_id: int, log_end_offsets: Mapping[TableBucket, int]) -> str:
        """Writes an offsets file as Fluss lays it out and returns its path (`fluss-offsets` of a lake snapshot)."""
        ...

    def has_lake_offsets(self, table_id: int, path: str) -> bool:
        """Whether `path` is an offsets file that `write_lake_offsets` made for that table and that is still there."""
        ...

    def close(self) -> None:
        """Flushes and lets go of the data folder."""
        ...


class SplitReader(Protocol):
    """Reads what splits name, as Arrow batches; used on executors."""

    @property
    def decode_seconds(self) -> float:
        """Spent so far on turning stored bytes into rows, apart from getting at them."""
        ...

    def read_log(
        self,
        table: TableInfo,
        bucket: TableBucket,
        start_offset: int,
        end_offset: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[LogBatch]:
        """The rows of [start_offset, end_offset) in log order, cut to that range.

        Args:
            table: whose log it is, as it was planned with.
            bucket: of the table.
            start_offset: of the first row.
            end_offset: behind the last row.
            columns: names of those that are wanted, which the batches then have in this order, and no others; with none
                they have rows and change types all the same. None for all, in the table's order.

        Raises INVALID_REQUEST for a column that is not there, or named twice; LOG_OFFSET_OUT_OF_RANGE, CORRUPT_DATA
        naming the file and position.
        """
        ...

    def read_kv_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the key range [from_key, to_key) in the table's Arrow schema.

        Raises KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA.
        """
        ...

    def measure_kv_snapshot(self, table: TableInfo, snapshot: KvSnapshot) -> KvSnapshot:
        """The snapshot with its size and the keys at which it may be cut, where the server does not know them.

        Raises KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA, STORAGE.
        """
        ...
