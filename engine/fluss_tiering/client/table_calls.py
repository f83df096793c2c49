"""The calls about tables, their rows and their KV snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fluss_tiering.api.v1 import tables_pb2 as pb
from fluss_tiering.client import streams
from fluss_tiering.client.connection import Connection, parts
from fluss_tiering.client.failed_call import error_of
from fluss_tiering.client.scan import TableScan, check_range
from fluss_tiering.client.security import ClientSecurity
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
from fluss_tiering.wire import buckets as buckets_wire
from fluss_tiering.wire import tables as wire

if TYPE_CHECKING:
    import pyarrow as pa

_SCAN_BATCH_BYTES: Final = 4 << 20

_MAX_BYTES: Final = 2**31 - 1
_MAX_ROWS: Final = 2**63 - 1
"""The largest numbers of the message's fields."""

_TABLES_PER_CALL: Final = 100
"""How many tables a call asks for. The buckets of some thousand could be more than one answer may have."""

_SNAPSHOTS_PER_CALL: Final = 1000
"""How many KV snapshots a call asks for. A cluster is asked for one after the other, and a call has a deadline."""


class TableCalls(Connection):
    """The part of a client that is about tables."""

    def describe_storage(self) -> StorageDescription:
        """Return which storage the server has, and where its files are."""
        return wire.description_from_pb(self._call(self._stubs.tables.DescribeStorage, pb.DescribeStorageRequest()))

    def create_table(
        self, path: TablePath, descriptor: TableDescriptor, *, ignore_if_exists: bool = False
    ) -> TableInfo:
        """Create a table and return it.

        Args:
            path: The name of the table.
            descriptor: The definition of the table.
            ignore_if_exists: Whether to return an existing table of this name as it is.

        Raises:
            FlussTieringError: TABLE_ALREADY_EXIST if a table of this name exists; INVALID_TABLE if the definition is
                invalid.
        """
        request = pb.CreateTableRequest(
            table_path=wire.path_to_pb(path),
            descriptor=wire.descriptor_to_pb(descriptor),
            ignore_if_exists=ignore_if_exists,
        )
        return wire.table_from_pb(self._call(self._stubs.tables.CreateTable, request).table)

    def alter_table(
        self,
        path: TablePath,
        set_properties: Mapping[str, str] | None = None,
        reset_properties: Iterable[str] = (),
        column_changes: Iterable[ColumnChange] = (),
    ) -> TableInfo:
        """Set options of a table and reset others to their defaults, or change its columns. Tiering follows.

        Args:
            path: The name of the table.
            set_properties: The options to set, by key.
            reset_properties: The keys of the options to reset.
            column_changes: The changes of columns, which are made in this order, all of them or none. The lake table
                follows in the next round.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TABLE if a value is invalid, or an
                option or a column cannot be changed so; INVALID_REQUEST if nothing is changed, or options and columns.
        """
        request = wire.alteration_to_pb(path, set_properties or {}, reset_properties, column_changes)
        return wire.table_from_pb(self._call(self._stubs.tables.AlterTable, request).table)

    def drop_table(
        self, path: TablePath, *, ignore_if_not_exists: bool = False, drop_untiered: bool = False
    ) -> int | None:
        """Drop a table with its rows, snapshots, leases and status. Its lake table is kept.

        Args:
            path: The name of the table.
            ignore_if_not_exists: Whether a table that does not exist is no error.
            drop_untiered: Whether the table is dropped although it has records that are not in the lake. They are lost.

        Returns:
            The number of log records that were not in the lake, 0 for a table that is not tiered; None if they could
            not be counted.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table, unless `ignore_if_not_exists` is set;
                INVALID_TIERING_STATE if there are records that are not in the lake, unless `drop_untiered` is set.
        """
        request = pb.DropTableRequest(
            table_path=wire.path_to_pb(path), ignore_if_not_exists=ignore_if_not_exists, drop_untiered=drop_untiered
        )
        return _dropped_untiered(self._call(self._stubs.tables.DropTable, request))

    def drop_partition(
        self,
        path: TablePath,
        values: Sequence[str],
        *,
        ignore_if_not_exists: bool = False,
        drop_untiered: bool = False,
    ) -> int | None:
        """Drop a partition with its rows and snapshots. Rows of it that are in the lake are kept there.

        Args:
            path: The name of the table.
            values: The values of the partition, one for each partition key.
            ignore_if_not_exists: Whether a partition that does not exist is no error.
            drop_untiered: Whether the partition is dropped although it has records that are not in the lake. They are
                lost.

        Returns:
            The number of log records that were not in the lake, as `drop_table` does.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; PARTITION_NOT_EXIST if there is no such
                partition; INVALID_TIERING_STATE if there are records that are not in the lake, unless `drop_untiered`
                is set.
        """
        request = pb.DropPartitionRequest(
            table_path=wire.path_to_pb(path),
            partition_values=values,
            ignore_if_not_exists=ignore_if_not_exists,
            drop_untiered=drop_untiered,
        )
        return _dropped_untiered(self._call(self._stubs.tables.DropPartition, request))

    def list_tables(self, database: str | None = None) -> list[TableInfo]:
        """Return the tables of a database, or all tables, sorted by path."""
        pages = self._pages(self._stubs.tables.ListTables, pb.ListTablesRequest(database_name=database or ""))
        return [wire.table_from_pb(each) for page in pages for each in page.tables]

    def get_tables(self, paths: Sequence[TablePath]) -> list[TableInfo]:
        """Return tables by name, in the order of the names.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if one of them does not exist. The message names the first such table.
        """
        answers = [
            self._call(self._stubs.tables.GetTables, pb.GetTablesRequest(table_paths=map(wire.path_to_pb, some)))
            for some in parts(paths, _TABLES_PER_CALL)
        ]
        return [wire.table_from_pb(each) for answer in answers for each in answer.tables]

    def security_of_executors(self, path: TablePath) -> ClientSecurity:
        """Return the credentials with which executors read a table: a token of their own, and no secret of this client.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table.
        """
        return self._security.for_executors(self.create_read_token(path) if self._security.proves_identity else "")

    def create_read_token(self, path: TablePath) -> str:
        """Return a token with which executors read a table for some hours; empty if the server asks for none.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table.
        """
        request = pb.CreateReadTokenRequest(table_path=wire.path_to_pb(path))
        return self._call(self._stubs.tables.CreateReadToken, request).token

    def write_rows(
        self, path: TablePath, kind: WriteKind, batches: Iterable[pa.Table | pa.RecordBatch]
    ) -> Iterator[int]:
        """Write rows while the result is iterated, and yield the number of rows of each request once they are durable.

        A request holds rows of one batch only: about 4 MiB, and at most 8 MiB unless a single row is larger. A few
        requests are in flight at the same time. After an error, the rows that were yielded are written. Some of the
        other rows may be written, too.

        Args:
            path: The name of the table.
            kind: What the rows mean.
            batches: The rows, with the columns of the table.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_ROWS if the rows do not fit the table.
        """
        with self._errors():
            yield from streams.write_rows(self._stubs.tables.WriteRows, path, kind, batches, self._timeout)

    def list_buckets(self, paths: Sequence[TablePath]) -> dict[TablePath, list[BucketInfo]]:
        """Return the buckets of each table with their log ranges and latest KV snapshots.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if one of the tables does not exist.
        """
        answers = [
            self._call(self._stubs.tables.ListBuckets, pb.ListBucketsRequest(table_paths=map(wire.path_to_pb, some)))
            for some in parts(paths, _TABLES_PER_CALL)
        ]
        return dict(buckets_wire.buckets_from_pb(each) for answer in answers for each in answer.tables)

    def take_kv_snapshots(
        self, paths: Sequence[TablePath], buckets: Collection[TableBucket] = ()
    ) -> dict[int, list[KvSnapshot]]:
        """Take KV snapshots now, and return the latest snapshot of each bucket by the id of its table.

        Args:
            paths: The tables.
            buckets: The buckets of these tables that are wanted; all of them if there are none. A snapshot takes some
                10 ms, so that a call for thousands of buckets may take longer than its deadline.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if one of the tables does not exist; TABLE_WITHOUT_PRIMARY_KEY if one of
                them is a log table.
        """
        request = pb.TakeKvSnapshotsRequest(
            table_paths=map(wire.path_to_pb, paths), buckets=map(buckets_wire.bucket_to_pb, buckets)
        )
        return {
            table.table_id: [buckets_wire.kv_snapshot_from_pb(table.table_id, each) for each in table.snapshots]
            for table in self._call(self._stubs.tables.TakeKvSnapshots, request).tables
        }

    def kv_snapshot_metadata(self, snapshots: Sequence[tuple[TableBucket, int]]) -> list[KvSnapshot]:
        """Return KV snapshots by bucket and id, in the order of the arguments.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST if one of them does not exist. The message names the first such
                snapshot.
        """
        found: list[KvSnapshot] = []
        for some in parts(snapshots, _SNAPSHOTS_PER_CALL):
            named = [buckets_wire.snapshot_ref_to_pb(*each) for each in some]
            answer = self._call(
                self._stubs.tables.GetKvSnapshotMetadata, pb.GetKvSnapshotMetadataRequest(snapshots=named)
            )
            found += [
                buckets_wire.kv_snapshot_from_pb(bucket.table_id, each)
                for (bucket, _), each in zip(some, answer.snapshots, strict=True)
            ]
        return found

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """Yield the whole log batches that hold the offsets [start_offset, end_offset), in Fluss's log format.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; LOG_OFFSET_OUT_OF_RANGE if the log does not
                have these offsets; CORRUPT_DATA if the stored log is damaged.
        """
        request = pb.FetchLogRequest(
            bucket=buckets_wire.bucket_to_pb(bucket), start_offset=start_offset, end_offset=end_offset
        )
        with self._errors():
            for response in streams.messages(self._stubs.tables.FetchLog(request), self._timeout):
                yield response.log_batches

    def fetch_kv_snapshot(
        self, bucket: TableBucket, snapshot_id: int, from_key: bytes | None, to_key: bytes | None
    ) -> Iterator[bytes]:
        """Yield the entries of a KV snapshot as Arrow IPC streams with the binary columns `key` and `value`.

        Args:
            bucket: The bucket of the snapshot.
            snapshot_id: The id of the snapshot.
            from_key: The first key of the range, or None for the first key of the snapshot.
            to_key: The key before which the range ends, or None to read up to the last key of the snapshot.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST if there is no such snapshot; CORRUPT_DATA if its files are
                damaged.
        """
        request = pb.FetchKvSnapshotRequest(
            bucket=buckets_wire.bucket_to_pb(bucket), snapshot_id=snapshot_id, from_key=from_key, to_key=to_key
        )
        with self._errors():
            for response in streams.messages(self._stubs.tables.FetchKvSnapshot(request), self._timeout):
                yield response.arrow_ipc

    def scan(
        self,
        table: TableInfo | TablePath | str,
        *,
        limit: int | None = None,
        batch_size_bytes: int = _SCAN_BATCH_BYTES,
        buckets: Sequence[TableBucket] | None = None,
        columns: Sequence[str] | None = None,
    ) -> TableScan:
        """Scan the rows of a primary-key table, each bucket as of one moment.

        The result yields record batches and is a context manager. At its end, `log_offsets` gives for each bucket the
        offset from which the log continues the scan, without a gap and without a row twice. If an answer is lost, the
        scan asks for it again. If the server has too many scanners, the scan tries to open one until the timeout of the
        client has passed.

        Args:
            table: The table, its path, or its path as the text "database.table". The scan looks up a path at once.
            limit: The number of rows after which the scan ends, at least 1, or None for all rows.
            batch_size_bytes: The highest number of bytes of stored rows in one answer. The server may send less.
            buckets: The buckets to scan, or None for all buckets of the table.
            columns: The names of the columns to decode, in their order, or None for all columns. The server sends all
                columns anyway.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_REQUEST if the limit or the size is
                out of range, if a bucket is of another table, or if a column does not exist or is named twice.
                Iterating also raises TABLE_WITHOUT_PRIMARY_KEY if the table is a log table; TOO_MANY_SCANNERS if the
                server has no room for another scanner; SCANNER_EXPIRED if the caller did nothing for longer than
                `kv.scanner.ttl`, the bucket was closed or the cluster lost the scan; UNKNOWN_SCANNER_ID if the server
                was restarted. The scan must then be started again.
        """
        check_range("limit", limit, _MAX_ROWS)
        check_range("batch_size_bytes", batch_size_bytes, _MAX_BYTES)
        if isinstance(table, str):
            table = TablePath.parse(table)
        info = table if isinstance(table, TableInfo) else self.get_tables([table])[0]
        if buckets is None and (info.descriptor.partition_keys or info.bucket_count_epoch > 0):
            buckets = [each.bucket for each in self.list_buckets([info.path])[info.path]]
        elif buckets is None:
            buckets = [TableBucket(info.table_id, bucket) for bucket in range(info.descriptor.num_buckets)]
        for each in buckets:
            # The server would send the rows of the bucket's own table, and they would be decoded as rows of this one.
            if each.table_id != info.table_id:
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"a scan of {info.path}, which has the table id {info.table_id}, with {each}: expected buckets of "
                    "this table; if it was dropped and created again, list its buckets anew",
                )
        return TableScan(
            self._stubs.kv_scan.ScanKv,
            lambda failed: error_of(failed, self._target, self._timeout),
            info,
            buckets,
            limit=limit,
            batch_size_bytes=batch_size_bytes,
            columns=columns,
            timeout=self._timeout,
        )


def _dropped_untiered(response: pb.DropTableResponse | pb.DropPartitionResponse) -> int | None:
    return response.dropped_untiered_records if response.HasField("dropped_untiered_records") else None
