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
from fluss_tiering.model.tiering import MAX_SENT_ERROR_CHARS, Claim, HeartbeatEntry, TieringState
from fluss_tiering.spark.ended import spark_ended_error
from fluss_tiering.spark.retry import Retry
from fluss_tiering.spark.round.keepalive import KeepAlive, RoundGuard
from fluss_tiering.spark.round.lease import Lease, Releaser, TableLease
from fluss_tiering.spark.round.result import RoundOutcome, TableResult
from fluss_tiering.spark.round.round import RoundServices, job_group, run_round
from fluss_tiering.spark.runtime import Event

_CANCELLED: Final = "cancelled: the application was told to stop before the round ended"

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
    ) -> None:
        self._services = services
        self._lease = lease
        self._keepalive = keepalive
        self._releaser = releaser
        self._claim_timeout_s = claim_timeout_s
        self._driver = driver
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
            # A claim would only count another failure of the table.
            if (ended := self._end_of_spark()) is not None:
                raise ended
            claim = self._claim(table)
        except FlussTieringError as error:
            result = TableResult(
                table.path,
                TieringState.FAILED,
                self._now() - began,
                error=_text(error),
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
            [table.path], self._lease.lease_id, self._lease.attempt_token, self._driver
        )
        if isinstance(claim, FlussTieringError):
            raise claim
        return claim

    def _round(self, table: TableInfo, claim: Claim, lease: TableLease, began: float) -> TableResult:
        context = self._services.spark.sparkContext
        guard = RoundGuard(claim, lambda: context.cancelJobGroup(job_group(guard)), self._services.runtime)
        self._keepalive.watch(guard)
        try:
            if self._stopped.is_set():
                raise cancelled_error()
            outcome = run_round(self._services, table, lease, guard)
            self._finish(claim, outcome)
        except Exception as failure:  # noqa: BLE001 - every failure must give its table an outcome
            error = self._reason(failure)
            return TableResult(
                table.path,
                TieringState.FAILED,
                self._now() - began,
                epoch=claim.tiering_epoch,
                error=error,
                recorded=self._fail(claim, error),
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

    def _end_of_spark(self) -> FlussTieringError | None:
        """Return an error if Spark has ended; None if it has not. No round begins any more once it has."""
        if not self._spark_ended():
            return None
        self._stopped.set()
        return spark_ended_error()

    def _reason(self, failure: Exception) -> str:
        """Return why a round failed. If Spark has ended, its calls fail in ways that do not say so."""
        if isinstance(failure, FlussTieringError):
            return _text(failure)
        return _text(self._end_of_spark() or failure)

    def _finish(self, claim: Claim, outcome: RoundOutcome) -> None:
        entry = HeartbeatEntry(
            claim.table_id, claim.tiering_epoch, stats=outcome.stats, coordinator_epoch=claim.coordinator_epoch
        )
        rest = () if outcome.complete else (claim.table_id,)
        answer = self._services.client.heartbeat(finished=[entry], force_finished=rest)
        if refusal := answer.finished_errors.get(claim.table_id):
            raise refusal

    def _fail(self, claim: Claim, error: str) -> bool:
        """Record the failure, and return whether the server knows an outcome of this round, this one or another."""
        entry = HeartbeatEntry(
            claim.table_id, claim.tiering_epoch, error_message=error, coordinator_epoch=claim.coordinator_epoch
        )
        try:
            answer = self._services.client.heartbeat(failed=[entry])
        except FlussTieringError as unreachable:
            logger.warning("the failure of %s could not be recorded: %s", claim.path, unreachable)
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
