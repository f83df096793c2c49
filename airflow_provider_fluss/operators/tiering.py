"""The operator that submits the tiering application to Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, TaskDeferred

from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.links import (
    LakeTieringLink,
    SparkUiLink,
    notice_spark_ui,
    platform_address,
    store_table_link,
)
from airflow_provider_fluss.operators.engine_submit import DEFAULT_SPARK_CONN_ID, EngineSubmitOperator, Resumed, Submit
from airflow_provider_fluss.operators.spark_submit import spark_cause
from airflow_provider_fluss.operators.tiering_attempt import TieringAttempt
from airflow_provider_fluss.outcome import named
from airflow_provider_fluss.task_states import TaskInstanceKey
from airflow_provider_fluss.tier_arguments import ARGUMENTS, option_values
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.tiering import MAP_INDEX_VARIABLE

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol


class FlussTieringSparkOperator(EngineSubmitOperator):
    """Tier all tables of a lease with one Spark application.

    The operator takes every argument of `SparkSubmitOperator` except `application` and `application_args`, for example
    the deploy mode and the resources. Settings in `conf` override those that the application needs. Jars and packages
    are added to those that the application needs. In client deploy mode the task runs as long as the application. In
    cluster deploy mode it sends the engine along, unless `py_files` is given.

    With a `Way` as `submit`, another operator submits, which is killed and deferred with this task. Its first
    link becomes the link *Spark* of this task. Its return value is not kept.

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
        table_concurrency: How many tables are tiered at the same time. The default is 8. (templated)
        worker_buffer_bytes: How much of the changes of a primary-key table a Spark task holds in memory, as a number of
            bytes or a text such as `64mb`. (templated)
        conn_id: The Spark connection. (templated)
        name: The name of the Spark application. (templated)
        kwargs: `submit`, which is another `Way` to submit, or other arguments of `SparkSubmitOperator`.
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
        self._attempt: TieringAttempt | None = None
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
        attempt = self._begin(context)
        # Wrong arguments are told in every run, also in one without new rows.
        submit, values = self._arguments_for(attempt)
        attempt.open()
        if attempt.has_begun:
            # Callbacks release the lease of this argument.
            self.lease = attempt.lease.to_xcom()
        try:
            if attempt.left:
                self._submit(context, attempt, submit, values)
            elif attempt.has_waited:
                attempt.end()
            else:
                self.log.info("No table of lease %s has new rows, so nothing is submitted", attempt.lease.lease_id)
        finally:
            attempt.release()

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:  # noqa: ANN401 - as Airflow has it
        """Go on with the operator that submits, after its trigger has ended."""
        attempt = self._begin(context)
        attempt.resume(context["ti"])
        self.lease = attempt.lease.to_xcom()
        try:
            self._submit(context, attempt, *self._arguments_for(attempt), (next_method, next_kwargs))
        finally:
            attempt.release()

    def on_kill(self) -> None:
        """Cancel the attempt if a person marked this task, or on the last try, and then end the application.

        Airflow also calls this after a time-out, when a person clears the task, and when a worker shuts down. If a try
        follows, it goes on with the same attempt.
        """
        if self._attempt is not None:
            self._attempt.kill()
        super().on_kill()

    def notice_hook(self, hook: SparkSubmitHook) -> None:
        """Store the link to Spark's user interface once it is known."""
        notice_spark_ui(hook, self._store_spark_ui)

    def _store_spark_ui(self, address: str, outlives_application: bool) -> None:
        self.spark_ui = address
        self._spark_ui_stays = outlives_application
        if self._ti is not None:
            self._ti.xcom_push(key=SparkUiLink().xcom_key, value=address)

    def _begin(self, context: Context) -> TieringAttempt:
        ti = context["ti"]
        try:
            lease = LeaseHandle.from_xcom(self.lease, ti.dag_id, ti.run_id)
        except ValueError as error:
            raise AirflowFailException(f"There is no lease to tier under. {error}") from None
        # Airflow names the rest of the task in the environment of this process, for rounds to keep.
        os.environ[MAP_INDEX_VARIABLE] = str(TaskInstanceKey.of(ti).map_index)
        self._attempt = TieringAttempt(
            lease,
            ti,
            retries=self.retries or 0,
            owns_lease=self.has_own_lease,
            log=self.log,
        )
        if self._is_killed:
            # There was no attempt to cancel then.
            self._attempt.kill()
        return self._attempt

    def _submit(
        self,
        context: Context,
        attempt: TieringAttempt,
        submit: Submit,
        values: Mapping[str, Any],
        resumed: Resumed | None = None,
    ) -> None:
        try:
            operator = self._prepare(attempt, submit, values)
        except AirflowFailException as error:
            attempt.fail(error)
            raise
        try:
            self.run_submit(operator, context, resumed)
        except TaskDeferred:
            attempt.defer(context["ti"])
            raise
        except Exception as error:
            if not attempt.end(error):
                raise AirflowException(
                    f"Spark could not tier {named(attempt.left)}: {spark_cause(error)} ({submit.where})"
                ) from error
        else:
            attempt.end()
        finally:
            if address := platform_address(operator, context):
                self._store_spark_ui(address, True)
            if not self._spark_ui_stays:
                # Airflow stores the link once more when the task ends. By then nothing answers at the address.
                self.spark_ui = None

    def _prepare(self, attempt: TieringAttempt, submit: Submit, values: Mapping[str, Any]) -> BaseOperator:
        from fluss_tiering.spark import submit as engine  # noqa: PLC0415
        from fluss_tiering.spark.options import TierOptions  # noqa: PLC0415

        lease = attempt.lease
        try:
            options = TierOptions(
                server=submit.server_address(lease.fluss_conn_id),
                tables=tuple(attempt.left),
                lease_id=lease.lease_id,
                attempt_token=lease.attempt_token,
                lease_duration_ms=lease.lease_duration_ms,
                outcome_in_status=True,
                **values,
            )
        except FlussTieringError as error:
            raise AirflowFailException(error.message) from None
        return submit.prepare(engine.APPLICATION, engine.application_arguments(options), lease.fluss_conn_id)

    def _arguments_for(self, attempt: TieringAttempt) -> tuple[Submit, dict[str, Any]]:
        try:
            return self._checked_arguments()
        except AirflowFailException as error:
            attempt.fail(error)
            raise

    def _checked_arguments(self) -> tuple[Submit, dict[str, Any]]:
        """Return what submits, and the values for fields of `TierOptions` that the arguments stand for.

        Raises:
            AirflowFailException: An argument has a wrong value, which no retry mends.
        """
        submit = self.make_submit()
        submit.check()
        try:
            return submit, option_values({name: getattr(self, name) for name in ARGUMENTS})
        except FlussTieringError as error:
            raise AirflowFailException(error.message) from None
