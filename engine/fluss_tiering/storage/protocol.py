"""The protocols of a storage: for the server (`TableStorage`) and for readers of splits (`SplitReader`).

The server calls a `TableStorage` from several worker threads at once, which every method allows. Whatever a method has
acknowledged is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from fluss_tiering.formats.log.batch import LogBatch
from fluss_tiering.model.column_changes import ColumnChange
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
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
    """Some rows of a scan, as they are stored.

    Attributes:
        values: A binary array. Each value is a schema id and a compacted row.
        next_position: The position of the next row; None at the end.
    """

    values: pa.Array
    next_position: bytes | None


class KvScan(Protocol):
    """A scan of the rows of one bucket as of one moment. It holds few rows itself and allows concurrent calls.

    Attributes:
        log_offset: The first offset of the log that is not in the scan.
    """

    log_offset: int

    def read(self, position: bytes | None, max_bytes: int | None, max_rows: int | None) -> KvScanBatch:
        """Return the rows from a position on, at least one. The same arguments always give the same rows.

        Args:
            position: The `next_position` of the batch before, or the position of that batch once more; None for the
                first row.
            max_bytes: The size limit of the array of values; None for no limit.
            max_rows: The limit of the number of rows, 1 or more; None for no limit.

        Raises:
            FlussTieringError: SCANNER_EXPIRED if the scan or its bucket is closed; CORRUPT_DATA if stored rows are
                damaged; STORAGE if they cannot be read.
        """
        ...

    def close(self) -> None:
        """Release what the scan holds. A second call does nothing."""
        ...


class TableStorage(Protocol):
    """The tables behind a server.

    Not every storage needs the methods that have an answer here: the embedded one has no cluster, and a cluster deletes
    its KV snapshots and offsets files itself.
    """

    def describe(self) -> StorageDescription:
        """Return the kind of the storage and where its data are."""
        ...

    def create_table(self, path: TablePath, descriptor: TableDescriptor) -> TableInfo:
        """Create a table.

        Raises:
            FlussTieringError: TABLE_ALREADY_EXIST if there is one at this path; INVALID_TABLE if the storage cannot
                have such a table.
        """
        ...

    def alter_table(self, path: TablePath, properties: Mapping[str, str]) -> TableInfo:
        """Replace the options of a table in one durable step. The columns and keys stay.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TABLE if an option has a wrong value
                or cannot change.
        """
        ...

    def alter_columns(self, path: TablePath, changes: Sequence[ColumnChange]) -> TableInfo:
        """Change the columns of a table in one durable step, between two writes.

        Rows that are written later have the new columns, and those from before are read with them.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TABLE if a change is refused, or if
                the columns are altered elsewhere.
        """
        del changes
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"the columns of {path} are not altered here: expected ALTER TABLE by a client of the Fluss cluster, which "
            "alters the lake table, too",
        )

    def drop_table(self, path: TablePath) -> TableInfo:
        """Drop a table with its files, and return what it was.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table.
        """
        ...

    def drop_partition(self, path: TablePath, values: Sequence[str]) -> None:
        """Drop the partition that has these values, one for each partition key.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; PARTITION_NOT_EXIST if it has no such
                partition.
        """
        ...

    def table(self, path: TablePath) -> TableInfo:
        """Return the table at this path.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is none.
        """
        ...

    def table_by_id(self, table_id: int) -> TableInfo:
        """Return the table that has this id.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is none.
        """
        ...

    def tables(self) -> Sequence[TableInfo]:
        """Return all tables, ordered by path."""
        ...

    def unusable_tables(self, known: Collection[TablePath] = ()) -> Collection[TablePath]:
        """Return the paths of tables that exist but cannot be used here, as of the last look at the tables.

        Args:
            known: The paths of tables that there were. Those of them are returned, too, that may be there still, but
                that the storage hides from this server now.
        """
        del known
        return ()

    def write(self, path: TablePath, kind: WriteKind, rows: pa.Table) -> Mapping[TableBucket, int]:
        """Write rows durably, and return the log end offset of each bucket that got some.

        All rows are checked before the first one is written.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_ROWS if the rows do not fit the table.
        """
        ...

    def buckets(self, path: TablePath, *, wait_for_leaders: bool = True) -> Sequence[BucketInfo]:
        """Return every bucket of a table with its log range and its latest KV snapshot.

        Args:
            wait_for_leaders: Whether to wait for the leader of a bucket that has none. The embedded storage has no
                leaders.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; NOT_LEADER_OR_FOLLOWER if a bucket has no
                leader.
        """
        ...

    def take_kv_snapshots(
        self, path: TablePath, buckets: Collection[TableBucket] | None = None
    ) -> Sequence[KvSnapshot]:
        """Return a KV snapshot of each bucket. A new one is taken unless the bucket's latest one is up to date.

        Args:
            buckets: The buckets that are wanted; None for all of them. Those that do not exist are left out.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; TABLE_WITHOUT_PRIMARY_KEY if it has no primary
                key.
        """
        ...

    def kv_snapshot(self, bucket: TableBucket, snapshot_id: int) -> KvSnapshot | None:
        """Return the KV snapshot that has this id, or None if it does not exist or exists no more."""
        ...

    def collectable_kv_snapshots(self, path: TablePath) -> Sequence[tuple[TableBucket, int]]:
        """Return the KV snapshots of a table that are not among the newest of their bucket, by bucket and id.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; CORRUPT_DATA if it is damaged.
        """
        del path
        return ()

    def delete_kv_snapshots(self, snapshots: Collection[tuple[TableBucket, int]]) -> int:
        """Delete KV snapshots that nobody needs, and return how many there were. One that does not exist is ignored.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        del snapshots
        return 0

    def reader(self) -> SplitReader:
        """Return a reader of this storage's own data."""
        ...

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """Yield the whole log batches that hold [start_offset, end_offset), as they are stored, in chunks of 1 MiB.

        A chunk may begin and end within a batch. This is for readers that cannot open the files.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; LOG_OFFSET_OUT_OF_RANGE if the log does not
                hold this range; CORRUPT_DATA if it is damaged.
        """
        ...

    def fetch_kv_snapshot(
        self, bucket: TableBucket, snapshot_id: int, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the entries of the key range [from_key, to_key) as they are stored.

        The columns are key and value, both binary. This is for readers that cannot open the files.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST if there is no such snapshot; CORRUPT_DATA if it is damaged.
        """
        ...

    def open_kv_scan(
        self, bucket: TableBucket, *, admit: Callable[[], None], on_lost: Callable[[], None]
    ) -> tuple[int, KvScan | None]:
        """Return a bucket's log end offset and a scan of its rows, both as of now; None as the scan if it has no rows.

        Args:
            bucket: A bucket of a primary-key table.
            admit: A function that is called before anything is opened, if the bucket may have rows. This method
                raises the errors of the function.
            on_lost: A function that is called when the bucket is closed or dropped, which ends its scan. The thread
                that calls it may hold the bucket's lock.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; TABLE_WITHOUT_PRIMARY_KEY if it has no primary
                key; INVALID_REQUEST if it has no such bucket; NOT_LEADER_OR_FOLLOWER if the storage is closed;
                CORRUPT_DATA if stored rows are damaged; STORAGE if they cannot be read.
        """
        ...

    def write_lake_offsets(self, table_id: int, log_end_offsets: Mapping[TableBucket, int]) -> str:
        """Write an offsets file in Fluss's format and return its path (`fluss-offsets` of a lake snapshot)."""
        ...

    def has_lake_offsets(self, table_id: int, path: str) -> bool:
        """Return whether `path` is an offsets file that `write_lake_offsets` made for this table and that exists.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; LAKE_TABLE_MISMATCH if the storage can tell
                that the file was written for other logs than the table has now; STORAGE if the file cannot be read.
        """
        ...

    def delete_lake_offsets(self, table_id: int, registered: str, kept: Collection[str]) -> int:
        """Delete the offsets files of a table that nobody needs any more, and return how many there were.

        A storage may leave them for some minutes, since looking for them takes long.

        A file is needed if a lake snapshot that is kept names it, or if a round wrote it that may still commit: one
        that is not more than a day older than the file of the lake snapshot that was registered last.

        Args:
            registered: The path of the file of the lake snapshot that was registered last.
            kept: The paths of the files that lake snapshots name.

        Raises:
            FlussTieringError: STORAGE if the disk refuses; TABLE_NOT_EXIST if there is no such table.
        """
        del table_id, registered, kept
        return 0

    def close(self) -> None:
        """Write everything to disk and release what the storage holds."""
        ...


class SplitReader(Protocol):
    """Reads the data that splits name, as Arrow batches; used on executors."""

    def read_log(
        self,
        table: TableInfo,
        bucket: TableBucket,
        start_offset: int,
        end_offset: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[LogBatch]:
        """Yield the rows of [start_offset, end_offset), and no others, in the order of the log.

        Args:
            table: The table, as it was when the split was planned.
            start_offset: The offset of the first row.
            end_offset: The offset after the last row.
            columns: The names of the wanted columns, in the order that the batches shall have them; None for all, in
                the table's order. Batches without columns still have rows and change types.

        Raises:
            FlussTieringError: INVALID_REQUEST if a column does not exist or is named twice; TABLE_NOT_EXIST if there is
                no such table; LOG_OFFSET_OUT_OF_RANGE if the log does not hold this range; CORRUPT_DATA if it is
                damaged; UNAVAILABLE if the source cannot be reached; STORAGE if remote files cannot be read;
                INVALID_TABLE if the table's columns have changed in the meantime.
        """
        ...

    def read_kv_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the key range [from_key, to_key) in the table's Arrow schema.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST if there is no such snapshot; CORRUPT_DATA if it is damaged;
                UNAVAILABLE if the source cannot be reached; STORAGE if its files cannot be read; INVALID_TABLE if the
                table's columns have changed in the meantime.
        """
        ...

    def measure_kv_snapshot(self, table: TableInfo, snapshot: KvSnapshot) -> KvSnapshot:
        """Return the snapshot with its size and with keys at which it can be split.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST if there is no such snapshot; CORRUPT_DATA if a file is missing;
                STORAGE if its files cannot be read.
        """
        ...


def without_primary_key(path: TablePath, what: str) -> FlussTieringError:
    """Return TABLE_WITHOUT_PRIMARY_KEY, which says what the table does not have for that reason."""
    return FlussTieringError(
        ErrorCode.TABLE_WITHOUT_PRIMARY_KEY,
        f"table {path} has no primary key and so no {what}: expected a primary-key table",
    )
