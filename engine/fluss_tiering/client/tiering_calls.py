"""The calls about leases of KV snapshots, rounds, the statuses of tables and lake snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fluss_tiering.api.v1 import kv_snapshot_leases_pb2 as leases_pb
from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.client import streams
from fluss_tiering.client.connection import Connection, parts
from fluss_tiering.model.error_text import clean_error
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot, MaintenanceReport
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.model.tiering import (
    MAX_SENT_ERROR_CHARS,
    ROUND_FORMAT,
    AcquiredLease,
    Claim,
    HeartbeatAnswer,
    HeartbeatEntry,
    KvSnapshotLease,
    LeaseDrop,
    LeaseOutcome,
    RoundOrigin,
    StatusChanges,
    TieringRound,
    TieringStatus,
)
from fluss_tiering.wire import leases as leases_wire
from fluss_tiering.wire import tiering as wire
from fluss_tiering.wire.buckets import bucket_to_pb
from fluss_tiering.wire.errors import error_from_pb
from fluss_tiering.wire.tables import path_to_pb


class TieringCalls(Connection):
    """The part of a client that is about tiering and its leases."""

    def acquire_lease(
        self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int], *, allow_empty: bool = False
    ) -> AcquiredLease:
        """Add KV snapshots to a lease, renew the whole lease, and begin an attempt.

        More snapshots than one request may name are added by several, each of which begins an attempt. If a later one
        fails, the lease has the snapshots of those before it, and repeating the call finishes it.

        Args:
            lease_id: The id of the lease. The lease is created if it does not exist.
            duration_ms: The time in milliseconds after which the lease expires unless it is renewed.
            snapshots: The id of the snapshot to lease for each bucket.
            allow_empty: Whether `snapshots` may be empty. The call then only begins an attempt.

        Raises:
            FlussTieringError: INVALID_REQUEST if the lease id, the duration or a bucket is invalid; TABLE_NOT_EXIST if
                there is no such table; TABLE_WITHOUT_PRIMARY_KEY if a table is a log table.
        """
        acquired = []
        for some in parts(snapshots.items()):
            request = leases_pb.AcquireKvSnapshotLeaseRequest(
                lease_id=lease_id,
                lease_duration_ms=duration_ms,
                snapshots_to_lease=leases_wire.snapshots_to_pb(dict(some)),
                allow_empty=allow_empty,
            )
            answer = self._call(self._stubs.leases.AcquireKvSnapshotLease, request)
            acquired.append(leases_wire.acquired_from_pb(lease_id, answer))
        unavailable = {bucket: id_ for each in acquired for bucket, id_ in each.unavailable_snapshots.items()}
        return replace(acquired[-1], unavailable_snapshots=unavailable)

    def renew_leases(self, durations_ms: Mapping[str, int]) -> dict[str, int | FlussTieringError]:
        """Renew leases, and return the new expiration time of each lease by its id.

        The value is the error KV_SNAPSHOT_LEASE_NOT_EXIST if the lease no longer exists. The holder of such a lease
        must stop.

        Args:
            durations_ms: The time in milliseconds after which each lease expires, by lease id.
        """
        renewals = [leases_pb.PbLeaseRenewal(lease_id=id_, lease_duration_ms=ms) for id_, ms in durations_ms.items()]
        request = leases_pb.RenewKvSnapshotLeasesRequest(renewals=renewals)
        answer = self._call(self._stubs.leases.RenewKvSnapshotLeases, request)
        return {each.lease_id: leases_wire.renewed_from_pb(each) for each in answer.renewed}

    def release_lease(self, lease_id: str, buckets: Iterable[TableBucket], *, attempt_token: int | None = None) -> bool:
        """Release buckets of a lease; return False and do nothing if a newer attempt has begun.

        Buckets that the lease does not have are ignored.
        """
        for some in parts(buckets):
            request = leases_pb.ReleaseKvSnapshotLeaseRequest(
                lease_id=lease_id, buckets_to_release=map(bucket_to_pb, some), attempt_token=attempt_token
            )
            if self._call(self._stubs.leases.ReleaseKvSnapshotLease, request).stale_attempt:
                return False
        return True

    def drop_lease(self, lease_id: str, *, attempt_token: int | None = None) -> LeaseDrop:
        """Drop a lease, with everything that it keeps."""
        request = leases_pb.DropKvSnapshotLeaseRequest(lease_id=lease_id, attempt_token=attempt_token)
        return leases_wire.drop_from_pb(self._call(self._stubs.leases.DropKvSnapshotLease, request))

    def list_leases(self, lease_id: str | None = None) -> list[KvSnapshotLease]:
        """Return the lease of this id, if it exists, or all leases."""
        request = leases_pb.ListKvSnapshotLeasesRequest(lease_id=lease_id or "")
        pages = self._pages(self._stubs.leases.ListKvSnapshotLeases, request)
        return [leases_wire.lease_from_pb(each) for page in pages for each in page.leases]

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
        an error for each table whose report was refused. Secrets in errors are masked, and long errors are cut.

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
        request = pb.LakeTieringHeartbeatRequest(
            tiering_tables=map(wire.entry_to_pb, tiering),
            finished_tables=map(wire.entry_to_pb, finished),
            failed_tables=[wire.entry_to_pb(_cleaned(each)) for each in failed],
            request_table=request_table,
            force_finished_tables=force_finished,
            lease_id=lease_id,
            attempt_token=attempt_token,
            driver=driver,
            round_format=ROUND_FORMAT if request_table else None,
            maintained_tables=map(wire.maintenance_to_pb, maintained),
        )
        return wire.answer_from_pb(self._call(self._stubs.lake_tiering.LakeTieringHeartbeat, request))

    def claim_tables(
        self,
        paths: Sequence[TablePath],
        lease_id: str,
        attempt_token: int | None,
        driver: str,
        *,
        origin: RoundOrigin | None = None,
    ) -> list[Claim | FlussTieringError]:
        """Claim tables by name; return a claim or an error for each, in the order of the names.

        Args:
            paths: The tables.
            lease_id: The lease under which the rounds run.
            attempt_token: The token of the lease's attempt.
            driver: The name of the driver, for people.
            origin: Where the driver was started, for people.
        """
        request = pb.ClaimTablesRequest(
            table_paths=map(path_to_pb, paths),
            lease_id=lease_id,
            attempt_token=attempt_token,
            driver=driver,
            round_format=ROUND_FORMAT,
            origin=None if origin is None else wire.origin_to_pb(origin),
        )
        answer = self._call(self._stubs.lake_tiering.ClaimTables, request)
        return [wire.claim_from_pb(each) for each in answer.claims]

    def cancel_tiering(self, lease_id: str, attempt_token: int | None, reason: str) -> bool:
        """Fail the running rounds of the attempt; return False and do nothing if a newer attempt has begun."""
        request = wire.cancel_request(lease_id, attempt_token, reason)
        return not self._call(self._stubs.lake_tiering.CancelTiering, request).stale_attempt

    def list_tiering_statuses(self, path: TablePath | None = None, *, failing: bool = False) -> list[TieringStatus]:
        """Return the status of a table, or of all tables that are tiered.

        Args:
            path: The table, or None for all tables.
            failing: Whether to leave out the tables whose last round did not fail.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TIERING_STATE if it is not tiered.
        """
        table_path = None if path is None else path_to_pb(path)
        request = pb.ListTieringStatusesRequest(table_path=table_path, failing=failing)
        answer = self._call(self._stubs.lake_tiering.ListTieringStatuses, request)
        return wire.statuses_from_pb(answer, failing=failing)

    def watch_tiering_statuses(self, paths: Sequence[TablePath] = ()) -> Iterator[StatusChanges]:
        """Yield the statuses of these tables, or of all tables if there are none, and then each change.

        The watch goes on until the iterator is closed. A slow reader gets the newest status of a table, not each one.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if one of the tables does not exist; INVALID_TIERING_STATE if one of them
                is not tiered; UNAVAILABLE if the server stops or sends nothing for the client's timeout. The caller may
                then watch again.
        """
        with self._errors():
            request = pb.WatchTieringStatusesRequest(table_paths=map(path_to_pb, paths))
            call = self._stubs.lake_tiering.WatchTieringStatuses(request)
            for number, response in enumerate(streams.messages(call, self._timeout)):
                changes = wire.changes_from_pb(response)
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
        request = pb.ResumeTablesRequest(table_paths=map(path_to_pb, paths), include_scheduled=include_scheduled)
        answer = self._call(self._stubs.lake_tiering.ResumeTables, request)
        return [wire.resumed_from_pb(each) for each in answer.resumed_tables]

    def list_tiering_rounds(
        self, path: TablePath | None = None, lease_id: str | None = None, limit: int = 20
    ) -> list[TieringRound]:
        """Return the last `limit` rounds of each table, newest first.

        Args:
            path: The table, or None for all tables.
            lease_id: The lease of the rounds, or None for all leases.
            limit: The highest number of rounds of each table.
        """
        pages = self._pages(self._stubs.lake_tiering.ListTieringRounds, wire.rounds_request(path, lease_id, limit))
        rounds = [wire.round_from_pb(each) for page in pages for each in page.rounds]
        return sorted(rounds, key=lambda each: each.path)

    def lease_outcome(self, lease_id: str, attempt_token: int | None = None) -> LeaseOutcome:
        """Return the newest round of each table under the lease, without rounds of attempts older than the token."""
        request = pb.GetLeaseOutcomeRequest(lease_id=lease_id, attempt_token=attempt_token)
        return wire.outcome_from_pb(self._call(self._stubs.lake_tiering.GetLeaseOutcome, request))

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
        request = wire.prepare_request(table, tiering_epoch, log_end_offsets)
        (prepared,) = self._call(self._stubs.lake_tiering.PrepareLakeTableSnapshot, request).prepared_tables
        if prepared.HasField("error"):
            raise error_from_pb(prepared.error)
        return prepared.lake_table_offsets_path

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
        request = wire.commit_request(table, tiering_epoch, snapshot_id, log_end_offsets, offsets_path, commit_id)
        for committed in self._call(self._stubs.lake_tiering.CommitLakeTableSnapshot, request).tables_resp:
            if committed.HasField("error"):
                raise error_from_pb(committed.error)

    def lake_snapshot(self, path: TablePath) -> LakeSnapshot | None:
        """Return the newest registered lake snapshot, or None if there is none.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table.
        """
        try:
            request = pb.GetLakeSnapshotRequest(table_path=path_to_pb(path))
            return wire.lake_snapshot_from_pb(self._call(self._stubs.lake_tiering.GetLakeSnapshot, request))
        except FlussTieringError as error:
            if error.code is ErrorCode.LAKE_SNAPSHOT_NOT_EXIST:
                return None
            raise


def _cleaned(entry: HeartbeatEntry) -> HeartbeatEntry:
    if entry.error_message is None:
        return entry
    return replace(entry, error_message=clean_error(entry.error_message, MAX_SENT_ERROR_CHARS))
