"""The attempt of a task to tier the tables of a lease with Spark, from the rounds of an earlier try to its end."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_fluss.attempt import release_lease
from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.operators.arguments import why_not_tiered
from airflow_provider_fluss.operators.living_rounds import settled, wait_for_living_rounds
from airflow_provider_fluss.operators.spark_submit import spark_cause
from airflow_provider_fluss.outcome import Judgement, Verdict, fail_if_ended, judge, named
from airflow_provider_fluss.submit_task import HAS_SUBMITTED
from airflow_provider_fluss.task_states import CLEARED, KILL_SECONDS, MARKED, TaskInstanceKey, within
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import LeaseOutcome, TieringState

if TYPE_CHECKING:
    from airflow.sdk.types import Logger, RuntimeTaskInstanceProtocol

    from fluss_tiering.client import TieringClient

_CANCEL_TIMEOUT_S: Final = 5.0
_DEFERRED_KEY: Final = "deferred_attempt"
"""The XCom in which a deferred task keeps its attempt. A trigger that fails hands on nothing that the task gave it."""


class TieringAttempt:
    """One try of a task to tier the tables of a lease. The task opens it, gives Spark what is left, and ends it.

    Args:
        lease: The lease.
        ti: The task instance.
        retries: How often the task may be tried again.
        owns_lease: Whether no other task releases the lease.
        log: The logger of the task.

    Attributes:
        lease: The lease, with the token of the attempt that Spark tiers under.
        is_killed: Whether the task was killed.
        left: The tables that Spark has to tier.
        has_waited: Whether rounds of an earlier try were waited for.
        has_begun: Whether the task began an attempt of its own, whose lease only this task knows.
    """

    def __init__(
        self,
        lease: LeaseHandle,
        ti: RuntimeTaskInstanceProtocol,
        *,
        retries: int,
        owns_lease: bool,
        log: Logger | logging.Logger,
    ) -> None:
        self.lease = lease
        self.is_killed = False
        self.left: list[TablePath] = []
        self.has_waited = False
        self._key = TaskInstanceKey.of(ti)
        self._first_token = lease.attempt_token
        self._is_last_try = ti.try_number > ti.max_tries
        # Airflow gives a cleared task its number of retries once more.
        self._was_cleared = ti.max_tries > retries
        self._owns_lease = owns_lease
        self.has_begun = False
        self._is_deferred = False
        self._marked: str | None = None
        self._log = log

    def open(self) -> None:
        """Find out which tables Spark has to tier, and record the rounds of those without new rows.

        An application that outlived an earlier try is waited for first. If a person cleared the task and its attempt is
        over, a new one begins.

        Raises:
            AirflowException: The task was killed.
            AirflowFailException: The attempt was cancelled, or a newer one began.
        """
        lease = self.lease
        self.left = [TablePath.parse(table) for table in lease.tables]
        try:
            with FlussHook(lease.fluss_conn_id).get_client() as client:
                outcome, waited_for = wait_for_living_rounds(
                    lambda: client.lease_outcome(lease.lease_id, lease.attempt_token),
                    lambda: self.is_killed,
                    self._log,
                )
                if self.is_killed:
                    raise self._killed_error()
                self.has_waited = bool(waited_for)
                done = settled(outcome, waited_for)
                self.left = [table for table in self.left if table not in done]
                if self.left:
                    self._go_on_or_begin(client, outcome)
                    self._finish_unchanged(client)
        except FlussTieringError as error:
            # The application tells the reason in the statuses of the tables, or waits until the server is back.
            self._log.warning("All tables of lease %s are given to Spark: %s", lease.lease_id, error)

    def defer(self, ti: RuntimeTaskInstanceProtocol) -> None:
        """Keep what is known of the attempt while the task is deferred. Airflow keeps the XComs of a task meanwhile."""
        self._is_deferred = True
        ti.xcom_push(
            key=_DEFERRED_KEY,
            value={
                "lease": self.lease.to_xcom(),
                "first_token": self._first_token,
                "left": list(map(str, self.left)),
                "has_begun": self.has_begun,
            },
        )

    def resume(self, ti: RuntimeTaskInstanceProtocol) -> None:
        """Go on with the attempt that `defer` has kept."""
        kept = ti.xcom_pull(task_ids=ti.task_id, key=_DEFERRED_KEY, map_indexes=self._key.index)
        self.lease = LeaseHandle.from_xcom(kept["lease"])
        self._first_token = kept["first_token"]
        self.left = [TablePath.parse(table) for table in kept["left"]]
        self.has_begun = kept["has_begun"]

    def end(self, error: Exception | None = None) -> bool:
        """Judge the rounds after Spark has ended.

        In cluster deploy mode rounds may still run. The sensor waits for those.

        Args:
            error: Why Spark failed; None if it did not.

        Returns:
            Whether the task has done its work; False if Spark's error is the reason why it has not. On the last try,
            the attempt is cancelled then.

        Raises:
            AirflowException: The task was killed, or the rounds ended and tell more than Spark's error.
            AirflowFailException: The tables that are not Tiered were dropped, or their tiering was switched off.
        """
        if self.is_killed:
            # What Spark logs while it is ended is no cause.
            raise self._killed_error() from error
        judgement = self._judgement()
        if judgement is not None and error is not None and judgement.verdict is Verdict.TIERED:
            self._log.warning("%s, although Spark failed: %s", judgement.message, error)
            return True
        if judgement is not None:
            fail_if_ended(judgement, error)
        if error is None:
            return True
        if judgement is not None and (wrong := self._why_never(judgement)):
            self.fail(wrong)
            raise AirflowFailException(f"Spark could not tier all tables, and no retry can: {wrong}") from error
        if self._is_last_try or isinstance(error, AirflowFailException):
            self.fail(spark_cause(error))
        return False

    def leave(self, error: Exception) -> None:
        """Give up after an error if no try follows, so that what still runs is cancelled."""
        if not self.is_killed and (self._is_last_try or isinstance(error, AirflowFailException)):
            self.fail(error)

    def fail(self, why: object) -> None:
        """Cancel the attempt because the task fails."""
        self.cancel(f"task {self._key.task_id} failed: {why}")

    def cancel(self, reason: str) -> None:
        """Cancel the rounds of the attempt that still run, and release the lease if no other task does so."""
        lease = self.lease
        try:
            with FlussHook(lease.fluss_conn_id, timeout=_CANCEL_TIMEOUT_S).get_client() as client:
                if self._owns_lease:
                    release_lease(client, lease, reason, self._log)
                else:
                    client.cancel_tiering(lease.lease_id, lease.attempt_token, reason)
        except FlussTieringError as error:
            # The failure of the task matters more than this one. The rounds end when their heartbeats time out.
            self._log.warning("The rounds under lease %s could not be cancelled: %s", lease.lease_id, error)

    def kill(self) -> None:
        """Cancel the attempt if a person marked the task, or on the last try. Else the next try goes on with it."""
        self.is_killed = True
        within(KILL_SECONDS, self._cancel_killed, self._log, "Cancelling the rounds of a task that is killed")

    def release(self) -> None:
        """Drop the lease if this task began the attempt: the release task knows only the attempt before."""
        if not self.has_begun or self._is_deferred:
            return
        lease = self.lease
        try:
            with FlussHook(lease.fluss_conn_id).get_client() as client:
                client.drop_lease(lease.lease_id, attempt_token=lease.attempt_token)
        except FlussTieringError as error:
            self._log.warning("Lease %s was not released. It ends when it expires: %s", lease.lease_id, error)

    def _go_on_or_begin(self, client: TieringClient, outcome: LeaseOutcome) -> None:
        """Tier under the attempt of the lease, or under a newer or a new one if a person cleared this task."""
        from fluss_tiering.client import lease_latest_snapshots  # noqa: PLC0415 - gRPC is not needed to parse a DAG

        lease, newest = self.lease, outcome.newest_attempt_token or 0
        is_over = outcome.cancelled_reason is not None
        if not is_over and newest <= (lease.attempt_token or 0):
            return
        if not self._was_cleared:
            why = outcome.cancelled_reason or f"a newer attempt of the same lease took over (attempt token {newest})"
            raise AirflowFailException(f"Tiering of {named(self.left)} was cancelled: {why}")
        if is_over:
            newest = lease_latest_snapshots(client, lease.lease_id, self.left, lease.lease_duration_ms).attempt_token
            self._log.info("Acquired lease %s again (attempt token %d)", lease.lease_id, newest)
            self.has_begun = True
        self.lease = replace(lease, attempt_token=newest)

    def _finish_unchanged(self, client: TieringClient) -> None:
        """Finish the rounds of the tables without new rows, so that the others are left."""
        from fluss_tiering.client import finish_unchanged_tables  # noqa: PLC0415 - gRPC is not needed to parse a DAG

        statuses = [status for table in self.left for status in client.list_tiering_statuses(table)]
        # A round may have begun after the wait.
        finished = finish_unchanged_tables(
            client,
            [each for each in statuses if each.state is not TieringState.TIERING],
            lease_id=self.lease.lease_id,
            attempt_token=self.lease.attempt_token,
        )
        for table in finished:
            self._log.info("Table %s has no new rows and is Tiered", table)
        self.left = [table for table in self.left if table not in finished]

    def _judgement(self) -> Judgement | None:
        """Return the judgement about the rounds, or None if the server does not answer."""
        lease = self.lease
        try:
            with FlussHook(lease.fluss_conn_id).get_client() as client:
                outcome = client.lease_outcome(lease.lease_id, self._first_token)
        except FlussTieringError as error:
            self._log.warning("The outcome of the rounds is not known: %s", error)
            return None
        return judge(outcome, lease.tables, self._first_token, HAS_SUBMITTED)

    def _why_never(self, judgement: Judgement) -> str | None:
        """Return why none of the tables that are left can be tiered; None if one can, or if it is not known."""
        done = {each["table"] for each in judgement.rounds if each["status"] == TieringState.TIERED.value}
        left = [TablePath.parse(table) for table in self.lease.tables if table not in done]
        try:
            with FlussHook(self.lease.fluss_conn_id).get_client() as client:
                wrong = why_not_tiered(client, left)
        except FlussTieringError as error:
            self._log.warning("Whether the tables still exist is not known: %s", error)
            return None
        return "; ".join(wrong.values()) if left and len(wrong) == len(left) else None

    def _killed_error(self) -> AirflowException:
        if self._marked is not None:
            return AirflowFailException(f"Tiering of {named(self.left)} was cancelled: {self._marked}")
        return AirflowException(f"Tiering of {named(self.left)} was stopped: task {self._key.task_id} was killed")

    def _cancel_killed(self) -> None:
        try:
            state = self._key.state()
        except Exception:  # noqa: BLE001 - whatever Airflow raises, the rounds are cancelled
            self._log.exception("Airflow does not tell whether this task was marked")
            state = None
        if state in MARKED:
            self._marked = f"task {self._key.task_id} was marked {state}"
            self.cancel(self._marked)
        elif self._is_last_try and state not in CLEARED:
            self.cancel(f"task {self._key.task_id} was killed")
