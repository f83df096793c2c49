"""The blocking client of the tiering server."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import grpc

from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.client import streams
from fluss_tiering.client.calls import lake, leases, tables
from fluss_tiering.client.calls import tiering as tiering_calls
from fluss_tiering.client.calls.call import Stubs, UnaryCall, next_page
from fluss_tiering.client.failed_call import FailedCall, error_of
from fluss_tiering.client.fork import forked, require_own_process
from fluss_tiering.client.scan import TableScan
from fluss_tiering.client.secured_target import SecuredTarget
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.client.target import Target
from fluss_tiering.client.throttling import Throttling
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.cluster import ClusterHealth
from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.lease import AcquiredLease, KvSnapshotLease, LeaseDrop
from fluss_tiering.model.maintenance import MaintenanceReport
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
from fluss_tiering.model.tiering import (
    Claim,
    HeartbeatAnswer,
    HeartbeatEntry,
    LeaseOutcome,
    StatusChanges,
    TieringRound,
    TieringStatus,
)
from fluss_tiering.wire.buckets import bucket_to_pb
from fluss_tiering.wire.tiering import changes_from_pb

if TYPE_CHECKING:
    import pyarrow as pa

_SCAN_BATCH_BYTES: Final = 4 << 20

ResultT = TypeVar("ResultT")
T = TypeVar("T")


class TieringClient(Closing):
    """The blocking client of the tiering server.

    Threads may share a client. A `with` block closes it.

    If the server cannot be reached for a moment, a call is tried again, unless a repeated call could do its work twice.
    Each method raises FlussTieringError with the code that the server gave. The code is UNAVAILABLE if the server
    cannot be reached or is too slow. The section "Raises" of a method lists the other codes.

    Args:
        target: The address of the server, as "host:port". With "id@host:port" each call is refused unless the server
            has this id, which it logs at its start.
        timeout: The deadline of each call, and the longest wait for each message of a stream, in seconds.
        label: What errors name besides the address, for example a connection of Airflow.
        security: The client's credentials; None for those that the environment variables name.

    Raises:
        FlussTieringError: INVALID_REQUEST if the address has no host or no port, if the credentials are wrong or would
            be sent to another machine without TLS, or if this process was forked from one that had used a client. Each
            call raises it if a server of another id answers.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float = 30.0,
        label: str | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        named = Target.parse(target)
        self._target = f"{named.address} ({label})" if label else named.address
        self._timeout = timeout
        require_own_process()
        self._security = security or ClientSecurity.from_environment()
        secured = SecuredTarget(named, self._security)
        self._channel = secured.open_channel()
        self._stubs = Stubs(secured.with_metadata(self._channel))

    def close(self) -> None:
        """Close the connection. Calls that are in flight end with UNAVAILABLE."""
        if not forked():
            self._channel.close()

    # Tables

    def describe_storage(self) -> StorageDescription:
        """Return which storage the server has, and where its files are."""
        return self._call(tables.describe_storage())

    def cluster_health(self) -> ClusterHealth | None:
        """Return the health of the Fluss cluster behind the server.

        It is None if the server has the embedded storage, or if the cluster is older than Fluss 1.0.

        Raises:
            FlussTieringError: INVALID_REQUEST if the cluster refuses to tell it.
        """
        return self._call(tables.cluster_health())

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
        return self._call(tables.create_table(path, descriptor, ignore_if_exists))

    def alter_table(
        self, path: TablePath, set_properties: Mapping[str, str] | None = None, reset_properties: Iterable[str] = ()
    ) -> TableInfo:
        """Set options of a table, and reset others to their defaults. The tiering of the table follows them.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TABLE if a value is invalid or an
                option cannot be changed.
        """
        return self._call(tables.alter_table(path, set_properties or {}, reset_properties))

    def drop_table(self, path: TablePath, *, ignore_if_not_exists: bool = False) -> None:
        """Drop a table with its rows, snapshots, leases and status. Its lake table is kept.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table, unless `ignore_if_not_exists` is set.
        """
        self._call(tables.drop_table(path, ignore_if_not_exists))

    def drop_partition(self, path: TablePath, values: Sequence[str], *, ignore_if_not_exists: bool = False) -> None:
        """Drop a partition with its rows and snapshots. Rows of it that are in the lake are kept there.

        Args:
            path: The name of the table.
            values: The values of the partition, one for each partition key.
            ignore_if_not_exists: Whether a partition that does not exist is no error.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; PARTITION_NOT_EXIST if there is no such
                partition.
        """
        self._call(tables.drop_partition(path, values, ignore_if_not_exists))

    def list_tables(self, database: str | None = None) -> list[TableInfo]:
        """Return the tables of a database, or all tables, sorted by path."""
        return self._list(tables.list_tables(database))

    def get_tables(self, paths: Sequence[TablePath]) -> list[TableInfo]:
        """Return tables by name, in the order of the names.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if one of them does not exist. The message names the first such table.
        """
        return self._call(tables.get_tables(paths))

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
        return self._call(tables.create_read_token(path))

    def write_rows(
        self, path: TablePath, kind: WriteKind, batches: Iterable[pa.Table | pa.RecordBatch]
    ) -> Iterator[int]:
        """Write rows while the result is iterated, and yield the number of rows of each request once they are durable.

        A request holds about 4 MiB and rows of one batch only. A few requests are in flight at the same time. After an
        error, the rows that were yielded are written. Some of the other rows may be written, too.

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
        return self._call(tables.list_buckets(paths))

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
        return self._call(tables.take_kv_snapshots(paths, buckets))

    def kv_snapshot_metadata(self, snapshots: Sequence[tuple[TableBucket, int]]) -> list[KvSnapshot]:
        """Return KV snapshots by bucket and id, in the order of the arguments.

        Raises:
            FlussTieringError: KV_SNAPSHOT_NOT_EXIST if one of them does not exist. The message names the first such
                snapshot.
        """
        return self._call(tables.kv_snapshot_metadata(snapshots))

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """Yield the whole log batches that hold the offsets [start_offset, end_offset), in Fluss's log format.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; LOG_OFFSET_OUT_OF_RANGE if the log does not
                have these offsets; CORRUPT_DATA if the stored log is damaged.
        """
        request = tables_pb2.FetchLogRequest(
            bucket=bucket_to_pb(bucket), start_offset=start_offset, end_offset=end_offset
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
        request = tables_pb2.FetchKvSnapshotRequest(
            bucket=bucket_to_pb(bucket), snapshot_id=snapshot_id, from_key=from_key, to_key=to_key
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
                below 1, or if a column does not exist or is named twice. Iterating also raises
                TABLE_WITHOUT_PRIMARY_KEY if the table is a log table; TOO_MANY_SCANNERS if the server has no room for
                another scanner; SCANNER_EXPIRED if the caller did nothing for longer than `kv.scanner.ttl`, the bucket
                was closed or the cluster lost the scan; UNKNOWN_SCANNER_ID if the server was restarted. The scan must
                then be started again.
        """
        for what, number in (("limit", limit), ("batch_size_bytes", batch_size_bytes)):
            if number is not None and number < 1:
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST, f"a scan with {what} {number}: expected a number of 1 or more"
                )
        if isinstance(table, str):
            table = TablePath.parse(table)
        info = self.get_tables([table])[0] if isinstance(table, TablePath) else table
        if buckets is None and (info.descriptor.partition_keys or info.bucket_count_epoch > 0):
            buckets = [each.bucket for each in self.list_buckets([info.path])[info.path]]
        elif buckets is None:
            buckets = [TableBucket(info.table_id, bucket) for bucket in range(info.descriptor.num_buckets)]
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

    # KV snapshot leases

    def acquire_lease(
        self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int], *, allow_empty: bool = False
    ) -> AcquiredLease:
        """Add KV snapshots to a lease, renew the whole lease, and begin an attempt.

        Args:
            lease_id: The id of the lease. The lease is created if it does not exist.
            duration_ms: The time in milliseconds after which the lease expires unless it is renewed.
            snapshots: The id of the snapshot to lease for each bucket.
            allow_empty: Whether `snapshots` may be empty. The call then only begins an attempt.

        Raises:
            FlussTieringError: INVALID_REQUEST if the lease id, the duration or a bucket is invalid; TABLE_NOT_EXIST if
                there is no such table; TABLE_WITHOUT_PRIMARY_KEY if a table is a log table.
        """
        return self._call(leases.acquire(lease_id, duration_ms, snapshots, allow_empty))

    def renew_leases(self, durations_ms: Mapping[str, int]) -> dict[str, int | FlussTieringError]:
        """Renew leases, and return the new expiration time of each lease by its id.

        The value is the error KV_SNAPSHOT_LEASE_NOT_EXIST if the lease no longer exists. The holder of such a lease
        must stop.

        Args:
            durations_ms: The time in milliseconds after which each lease expires, by lease id.
        """
        return self._call(leases.renew(durations_ms))

    def release_lease(self, lease_id: str, buckets: Iterable[TableBucket], *, attempt_token: int | None = None) -> bool:
        """Release buckets of a lease; return False and do nothing if a newer attempt has begun.

        Buckets that the lease does not have are ignored.
        """
        return self._call(leases.release(lease_id, buckets, attempt_token))

    def drop_lease(self, lease_id: str, *, attempt_token: int | None = None) -> LeaseDrop:
        """Drop a lease, with everything that it keeps."""
        return self._call(leases.drop(lease_id, attempt_token))

    def list_leases(self, lease_id: str | None = None) -> list[KvSnapshotLease]:
        """Return the lease of this id, if it exists, or all leases."""
        return self._list(leases.list_leases(lease_id))

    # Tiering

    def heartbeat(
        self,
        *,
        tiering: Iterable[HeartbeatEntry] = (),
        finished: Iterable[HeartbeatEntry] = (),
        failed: Iterable[HeartbeatEntry] = (),
        request_table: bool = False,
        force_finished: Iterable[int] = (),
        lease_id: str | None = None,
        attempt_token: int | None = None,
        driver: str | None = None,
        maintained: Iterable[MaintenanceReport] = (),
    ) -> HeartbeatAnswer:
        """Report on rounds and on maintenance, and ask for a pending table if wanted.

        The server applies the failed rounds first, then the rounds that go on, then the finished ones. The answer has
        an error for each table whose report was refused.

        Args:
            tiering: The rounds that go on.
            finished: The rounds that succeeded.
            failed: The rounds that failed, with their errors.
            request_table: Whether to claim the table that has been pending longest.
            force_finished: The ids of finished tables that must be pending again at once.
            lease_id: The lease under which a table is claimed.
            attempt_token: The token of the attempt under which a table is claimed.
            driver: The name of the driver, for people.
            maintained: What maintenance of lake tables has done since the last report.

        Raises:
            FlussTieringError: INVALID_REQUEST if a table in `force_finished` is not in `finished`; STALE_ATTEMPT if a
                table is asked for and a newer attempt has begun.
        """
        return self._call(
            tiering_calls.heartbeat(
                tiering=tiering,
                finished=finished,
                failed=failed,
                request_table=request_table,
                force_finished=force_finished,
                lease_id=lease_id,
                attempt_token=attempt_token,
                driver=driver,
                maintained=maintained,
            )
        )

    def claim_tables(
        self, paths: Sequence[TablePath], lease_id: str, attempt_token: int | None, driver: str
    ) -> list[Claim | FlussTieringError]:
        """Claim tables by name; return a claim or an error for each, in the order of the names."""
        return self._call(tiering_calls.claim_tables(paths, lease_id, attempt_token, driver))

    def cancel_tiering(self, lease_id: str, attempt_token: int | None, reason: str) -> bool:
        """Fail the running rounds of the attempt; return False and do nothing if a newer attempt has begun."""
        return self._call(tiering_calls.cancel_tiering(lease_id, attempt_token, reason))

    def list_tiering_statuses(self, path: TablePath | None = None) -> list[TieringStatus]:
        """Return the status of a table, or of all tables that are tiered.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TIERING_STATE if it is not tiered.
        """
        return self._call(tiering_calls.list_tiering_statuses(path))

    def watch_tiering_statuses(self, paths: Sequence[TablePath] = ()) -> Iterator[StatusChanges]:
        """Yield the statuses of these tables, or of all tables if there are none, and then each change.

        The watch goes on until the iterator is closed. A slow reader gets the newest status of a table, not each one.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if one of the tables does not exist; INVALID_TIERING_STATE if one of them
                is not tiered; UNAVAILABLE if the server stops or sends nothing for the client's timeout. The caller may
                then watch again.
        """
        with self._errors():
            call = self._stubs.lake_tiering.WatchTieringStatuses(tiering_calls.watch_request(paths))
            for number, response in enumerate(streams.messages(call, self._timeout)):
                changes = changes_from_pb(response)
                # A message without a change only shows that the server is alive.
                if number == 0 or changes.statuses or changes.removed:
                    yield changes

    def resume_tables(
        self, paths: Sequence[TablePath], *, include_scheduled: bool = False
    ) -> list[TieringStatus | FlussTieringError]:
        """Make failed tables pending at once, parked tables too.

        The answer has the new status of each table, or the error that says why it was not resumed. A table that has
        not failed is left as it is.

        Args:
            paths: The tables.
            include_scheduled: Whether scheduled tables become pending as well, before their freshness has passed. A
                server of an older version leaves them as they are.
        """
        return self._call(tiering_calls.resume_tables(paths, include_scheduled))

    def list_tiering_rounds(
        self, path: TablePath | None = None, lease_id: str | None = None, limit: int = 20
    ) -> list[TieringRound]:
        """Return the last `limit` rounds of each table, newest first.

        Args:
            path: The table, or None for all tables.
            lease_id: The lease of the rounds, or None for all leases.
            limit: The highest number of rounds of each table.
        """
        rounds = self._list(tiering_calls.list_tiering_rounds(path, lease_id, limit))
        return sorted(rounds, key=lambda each: each.path)

    def lease_outcome(self, lease_id: str, attempt_token: int | None = None) -> LeaseOutcome:
        """Return the newest round of each table under the lease, without rounds of attempts older than the token."""
        return self._call(tiering_calls.lease_outcome(lease_id, attempt_token))

    def prepare_lake_snapshot(
        self, table: TableInfo, tiering_epoch: int, log_end_offsets: Mapping[TableBucket, int]
    ) -> str:
        """Write the offsets file of a lake snapshot that will be committed, and return the path of the file.

        The file also has the offsets of the buckets that were tiered before.

        Args:
            table: The table.
            tiering_epoch: The epoch of the round.
            log_end_offsets: The offset to which each bucket of the round is tiered.

        Raises:
            FlussTieringError: FENCED_TIERING_EPOCH if a newer round has begun; INVALID_TIERING_STATE if no round of the
                table runs; TABLE_NOT_EXIST if there is no such table; INVALID_REQUEST if a bucket is unknown or its
                offset goes back; LOG_OFFSET_OUT_OF_RANGE if an offset is past the end of the log.
        """
        return self._call(lake.prepare(table, tiering_epoch, log_end_offsets))

    def commit_lake_snapshot(  # noqa: PLR0917 - the parts of one record, in the order of the message
        self,
        table: TableInfo,
        tiering_epoch: int,
        snapshot_id: int,
        log_end_offsets: Mapping[TableBucket, int],
        offsets_path: str,
        commit_id: str,
    ) -> None:
        """Register a lake snapshot with its offsets. A repeated call with the same arguments changes nothing.

        Args:
            table: The table.
            tiering_epoch: The epoch of the round.
            snapshot_id: The id of the lake snapshot.
            log_end_offsets: The offset to which each bucket of the round is tiered.
            offsets_path: The path of the offsets file, as `prepare_lake_snapshot` returned it.
            commit_id: The id of the commit, as the summary of the lake snapshot has it.

        Raises:
            FlussTieringError: INVALID_REQUEST if there is no such offsets file; otherwise as `prepare_lake_snapshot`.
        """
        self._call(
            lake.commit(
                table=table,
                tiering_epoch=tiering_epoch,
                snapshot_id=snapshot_id,
                log_end_offsets=log_end_offsets,
                offsets_path=offsets_path,
                commit_id=commit_id,
            )
        )

    def lake_snapshot(self, path: TablePath) -> LakeSnapshot | None:
        """Return the newest registered lake snapshot, or None if there is none.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table.
        """
        try:
            return self._call(lake.lake_snapshot(path))
        except FlussTieringError as error:
            if error.code is ErrorCode.LAKE_SNAPSHOT_NOT_EXIST:
                return None
            raise

    def _call(self, call: UnaryCall[Any, Any, ResultT]) -> ResultT:
        throttling = Throttling(self._timeout)
        while True:
            try:
                with self._errors():
                    return call.read(call.method(self._stubs)(call.request, timeout=self._timeout))
            except ThrottledError as error:
                time.sleep(throttling.pause_s(error))

    def _list(self, call: UnaryCall[Any, Any, list[T]]) -> list[T]:
        entries: list[T] = []
        page: UnaryCall[Any, Any, list[T]] | None = call
        while page is not None:
            response = self._call(replace(page, read=lambda response: response))
            entries += page.read(response)
            page = next_page(page, response)
        return entries

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise error_of(cast("FailedCall", error), self._target, self._timeout) from error
