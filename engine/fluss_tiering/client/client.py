"""The blocking client of the tiering server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import grpc

from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.client import streams
from fluss_tiering.client.calls import lake, leases, tables
from fluss_tiering.client.calls import tiering as tiering_calls
from fluss_tiering.client.calls.call import Stubs, UnaryCall
from fluss_tiering.client.channel import CHANNEL_OPTIONS, FailedCall, checked_target, error_of
from fluss_tiering.client.scan import TableScan
from fluss_tiering.model.closing import Closing
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.lease import AcquiredLease, KvSnapshotLease, LeaseDrop
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


class TieringClient(Closing):
    """Talks to the server at `target` ("host:port"); safe to share between threads, a context manager.

    Every call has a deadline of `timeout` seconds, every message of a stream likewise. A server that is away for a
    moment is tried again, except by calls whose repetition could do their work twice. Each method raises
    FlussTieringError: with the code the server gave, or UNAVAILABLE when it cannot be reached or is too slow;
    making a client raises INVALID_REQUEST for an address without host or port.
    """

    def __init__(self, target: str, *, timeout: float = 30.0) -> None:
        self._target = checked_target(target)
        self._timeout = timeout
        self._channel = grpc.insecure_channel(target, CHANNEL_OPTIONS)
        self._stubs = Stubs(self._channel)

    def close(self) -> None:
        """Closes the connection; calls in flight end with UNAVAILABLE."""
        self._channel.close()

    # Tables

    def describe_storage(self) -> StorageDescription:
        """Which storage the server has, and where its files are."""
        return self._call(tables.describe_storage())

    def create_table(
        self, path: TablePath, descriptor: TableDescriptor, *, ignore_if_exists: bool = False
    ) -> TableInfo:
        """A new table, or with `ignore_if_exists` the one that is there. Raises TABLE_ALREADY_EXIST, INVALID_TABLE."""
        return self._call(tables.create_table(path, descriptor, ignore_if_exists))

    def alter_table(
        self, path: TablePath, set_properties: Mapping[str, str] | None = None, reset_properties: Iterable[str] = ()
    ) -> TableInfo:
        """Sets options of a table and resets others to their defaults; its tiering follows (S20).

        Raises TABLE_NOT_EXIST; INVALID_TABLE for a value that is none, or an option that cannot change.
        """
        return self._call(tables.alter_table(path, set_properties or {}, reset_properties))

    def drop_table(self, path: TablePath, *, ignore_if_not_exists: bool = False) -> None:
        """Drops a table with its rows, snapshots, leases and status. Raises TABLE_NOT_EXIST."""
        self._call(tables.drop_table(path, ignore_if_not_exists))

    def drop_partition(self, path: TablePath, values: Sequence[str], *, ignore_if_not_exists: bool = False) -> None:
        """Drops the partition of these values, one for each partition key, with its rows and snapshots.

        What of it is in the lake stays there. Raises TABLE_NOT_EXIST, PARTITION_NOT_EXIST.
        """
        self._call(tables.drop_partition(path, values, ignore_if_not_exists))

    def list_tables(self, database: str | None = None) -> list[TableInfo]:
        """The tables of a database, or all, by path."""
        return self._call(tables.list_tables(database))

    def get_tables(self, paths: Sequence[TablePath]) -> list[TableInfo]:
        """Tables by name, in the order asked for. Raises TABLE_NOT_EXIST naming the first that does not exist."""
        return self._call(tables.get_tables(paths))

    def write_rows(
        self, path: TablePath, kind: WriteKind, batches: Iterable[pa.Table | pa.RecordBatch]
    ) -> Iterator[int]:
        """Writes rows while the result is iterated; yields how many each request held once they are durable.

        Requests hold about 4 MiB and never span two batches; a few are in flight at once. After an error, what was
        yielded is written and the rest may be in part. Raises TABLE_NOT_EXIST, INVALID_ROWS.
        """
        with self._errors():
            yield from streams.write_rows(self._stubs.tables.WriteRows, path, kind, batches, self._timeout)

    def list_buckets(self, paths: Sequence[TablePath]) -> dict[TablePath, list[BucketInfo]]:
        """Every bucket of the tables with its log range and latest KV snapshot. Raises TABLE_NOT_EXIST."""
        return self._call(tables.list_buckets(paths))

    def take_kv_snapshots(self, paths: Sequence[TablePath]) -> dict[int, list[KvSnapshot]]:
        """Takes KV snapshots now; table id -> the latest of each bucket.

        Raises TABLE_NOT_EXIST, TABLE_WITHOUT_PRIMARY_KEY.
        """
        return self._call(tables.take_kv_snapshots(paths))

    def kv_snapshot_metadata(self, snapshots: Sequence[tuple[TableBucket, int]]) -> list[KvSnapshot]:
        """KV snapshots by bucket and id, in the order asked for. Raises KV_SNAPSHOT_NOT_EXIST naming the first."""
        return self._call(tables.kv_snapshot_metadata(snapshots))

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        """The log batches that hold [start_offset, end_offset), whole, in Fluss's log format.

        Raises TABLE_NOT_EXIST, LOG_OFFSET_OUT_OF_RANGE, CORRUPT_DATA.
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
        """The entries of the key range [from_key, to_key) as Arrow IPC streams (columns key: binary, value: binary).

        Raises KV_SNAPSHOT_NOT_EXIST, CORRUPT_DATA.
        """
        request = tables_pb2.FetchKvSnapshotRequest(
            bucket=bucket_to_pb(bucket), snapshot_id=snapshot_id, from_key=from_key, to_key=to_key
        )
        with self._errors():
            for response in streams.messages(self._stubs.tables.FetchKvSnapshot(request), self._timeout):
                yield response.arrow_ipc

    def scan(
        self,
        table: TableInfo | TablePath,
        *,
        limit: int | None = None,
        batch_size_bytes: int = _SCAN_BATCH_BYTES,
        buckets: Sequence[TableBucket] | None = None,
        columns: Sequence[str] | None = None,
    ) -> TableScan:
        """The rows of a primary-key table, each bucket as of one moment: see `scan.TableScan`.

        The result iterates `pyarrow.RecordBatch` in the table's Arrow schema (also as its `schema`) and is a context
        manager; when it has come to the end, `log_offsets` maps each bucket to the offset from which `read_log` of a
        split reader (`storage.open`) goes on without a gap or a double (K5). A lost answer is asked for again (K15);
        where scanners are many, opening is tried for the client's timeout.

        Args:
            table: its info, or its path, by which it is looked up at once.
            limit: rows in all, 1 or more; the scan then ends early. None for all rows.
            batch_size_bytes: of stored rows in an answer, at most; the server may send less (K7).
            buckets: of the table; None for all.
            columns: names of those that are decoded, in this order; None for all. The server sends all of them.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST; INVALID_REQUEST for a limit or size below 1, and for a column that the
                table has not, or that is named twice. While iterating also
                TABLE_WITHOUT_PRIMARY_KEY; TOO_MANY_SCANNERS; SCANNER_EXPIRED when the caller was idle for longer than
                `kv.scanner.ttl` or the bucket was closed, UNKNOWN_SCANNER_ID when the server was restarted: the scan
                is to be started again.
        """
        for what, number in (("limit", limit), ("batch_size_bytes", batch_size_bytes)):
            if number is not None and number < 1:
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST, f"a scan with {what} {number}: expected a number of 1 or more"
                )
        info = self.get_tables([table])[0] if isinstance(table, TablePath) else table
        if buckets is None and info.descriptor.partition_keys:
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
        """Pins bucket -> snapshot id under the lease, renews all of it and begins an attempt (L1-L6).

        With `allow_empty`, nothing to pin only begins an attempt. Raises INVALID_REQUEST, TABLE_NOT_EXIST,
        TABLE_WITHOUT_PRIMARY_KEY.
        """
        return self._call(leases.acquire(lease_id, duration_ms, snapshots, allow_empty))

    def renew_leases(self, durations_ms: Mapping[str, int]) -> dict[str, int | FlussTieringError]:
        """Lease id -> its new expiration time, or KV_SNAPSHOT_LEASE_NOT_EXIST: its holder stops (L4, L5)."""
        return self._call(leases.renew(durations_ms))

    def release_lease(self, lease_id: str, buckets: Iterable[TableBucket], *, attempt_token: int | None = None) -> bool:
        """Releases buckets, known or not (L8); False when a newer attempt began: nothing was done (L22)."""
        return self._call(leases.release(lease_id, buckets, attempt_token))

    def drop_lease(self, lease_id: str, *, attempt_token: int | None = None) -> LeaseDrop:
        """Drops a lease with all it pins."""
        return self._call(leases.drop(lease_id, attempt_token))

    def list_leases(self, lease_id: str | None = None) -> list[KvSnapshotLease]:
        """The lease of that id, where there is one, or all."""
        return self._call(leases.list_leases(lease_id))

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
    ) -> HeartbeatAnswer:
        """Reports rounds (failed, still tiering, finished, in this order) and may ask for a pending table (S5-S9).

        `force_finished` are table ids, which must be among `finished`. What is refused stands in the answer by table.
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
            )
        )

    def claim_tables(
        self, paths: Sequence[TablePath], lease_id: str, attempt_token: int | None, driver: str
    ) -> list[Claim | FlussTieringError]:
        """Claims tables by name, each on its own: a claim or why not, in the order asked for."""
        return self._call(tiering_calls.claim_tables(paths, lease_id, attempt_token, driver))

    def cancel_tiering(self, lease_id: str, attempt_token: int | None, reason: str) -> bool:
        """Fails the running rounds of the attempt; False when a newer attempt began: nothing was done (L22)."""
        return self._call(tiering_calls.cancel_tiering(lease_id, attempt_token, reason))

    def list_tiering_statuses(self, path: TablePath | None = None) -> list[TieringStatus]:
        """The status of a table, or of all tables that are tiered. Raises TABLE_NOT_EXIST, INVALID_TIERING_STATE."""
        return self._call(tiering_calls.list_tiering_statuses(path))

    def watch_tiering_statuses(self, paths: Sequence[TablePath] = ()) -> Iterator[StatusChanges]:
        """The statuses of these tables, or of all with none: first all that there are, then changes, until closed.

        A slow reader gets the newest status of each table. Raises TABLE_NOT_EXIST, INVALID_TIERING_STATE; UNAVAILABLE
        when the server stops or falls silent for the client's timeout: watch again then.
        """
        with self._errors():
            call = self._stubs.lake_tiering.WatchTieringStatuses(tiering_calls.watch_request(paths))
            for number, response in enumerate(streams.messages(call, self._timeout)):
                changes = changes_from_pb(response)
                # Without news the server only shows that it lives.
                if number == 0 or changes.statuses or changes.removed:
                    yield changes

    def resume_tables(self, paths: Sequence[TablePath]) -> list[TieringStatus | FlussTieringError]:
        """Ends the rest of failed tables, parked ones too, each on its own: its status then, or why not (S19)."""
        return self._call(tiering_calls.resume_tables(paths))

    def list_tiering_rounds(
        self, path: TablePath | None = None, lease_id: str | None = None, limit: int = 20
    ) -> list[TieringRound]:
        """The last `limit` rounds of each table asked for, newest first (S23)."""
        return self._call(tiering_calls.list_tiering_rounds(path, lease_id, limit))

    def lease_outcome(self, lease_id: str, attempt_token: int | None = None) -> LeaseOutcome:
        """The newest round of each table under the lease, without those of attempts older than the token (S25)."""
        return self._call(tiering_calls.lease_outcome(lease_id, attempt_token))

    def prepare_lake_snapshot(
        self, table: TableInfo, tiering_epoch: int, log_end_offsets: Mapping[TableBucket, int]
    ) -> str:
        """Writes the offsets file of a lake snapshot to be, merged with what is tiered; the answer is its path.

        Raises FENCED_TIERING_EPOCH, INVALID_TIERING_STATE, TABLE_NOT_EXIST, INVALID_REQUEST, LOG_OFFSET_OUT_OF_RANGE.
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
        """Makes a lake snapshot known, with its own offsets; repeating it with the same changes nothing.

        Raises what `prepare_lake_snapshot` does, and INVALID_REQUEST for an offsets file that does not exist.
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
        """The newest lake snapshot that the server knows, or None. Raises TABLE_NOT_EXIST."""
        try:
            return self._call(lake.lake_snapshot(path))
        except FlussTieringError as error:
            if error.code is ErrorCode.LAKE_SNAPSHOT_NOT_EXIST:
                return None
            raise

    def _call(self, call: UnaryCall[Any, Any, ResultT]) -> ResultT:
        with self._errors():
            return call.read(call.method(self._stubs)(call.request, timeout=self._timeout))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise error_of(cast("FailedCall", error), self._target, self._timeout) from error
