"""The operator that submits the tiering application to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import LeaseHandle
from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState

if TYPE_CHECKING:
    from airflow.sdk import Context

CANCEL_TIMEOUT_SECONDS: Final = 5.0
REASON_CHARACTERS: Final = 1500
"""The number of characters that are kept from the end of a failed submit's message, where Spark's last lines are."""


class FlussTieringSparkOperator(SparkSubmitOperator):
    """Tier all tables of a lease with one Spark application.

    The operator takes every argument of `SparkSubmitOperator` except `application` and `application_args`, for example
    the deploy mode, the resources, and `py_files` that ship this package to a cluster. Settings in `conf` override
    those that the application needs. Jars and packages are added to those that the application needs. In client deploy
    mode the task runs as long as the application. In cluster deploy mode a retry reattaches to an application that
    survived its worker, if the Spark provider supports this.

    A table that cannot be tiered does not fail this task. The table becomes Failed with its last error, and the
    `FlussTieringStatusSensor` beside this task reports it. If this task fails or is killed on its last try, it cancels
    the attempt and gives the reason, so that the sensor fails too. While tries are left, the task does not cancel the
    attempt, because the next try takes over its rounds.

    Tables that were tiered before and have no new rows are not given to Spark: this task records their rounds. If no
    other table is left, no application is submitted.

    Args:
        lease: The output of the acquire task. (templated)
        conn_id: The Spark connection. (templated)
        name: The name of the Spark application. (templated)
        kwargs: Other arguments of `SparkSubmitOperator`.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "lease", "conn_id")
    ui_color = "#fbe3d4"

    def __init__(
        self, *, lease: object, conn_id: str = "spark_default", name: str = "fluss-tiering", **kwargs: Any
    ) -> None:
        if given := kwargs.keys() & {"application", "application_args"}:
            raise ValueError(
                f"{', '.join(sorted(given))} cannot be set: this operator submits Fluss's tiering application"
            )
        super().__init__(conn_id=conn_id, name=name, **kwargs)
        self.lease = lease
        self.conn_id = conn_id
        self._handle: LeaseHandle | None = None
        self._is_last_try = False
        self._killed = False

    def execute(self, context: Context) -> None:
        """Submit the application and, in client deploy mode, wait until it ends."""
        from fluss_tiering.spark import submit  # noqa: PLC0415
        from fluss_tiering.spark.options import TierOptions  # noqa: PLC0415

        try:
            lease = self._handle = LeaseHandle.from_xcom(self.lease, context["ti"].dag_id, context["ti"].run_id)
        except ValueError as error:
            raise AirflowFailException(f"There is no lease to tier under. {error}") from error
        self._conn_id = self.conn_id
        self.application = str(submit.APPLICATION)
        tables = self._changed(lease, [TablePath.parse(table) for table in lease.tables])
        if not tables:
            self.log.info("No table of lease %s has new rows, so nothing is submitted", lease.lease_id)
            return
        options = TierOptions(
            server=FlussHook(lease.fluss_conn_id).get_address(),
            tables=tuple(tables),
            lease_id=lease.lease_id,
            attempt_token=lease.attempt_token,
            lease_duration_ms=lease.lease_duration_ms,
            outcome_in_status=True,
        )
        self.application_args = submit.application_arguments(options)
        self._complete_conf(submit.spark_conf())
        self._is_last_try = context["ti"].try_number > context["ti"].max_tries
        try:
            super().execute(context)
        except Exception as error:
            if not self._killed and (self._is_last_try or isinstance(error, AirflowFailException)):
                self._cancel(f"task {self.task_id} failed on its last try: {_end_of(mask_secrets(str(error)))}")
            raise

    def on_kill(self) -> None:
        """Cancel the attempt on the last try, so that the application is fenced, and then end the application.

        Airflow also calls this after a time-out and when a worker shuts down. If tries are left, the next try goes on
        with the same attempt.
        """
        self._killed = True
        if self._is_last_try:
            self._cancel(f"task {self.task_id} was killed")
        super().on_kill()

    def _changed(self, lease: LeaseHandle, tables: Sequence[TablePath]) -> list[TablePath]:
        """Finish the rounds of the tables without new rows, and return the others."""
        from fluss_tiering.client import finish_unchanged_tables  # noqa: PLC0415 - gRPC is not needed to parse a DAG

        try:
            with FlussHook(lease.fluss_conn_id).get_client() as client:
                statuses = [status for table in tables for status in client.list_tiering_statuses(table)]
                # A table whose round runs may have an application that survived the try before.
                finished = finish_unchanged_tables(
                    client,
                    [each for each in statuses if each.state is not TieringState.TIERING],
                    lease_id=lease.lease_id,
                    attempt_token=lease.attempt_token,
                )
        except FlussTieringError as error:
            # The application tells the reason in the statuses of the tables, or waits until the server is back.
            self.log.warning("All tables of lease %s are given to Spark: %s", lease.lease_id, error)
            return list(tables)
        for table in finished:
            self.log.info("Table %s has no new rows and is Tiered", table)
        return [table for table in tables if table not in finished]

    def _complete_conf(self, needed: dict[str, str]) -> None:
        """Complete the given settings with those that the application needs. Given settings win; jars are joined."""
        given: dict[str, Any] = self.conf or {}
        lists = {"spark.jars": self.jars, "spark.jars.packages": self.packages}
        joined = {key: _joined(option, given.get(key), needed.get(key)) for key, option in lists.items()}
        self.conf = {**needed, **given, **{key: value for key, value in joined.items() if value}}
        # On the command line these options would replace the jars and packages of the settings.
        self.jars = self.packages = None

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


def _joined(*lists: str | None) -> str:
    return ",".join(each for each in lists if each)


def _end_of(message: str) -> str:
    return message if len(message) <= REASON_CHARACTERS else f"...{message[-REASON_CHARACTERS:]}"
