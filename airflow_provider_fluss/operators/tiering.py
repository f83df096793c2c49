"""The operator that submits the tiering application to Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.links import LakeTieringLink, SparkUiLink, notice_spark_ui, store_table_link
from airflow_provider_fluss.operators.engine_submit import DEFAULT_SPARK_CONN_ID, EngineSubmitOperator, spark_cause
from airflow_provider_fluss.operators.living_rounds import settled, wait_for_living_rounds
from airflow_provider_fluss.operators.tables import why_not_tiered
from airflow_provider_fluss.outcome import Judgement, Verdict, fail_if_ended, judge, named
from airflow_provider_fluss.submit_task import HAS_SUBMITTED
from airflow_provider_fluss.task_states import CLEARED, KILL_SECONDS, MARKED, TaskInstanceKey, within
from airflow_provider_fluss.tier_arguments import ARGUMENTS, option_values
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import MAP_INDEX_VARIABLE, LeaseOutcome, TieringState

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from fluss_tiering.client import TieringClient

CANCEL_TIMEOUT_SECONDS: Final = 5.0


class FlussTieringSparkOperator(EngineSubmitOperator):
    """Tier all tables of a lease with one Spark application.

    The operator takes every argument of `SparkSubmitOperator` except `application` and `application_args`, for example
    the deploy mode and the resources. Settings in `conf` override those that the application needs. Jars and packages
    are added to those that the application needs. In client deploy mode the task runs as long as the application. In
    cluster deploy mode it sends the engine along, unless `py_files` is given.

    An application may outlive its task, for example if the process of the task is killed. The next try, in either
    deploy mode, waits for the rounds that it runs and takes their outcome. It gives Spark only the tables that are
    left. The server ends a round whose driver is dead after its `heartbeat_timeout`, so that this wait ends. If the
    driver ran on the same machine, the task sees at once that it is dead.

    A table that cannot be tiered becomes Failed with its last error. This task then fails with the same words as the
    `FlussTieringStatusSensor` beside it, and is not retried. If Spark fails, the task is retried, and its next try goes
    on with the tables that are not Tiered. If the task fails or is killed on its last try, it cancels the attempt and
    gives the reason, so that the sensor fails too. If a person marked the sensor, the task ends with this reason.

    If a person clears this task and its attempt is over, it begins a new attempt. So it recovers also if the acquire
    task is not cleared, which Airflow does not do if only failed tasks are cleared.

    Tables that were tiered before and have no new rows are not given to Spark: this task records their rounds. If no
    other table is left, no application is submitted.

    Args:
        lease: The output of the acquire task. (templated)
        claim_timeout: How long to wait for a table that another round holds, as a timedelta or in seconds. The default
            is 180 seconds. (templated)
        max_round_bytes: How much of the log one round reads at most, as a number of bytes or a text such as `10gb`. The
            table is then Pending again at once. (templated)
        max_round_duration: How long a round may read, as a timedelta, as a text such as `10min`, or `freshness` for the
            table's own freshness. The table is then Pending again at once. (templated)
        skip_missing_log: Whether to go on if a part of a log was deleted before it was tiered. (templated)
        table_concurrency: How many tables are tiered at the same time. The default is 4. (templated)
        worker_buffer_bytes: How much of the changes of a primary-key table a Spark task holds in memory, as a number of
            bytes or a text such as `64mb`. (templated)
        conn_id: The Spark connection. (templated)
        name: The name of the Spark application. (templated)
        kwargs: Other arguments of `SparkSubmitOperator`.
    """

    has_own_lease: ClassVar[bool] = False
    """Whether the operator acquires the lease under which it submits."""
    template_fields: Sequence[str] = (*EngineSubmitOperator.template_fields, "lease", *ARGUMENTS)
    operator_extra_links = (LakeTieringLink(), SparkUiLink())

    def __init__(
        self,
        *,
        lease: object,
        claim_timeout: timedelta | float | str | None = None,
        max_round_bytes: int | str | None = None,
        max_round_duration: timedelta | str | None = None,
        skip_missing_log: bool | str = False,
        table_concurrency: int | str | None = None,
        worker_buffer_bytes: int | str | None = None,
        conn_id: str = DEFAULT_SPARK_CONN_ID,
        name: str = "fluss-tiering",
        **kwargs: Any,
    ) -> None:
        super().__init__(conn_id=conn_id, name=name, **kwargs)
        self.lease = lease
        self.claim_timeout = claim_timeout
        self.max_round_bytes = max_round_bytes
        self.max_round_duration = max_round_duration
        self.skip_missing_log = skip_missing_log
        self.table_concurrency = table_concurrency
        self.worker_buffer_bytes = worker_buffer_bytes
        self._handle: LeaseHandle | None = None
        self._first_token: int | None = None
        self._key: TaskInstanceKey | None = None
        self._owns_attempt = False
        self._has_waited = False
        self._is_last_try = False
        self._killed = False
        self._marked: str | None = None
        self._ti: RuntimeTaskInstanceProtocol | None = None
        self.spark_ui: str | None = None
        self._spark_ui_stays = False

    def pre_execute(self, context: Context) -> None:
        """Store the link to the tables on the page in Airflow."""
        super().pre_execute(context)
        store_table_link(self, context)
        self._ti = context["ti"]

    def execute(self, context: Context) -> None:
        """Submit the application and, in client deploy mode, wait until it ends."""
        try:
            lease = self._handle = LeaseHandle.from_xcom(self.lease, context["ti"].dag_id, context["ti"].run_id)
            self._first_token = lease.attempt_token
        except ValueError as error:
            raise AirflowFailException(f"There is no lease to tier under. {error}") from None
        try:
            # Wrong arguments are told in every run, also in one without new rows.
            values = self._checked_arguments()
        except AirflowFailException as error:
            self._cancel(f"task {self.task_id} failed: {error}")
            raise
        ti = context["ti"]
        self._key = TaskInstanceKey.of(ti)
        # Airflow names the rest of the task in the environment of this process, for rounds to keep.
        os.environ[MAP_INDEX_VARIABLE] = str(self._key.map_index)
        self._is_last_try = ti.try_number > ti.max_tries
        # Airflow gives a cleared task its number of retries once more.
        was_cleared = ti.max_tries > (self.retries or 0)
        tables = self._tables_to_submit(was_cleared=was_cleared)
        try:
            if tables:
                self._submit(context, tables, values)
            elif self._has_waited:
                self._end()
            else:
                self.log.info("No table of lease %s has new rows, so nothing is submitted", lease.lease_id)
        finally:
            self._release_own_attempt()

    def on_kill(self) -> None:
        """Cancel the attempt if a person marked this task, or on the last try, and then end the application.

        Airflow also calls this after a time-out, when a person clears the task, and when a worker shuts down. If a try
        follows, it goes on with the same attempt.
        """
        self._killed = True
        within(KILL_SECONDS, self._cancel_killed, self.log, "Cancelling the rounds of a task that is killed")
        super().on_kill()

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        notice_spark_ui(hook, self._store_spark_ui)
        return hook

    def _store_spark_ui(self, address: str, outlives_application: bool) -> None:
        self.spark_ui = address
        self._spark_ui_stays = outlives_application
        if self._ti is not None:
            self._ti.xcom_push(key=SparkUiLink().xcom_key, value=address)

    def _prepare(self, tables: Sequence[TablePath], values: Mapping[str, Any]) -> None:
        from fluss_tiering.spark import submit  # noqa: PLC0415
        from fluss_tiering.spark.options import TierOptions  # noqa: PLC0415

        lease = self._held()
        try:
            options = TierOptions(
                server=self.server_address(lease.fluss_conn_id),
                tables=tuple(tables),
                lease_id=lease.lease_id,
                attempt_token=lease.attempt_token,
                lease_duration_ms=lease.lease_duration_ms,
                outcome_in_status=True,
                **values,
            )
        except FlussTieringError as error:
            raise AirflowFailException(error.message) from None
        self.prepare(submit.APPLICATION, submit.application_arguments(options), lease.fluss_conn_id)

    def _submit(self, context: Context, tables: Sequence[TablePath], values: Mapping[str, Any]) -> None:
        try:
            self._prepare(tables, values)
        except AirflowFailException as error:
            self._cancel(f"task {self.task_id} failed: {error}")
            raise
        try:
            try:
                self.submit(context)
            finally:
                if not self._spark_ui_stays:
                    # Airflow stores the link once more when the task ends. By then nothing answers at the address.
                    self.spark_ui = None
        except Exception as error:
            if self._killed:
                # What Spark logs while it is ended is no cause.
                raise self._killed_error(tables) from error
            if not self._is_tiered_despite(error):
                raise AirflowException(
                    f"Spark could not tier {named(tables)}: {spark_cause(error)} (Spark connection {self.conn_id!r})"
                ) from error
        else:
            if self._killed:
                raise self._killed_error(tables)
            self._end()

    def _checked_arguments(self) -> dict[str, Any]:
        """Return the values for fields of `TierOptions` that the arguments stand for.

        Raises:
            AirflowFailException: An argument has a wrong value, which no retry mends.
        """
        self.check_spark_arguments()
        try:
            return option_values({name: getattr(self, name) for name in ARGUMENTS})
        except FlussTieringError as error:
            raise AirflowFailException(error.message) from None

    def _killed_error(self, tables: Sequence[TablePath]) -> AirflowException:
        if self._marked is not None:
            return AirflowFailException(f"Tiering of {named(tables)} was cancelled: {self._marked}")
        return AirflowException(f"Tiering of {named(tables)} was stopped: task {self.task_id} was killed")

    def _end(self) -> None:
        """Fail if a table was not tiered although Spark succeeded.

        In cluster deploy mode rounds may still run. The sensor waits for those.
        """
        if (judgement := self._judgement()) is not None:
            fail_if_ended(judgement)

    def _is_tiered_despite(self, error: Exception) -> bool:
        """Return whether all tables are Tiered although Spark failed. If not, cancel the attempt on the last try.

        Raises:
            AirflowException: The rounds ended and tell more than Spark's error.
            AirflowFailException: The tables that are not Tiered were dropped, or their tiering was switched off.
        """
        judgement = self._judgement()
        if judgement is not None and judgement.verdict is Verdict.TIERED:
            self.log.warning("%s, although Spark failed: %s", judgement.message, error)
            return True
        if judgement is not None:
            fail_if_ended(judgement, error)
            if wrong := self._why_never(judgement):
                self._cancel(f"task {self.task_id} failed: {wrong}")
                raise AirflowFailException(f"Spark could not tier all tables, and no retry can: {wrong}") from error
        if self._is_last_try or isinstance(error, AirflowFailException):
            self._cancel(f"task {self.task_id} failed: {spark_cause(error)}")
        return False

    def _why_never(self, judgement: Judgement) -> str | None:
        """Return why none of the tables that are left can be tiered; None if one can, or if it is not known."""
        done = {each["table"] for each in judgement.rounds if each["status"] == TieringState.TIERED.value}
        left = [TablePath.parse(table) for table in self._held().tables if table not in done]
        try:
            with FlussHook(self._held().fluss_conn_id).get_client() as client:
                wrong = why_not_tiered(client, left)
        except FlussTieringError as error:
            self.log.warning("Whether the tables still exist is not known: %s", error)
            return None
        return "; ".join(wrong.values()) if left and len(wrong) == len(left) else None

    def _judgement(self) -> Judgement | None:
        """Return the judgement about the rounds, or None if the server does not answer."""
        lease = self._held()
        try:
            with FlussHook(lease.fluss_conn_id).get_client() as client:
                outcome = client.lease_outcome(lease.lease_id, self._first_token)
        except FlussTieringError as error:
            self.log.warning("The outcome of the rounds is not known: %s", error)
            return None
        return judge(outcome, lease.tables, self._first_token, HAS_SUBMITTED)

    def _tables_to_submit(self, *, was_cleared: bool) -> list[TablePath]:
        """Return the tables of the lease that Spark has to tier, and record the rounds of those without new rows.

        An application that outlived an earlier try is waited for first.

        Raises:
            AirflowException: The task was killed.
            AirflowFailException: The attempt was cancelled, or a newer one began.
        """
        lease = self._held()
        tables = [TablePath.parse(table) for table in lease.tables]
        try:
            with FlussHook(lease.fluss_conn_id).get_client() as client:
                outcome, waited_for = wait_for_living_rounds(
                    lambda: client.lease_outcome(lease.lease_id, lease.attempt_token),
                    lambda: self._killed,
                    self.log,
                )
                if self._killed:
                    raise self._killed_error(tables)
                self._has_waited = bool(waited_for)
                done = settled(outcome, waited_for)
                tables = [table for table in tables if table not in done]
                self._handle = self._open_attempt(client, lease, outcome, tables, was_cleared=was_cleared)
                return self._changed(client, tables) if tables else []
        except FlussTieringError as error:
            # The application tells the reason in the statuses of the tables, or waits until the server is back.
            self.log.warning("All tables of lease %s are given to Spark: %s", lease.lease_id, error)
            return tables

    def _open_attempt(
        self,
        client: TieringClient,
        lease: LeaseHandle,
        outcome: LeaseOutcome,
        tables: Sequence[TablePath],
        *,
        was_cleared: bool,
    ) -> LeaseHandle:
        """Return the lease with the attempt to tier under: its own, or a new one if a person cleared this task."""
        from fluss_tiering.client import lease_latest_snapshots  # noqa: PLC0415 - gRPC is not needed to parse a DAG

        newest = outcome.newest_attempt_token or 0
        is_over = outcome.cancelled_reason is not None
        if not tables or (not is_over and newest <= (lease.attempt_token or 0)):
            return lease
        if not was_cleared:
            why = outcome.cancelled_reason or f"a newer attempt of the same lease took over (attempt token {newest})"
            raise AirflowFailException(f"Tiering of {named(tables)} was cancelled: {why}")
        if not is_over:
            return replace(lease, attempt_token=newest)
        acquired = lease_latest_snapshots(client, lease.lease_id, tables, lease.lease_duration_ms)
        self.log.info("Acquired lease %s again (attempt token %d)", lease.lease_id, acquired.attempt_token)
        self._owns_attempt = True
        own = replace(lease, attempt_token=acquired.attempt_token)
        # Callbacks release the lease of this argument.
        self.lease = own.to_xcom()
        return own

    def _release_own_attempt(self) -> None:
        """Drop the lease of an attempt that this task began: the release task knows only the attempt before."""
        lease = self._handle
        if lease is None or not self._owns_attempt:
            return
        try:
            with FlussHook(lease.fluss_conn_id).get_client() as client:
                client.drop_lease(lease.lease_id, attempt_token=lease.attempt_token)
        except FlussTieringError as error:
            self.log.warning("Lease %s was not released. It ends when it expires: %s", lease.lease_id, error)

    def _held(self) -> LeaseHandle:
        if self._handle is None:
            raise RuntimeError("the lease is known in execute only")
        return self._handle

    def _changed(self, client: TieringClient, tables: Sequence[TablePath]) -> list[TablePath]:
        """Finish the rounds of the tables without new rows, and return the others."""
        from fluss_tiering.client import finish_unchanged_tables  # noqa: PLC0415 - gRPC is not needed to parse a DAG

        lease = self._held()
        statuses = [status for table in tables for status in client.list_tiering_statuses(table)]
        # A round may have begun after the wait.
        finished = finish_unchanged_tables(
            client,
            [each for each in statuses if each.state is not TieringState.TIERING],
            lease_id=lease.lease_id,
            attempt_token=lease.attempt_token,
        )
        for table in finished:
            self.log.info("Table %s has no new rows and is Tiered", table)
        return [table for table in tables if table not in finished]

    def _cancel_killed(self) -> None:
        try:
            state = None if self._key is None else self._key.state()
        except Exception:
            self.log.exception("Airflow does not tell whether this task was marked")
            state = None
        if state in MARKED:
            self._marked = f"task {self.task_id} was marked {state}"
            self._cancel(self._marked)
        elif self._is_last_try and state not in CLEARED:
            self._cancel(f"task {self.task_id} was killed")

    def _cancel(self, reason: str) -> None:
        lease = self._handle
        if lease is None:
            return
        try:
            with FlussHook(lease.fluss_conn_id, timeout=CANCEL_TIMEOUT_SECONDS).get_client() as client:
                client.cancel_tiering(lease.lease_id, lease.attempt_token, reason)
        except FlussTieringError as error:
            # The failure of the task matters more than this one. The rounds end when their heartbeats time out.
            self.log.warning("The rounds under lease %s could not be cancelled: %s", lease.lease_id, error)
