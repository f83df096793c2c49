"""The calls about rounds, the statuses of tables and lake snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fluss_tiering.client import streams
from fluss_tiering.client.blocking.connection import Connection
from fluss_tiering.client.calls import lake
from fluss_tiering.client.calls import tiering as tiering_calls
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot, MaintenanceReport
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.model.tiering import (
    Claim,
    HeartbeatAnswer,
    HeartbeatEntry,
    LeaseOutcome,
    RoundOrigin,
    StatusChanges,
    TieringRound,
    TieringStatus,
)
from fluss_tiering.wire.tiering import changes_from_pb


class TieringCalls(Connection):
    """The part of a client that is about tiering."""

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
        return self._call(tiering_calls.claim_tables(paths, lease_id, attempt_token, driver, origin))

    def cancel_tiering(self, lease_id: str, attempt_token: int | None, reason: str) -> bool:
        """Fail the running rounds of the attempt; return False and do nothing if a newer attempt has begun."""
        return self._call(tiering_calls.cancel_tiering(lease_id, attempt_token, reason))

    def list_tiering_statuses(self, path: TablePath | None = None, *, failing: bool = False) -> list[TieringStatus]:
        """Return the status of a table, or of all tables that are tiered.

        Args:
            path: The table, or None for all tables.
            failing: Whether to leave out the tables whose last round did not fail.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TIERING_STATE if it is not tiered.
        """
        return self._call(tiering_calls.list_tiering_statuses(path, failing))

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
        return self._call(lake.prepare_lake_snapshot(table, tiering_epoch, log_end_offsets))

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
            lake.commit_lake_snapshot(
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
