"""One table in an application: it is claimed and tiered, its outcome is recorded, and its snapshots are released."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from py4j.protocol import Py4JError

from fluss_tiering.lake.iceberg.java import java_error_text
from fluss_tiering.model.error_text import clean_error
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import MAX_SENT_ERROR_CHARS, Claim, HeartbeatEntry, RoundOrigin, TieringState
from fluss_tiering.spark.ended import SparkEndedError, tells_end_of_spark
from fluss_tiering.spark.retry import Retry
from fluss_tiering.spark.round.commit import LakeRewrittenError
from fluss_tiering.spark.round.keepalive import KeepAlive, RoundGuard
from fluss_tiering.spark.round.lease import Lease, Releaser, TableLease
from fluss_tiering.spark.round.result import RoundOutcome, TableResult
from fluss_tiering.spark.round.round import run_round
from fluss_tiering.spark.round.services import RoundServices, job_group
from fluss_tiering.spark.runtime import Event

_CANCELLED: Final = "cancelled: the application was told to stop before the round ended"
_LOST: Final = frozenset(
    {
        ErrorCode.STALE_ATTEMPT,
        ErrorCode.FENCED_TIERING_EPOCH,
        ErrorCode.INVALID_COORDINATOR,
        ErrorCode.INVALID_TIERING_STATE,
        ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST,
    }
)
"""The errors of a running round whose attempt, epoch or lease is over."""

logger = logging.getLogger(__name__)


def cancelled_error() -> FlussTieringError:
    """Return the error of a round that ends because its application is stopped."""
    return FlussTieringError(ErrorCode.UNAVAILABLE, _CANCELLED)


class TableRun:
    """Tiers tables. Several threads may use it, each for another table.

    Args:
        services: What all rounds of the application share.
        lease: The lease under which tables are claimed.
        keepalive: Sends heartbeats for the rounds.
        releaser: Releases the snapshots of a table when its round has ended.
        claim_timeout_s: How long to wait for a table that another round holds, in seconds.
        driver: The name of the application that people see.
        stopped: The event after which no round begins. It is set here if Spark has ended.
        spark_ended: Tells whether the Spark application has ended by itself.
        origin: Where the application was started, for people.
    """

    def __init__(
        self,
        services: RoundServices,
        lease: Lease,
        *,
        keepalive: KeepAlive,
        releaser: Releaser,
        claim_timeout_s: float,
        driver: str,
        stopped: Event,
        spark_ended: Callable[[], bool],
        origin: RoundOrigin | None = None,
    ) -> None:
        self._services = services
        self._lease = lease
        self._keepalive = keepalive
        self._releaser = releaser
        self._claim_timeout_s = claim_timeout_s
        self._driver = driver
        self._origin = origin
        self._stopped = stopped
        self._spark_ended = spark_ended

    def tier(self, table: TableInfo, lease: TableLease) -> TableResult:
        """Run a round of the table and return the outcome. A failure is part of it and affects no other table.

        Args:
            table: The table. No other thread of this application may tier it at the same time.
            lease: The snapshots that are pinned for the table.
        """
        began = self._now()
        try:
            self._services.progress.step(table.path, "claiming")
            # The round could only be interrupted.
            if self._has_spark_ended():
                raise SparkEndedError()
            claim = self._claim(table)
        except FlussTieringError as error:
            result = TableResult(
                table.path,
                TieringState.FAILED,
                self._now() - began,
                error=_text(error),
                interrupted=self._stopped.is_set() or error.code is ErrorCode.STALE_ATTEMPT,
                held_by_another=_is_being_tiered(error),
            )
        else:
            result = self._round(table, claim, lease, began)
        # The snapshots are released last: a retry of a Spark task reads them again until the round has ended.
        lease.release(self._releaser)
        self._services.progress.done(result)
        return result

    def _now(self) -> float:
        return self._services.runtime.monotonic()

    def _claim(self, table: TableInfo) -> Claim:
        retry = Retry(
            self._stopped,
            codes=frozenset({ErrorCode.TABLE_BEING_TIERED}),
            within_s=self._claim_timeout_s,
            runtime=self._services.runtime,
        )
        try:
            return retry(self._claim_once, table)
        except FlussTieringError as error:
            if not _is_being_tiered(error) or self._stopped.is_set():
                raise
            raise FlussTieringError(
                error.code,
                f"{error.message}; waited {self._claim_timeout_s:g} s for that round to end: try again when it has",
            ) from None

    def _claim_once(self, table: TableInfo) -> Claim:
        if self._stopped.is_set():
            raise cancelled_error()
        (claim,) = self._services.client.claim_tables(
            [table.path], self._lease.lease_id, self._lease.attempt_token, self._driver, origin=self._origin
        )
        if isinstance(claim, FlussTieringError):
            raise claim
        return claim

    def _round(self, table: TableInfo, claim: Claim, lease: TableLease, began: float) -> TableResult:
        services = self._services
        guard = RoundGuard(claim, lambda: services.cancel_stage(services.spark, job_group(guard)), services.runtime)
        self._keepalive.watch(guard)
        try:
            if self._stopped.is_set():
                raise cancelled_error()
            outcome = run_round(services, table, lease, guard)
            guard.reports_its_end = True
            self._finish(claim, outcome)
        except Exception as failure:  # noqa: BLE001 - every failure must give its table an outcome
            error, interrupted = self._reason(table, failure, guard)
            rewritten = interrupted and isinstance(failure, LakeRewrittenError)
            guard.reports_its_end = True
            return TableResult(
                table.path,
                TieringState.FAILED,
                self._now() - began,
                epoch=claim.tiering_epoch,
                error=error,
                recorded=self._fail(claim, error, interrupted=interrupted, lake_rewritten=rewritten),
                interrupted=interrupted,
            )
        finally:
            self._keepalive.unwatch(guard)
        return TableResult(
            table.path,
            TieringState.TIERED,
            self._now() - began,
            epoch=claim.tiering_epoch,
            stats=outcome.stats,
            recorded=True,
            complete=outcome.complete,
            cost=outcome.cost,
        )

    def _has_spark_ended(self, failure: Exception | None = None) -> bool:
        """Return whether Spark has ended, also by what a failure tells. No round begins any more once it has."""
        ended = tells_end_of_spark(failure) or self._spark_ended()
        if ended:
            self._stopped.set()
        return ended

    def _reason(self, table: TableInfo, failure: Exception, guard: RoundGuard) -> tuple[str, bool]:
        """Return why a round was not tiered, and whether something other than its table was the cause.

        If the round was stopped or Spark has ended, its calls fail in ways that do not say so.
        """
        if guard.lost is not None:
            return _text(guard.lost), True
        told_to_stop = self._stopped.is_set()
        if self._has_spark_ended(failure):
            return _text(SparkEndedError()), True
        if told_to_stop:
            return _text(cancelled_error()), True
        by_others = isinstance(failure, FlussTieringError) and failure.code in _LOST
        return _text(failure), by_others or isinstance(failure, LakeRewrittenError)

    def _finish(self, claim: Claim, outcome: RoundOutcome) -> None:
        entry = HeartbeatEntry(
            claim.table_id, claim.tiering_epoch, stats=outcome.stats, coordinator_epoch=claim.coordinator_epoch
        )
        rest = () if outcome.complete else (claim.table_id,)
        answer = self._services.client.heartbeat(finished=[entry], force_finished=rest)
        if refusal := answer.finished_errors.get(claim.table_id):
            raise refusal

    def _fail(self, claim: Claim, error: str, *, interrupted: bool, lake_rewritten: bool) -> bool:
        """Record the failure, and return whether the server knows an outcome of this round, this one or another.

        A failure that cannot be recorded now is reported again as long as the application runs.
        """
        entry = HeartbeatEntry(
            claim.table_id,
            claim.tiering_epoch,
            error_message=error,
            coordinator_epoch=claim.coordinator_epoch,
            interrupted=interrupted,
            lake_rewritten=lake_rewritten,
        )
        try:
            answer = self._services.client.heartbeat(failed=[entry])
        except FlussTieringError as unreachable:
            logger.warning(
                "the failure of %s could not be recorded, and is reported again: %s", claim.path, unreachable
            )
            self._keepalive.report_later(entry)
            return False
        if refusal := answer.failed_errors.get(claim.table_id):
            logger.warning("the failure of %s was refused: %s", claim.path, refusal)
        return True


def _is_being_tiered(error: FlussTieringError) -> bool:
    return error.code is ErrorCode.TABLE_BEING_TIERED


def _text(failure: Exception) -> str:
    """Return the failure in one line, without secrets. An unexpected failure is also logged with its traceback."""
    if isinstance(failure, FlussTieringError):
        text = failure.message
    elif isinstance(failure, Py4JError):
        text = java_error_text(failure)
    else:
        logger.error("a round failed unexpectedly", exc_info=failure)
        text = f"{type(failure).__name__}: {failure}"
    return clean_error(text, MAX_SENT_ERROR_CHARS)
