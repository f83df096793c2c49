"""The sensor that waits until every table of a lease has been tiered."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow import __version__ as airflow_version
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
)
from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.execution_time.context import OutletEventAccessor

from airflow_provider_fluss.assets.events import record_lake_assets
from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.lineage import LeaseLineage
from airflow_provider_fluss.links import LakeTieringLink, store_table_link
from airflow_provider_fluss.outage_timer import OutageTimer
from airflow_provider_fluss.outcome import Judgement, Verdict, judge, named
from airflow_provider_fluss.submit_task import MAY_SUBMIT, SubmitTask
from airflow_provider_fluss.task_states import KILL_SECONDS, MARKED, TaskInstanceKey, runs_alone, within
from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
from fluss_tiering.model.errors import FlussTieringError

if TYPE_CHECKING:
    from airflow.sdk import Context

_TIMEOUT_CALL_SECONDS: Final = 5.0
_ROUNDS_ENDED: Final = frozenset({Verdict.FAILED, Verdict.INTERRUPTED})


class FlussTieringStatusSensor(LeaseLineage, BaseSensorOperator):
    """Wait for the outcome of each table's round under a lease, beside the task that submits the application.

    The sensor returns one summary for each table with its epoch, rows, bytes, files and lake snapshot. If a table was
    not tiered, the sensor fails and names it with its last error, but not before the submit task has ended: the next
    try of the submit task may tier it. If the server is unavailable, the sensor waits for it for `unavailable_timeout`.

    A person who marks the waiting sensor as failed or as success stops the rounds, and the submit task then fails with
    this reason. A person who only clears it stops nothing. With `mode="reschedule"`, no process runs between two pokes.
    A mark stops nothing then, and the rounds go on until the submit task ends. Mark the submit task as failed instead.

    An outlet that is an `AssetAlias` gets an event for each table with new rows, and an outlet that is the asset of a
    table gets the details of its round. With its provider installed, OpenLineage learns of each round.

    Args:
        lease: The output of the acquire task. (templated)
        submit_task_id: The id of the submit task in the same task group. Without it the sensor does not wait for
            another try, and does not see that the submit task was killed.
        claim_timeout: The time in seconds after the success of the submit task in which the application must claim its
            tables. In cluster deploy mode the application may start after the submit task has ended.
        deferrable: Whether the sensor waits in the triggerer. By default it does, unless `mode` is `reschedule`. If it
            is False, the sensor pokes in a worker, whose slot the submit task cannot have meanwhile.
        poke_interval: The time in seconds between two polls. One poll covers all tables. Use 30 or more, and `retries`,
            if `mode` is `reschedule`: Airflow's scheduler can fail a task that it reschedules often.
        unavailable_timeout: The time in seconds for which the sensor waits for an unavailable server.
        partition_keys: Whether an outlet that is the asset of a partitioned table gets an event for each partition
            whose rows changed, with its name as the partition key. Events with a key only start DAGs with a
            `PartitionedAssetTimetable`. A round that changed more than 1,000 partitions names none of them, and the
            next round does not name those of a driver that was lost after its commit. It needs Airflow 3.3.
        kwargs: Arguments of Airflow's sensors. With `soft_fail` or `never_fail`, every failure is a skip, in each mode
            and deferrable or not, except that of a person who marked the sensor.
    """

    template_fields: Sequence[str] = ("lease",)
    operator_extra_links = (LakeTieringLink(),)
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        lease: object,
        submit_task_id: str | None = None,
        claim_timeout: timedelta | float = 600,
        deferrable: bool | None = None,
        poke_interval: timedelta | float = 10,
        unavailable_timeout: timedelta | float = 300,
        partition_keys: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.lease = lease
        if partition_keys and not hasattr(OutletEventAccessor, "add_partitions"):
            raise ValueError(f"partition_keys needs Airflow 3.3 or later, and this is Airflow {airflow_version}")
        self.partition_keys = partition_keys
        self.submit_task_id = submit_task_id
        self.deferrable = not self.reschedule if deferrable is None else deferrable
        self.claim_timeout = _seconds(claim_timeout)
        self.unavailable_timeout = _seconds(unavailable_timeout)
        self._outage = OutageTimer(self.unavailable_timeout)
        self._key: TaskInstanceKey | None = None
        self._submit: SubmitTask | None = None
        self._depends_on_submit = False
        self._stopped_because: str | None = None

    def pre_execute(self, context: Context) -> None:
        """Store the link to the tables on the page in Airflow."""
        super().pre_execute(context)
        store_table_link(self, context)

    def execute(self, context: Context) -> object:
        """Poke once, and then defer to the trigger or go on poking until the outcome is known."""
        with self._skipping():
            return self._wait(context)

    def _wait(self, context: Context) -> object:
        self._key = TaskInstanceKey.of(context["ti"])
        if self.submit_task_id is not None:
            self._submit = SubmitTask(replace(self._key, task_id=self.submit_task_id), self.claim_timeout)
        if runs_alone():
            # A deferred sensor would run its trigger here, before the submit task.
            self.deferrable, self.mode = False, "reschedule"
        if not self.deferrable:
            try:
                return super().execute(context)
            except AirflowSensorTimeout as error:
                raise AirflowSensorTimeout(self._timeout_message(context)) from error
        decided = self.poke(context)
        if not decided.is_done:
            self.defer(
                trigger=FlussTieringStatusTrigger(
                    lease=self._lease_handle(context).to_xcom(),
                    poll_interval=self.poke_interval,
                    unavailable_timeout=self.unavailable_timeout,
                    submit_task=self._submit.to_kwargs() if self._submit else None,
                ),
                method_name=self.execute_complete.__name__,
                timeout=timedelta(seconds=self.timeout),
            )
        return decided.xcom_value

    def poke(self, context: Context) -> PokeReturnValue:
        """Ask the server once for the outcome of the rounds."""
        judgement = self._judgement(context)
        while self.reschedule and judgement.verdict is Verdict.WAITING and self._is_timing:
            # A rescheduled sensor starts in a new process, which does not know what this one measures.
            time.sleep(self.poke_interval)
            judgement = self._judgement(context)
        if judgement.verdict is Verdict.WAITING:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self.execute_complete(context, judgement.to_event()))

    def execute_complete(self, context: Context, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the summaries of the rounds, or fail with the message of the trigger."""
        # The lease that this task waited for, which callbacks release. That of the acquire task may be a newer one now.
        self.lease = event.get("lease", self.lease)
        verdict = Verdict(event["verdict"])
        if verdict is not Verdict.TIERED:
            self._fail(verdict, event["message"])
        self.log.info("%s", event["message"])
        rounds: list[dict[str, Any]] = event["rounds"]
        if context.get("outlets"):
            lease = self._lease_handle(context)
            server = FlussHook(lease.fluss_conn_id).get_address()
            record_lake_assets(context, rounds, server, partition_keys=self.partition_keys)
        return rounds

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:  # noqa: ANN401
        """Go on after the trigger. If its time was over, fail with what was waited for."""
        with self._skipping():
            try:
                return super().resume_execution(next_method, next_kwargs, context)
            except AirflowSensorTimeout as error:
                raise AirflowSensorTimeout(self._timeout_message(context)) from error

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        """Turn each failure into a skip if `soft_fail` or `never_fail` is set.

        Airflow's base class does so for some failures only, which differ between a poke and a return from the trigger.
        It never does so for a verdict before the first deferral.
        """
        try:
            yield
        except AirflowSkipException as error:
            # The base class says only that it skips.
            if error.__cause__ is None:
                raise
            raise AirflowSkipException(f"{error} {error.__cause__}") from error.__cause__
        except AirflowRescheduleException:
            raise
        except (AirflowException, FlussTieringError) as error:
            set_ = "soft_fail" if self.soft_fail else "never_fail" if self.never_fail else None
            if set_ is None or self._stopped_because is not None:
                raise
            raise AirflowSkipException(f"Skipping due to {set_} is set to True. {error}") from error

    def on_kill(self) -> None:
        """Cancel the rounds and fail with this reason if a person marked this task.

        If the task was cleared, or if its worker ends, the rounds go on.

        Raises:
            AirflowFailException: A person marked this task. The message names its tables.
        """
        within(KILL_SECONDS, self._cancel_if_marked, self.log, "Cancelling the rounds of a task that was marked")
        super().on_kill()
        if self._stopped_because is not None:
            # Airflow calls this from the handler of a signal, so this ends the sleep between two pokes. Otherwise
            # Airflow would kill the process, and its log would say nothing but that.
            raise AirflowFailException(self._stopped_because)

    def _cancel_if_marked(self) -> None:
        if self._key is None:
            return
        state = self._key.state()
        if state not in MARKED:
            self.log.info("This task is %s and was not marked, so the rounds go on", state or "cleared")
            return
        lease = LeaseHandle.from_xcom(self.lease, self._key.dag_id, self._key.run_id)
        reason = f"task {self._key.task_id} was marked {state}"
        self._stopped_because = f"Tiering of {named(lease.tables)} was cancelled: {reason}"
        with FlussHook(lease.fluss_conn_id, timeout=KILL_SECONDS).get_client() as client:
            client.cancel_tiering(lease.lease_id, lease.attempt_token, reason)

    def _judgement(self, context: Context) -> Judgement:
        """Ask once for the outcome of the rounds, and for the state of the submit task if the verdict depends on it."""
        lease = self._lease_handle(context)
        # The submit task is looked at first, so that what it does in between is seen.
        submit = None if self._submit is None else MAY_SUBMIT
        if self._submit is not None and self._depends_on_submit:
            submit = self._submit.look()
        try:
            with FlussHook(lease.fluss_conn_id).get_client() as client:
                outcome = client.lease_outcome(lease.lease_id, lease.attempt_token)
                judgement = judge(outcome, lease.tables, lease.attempt_token, submit)
                if self._submit is not None and submit is MAY_SUBMIT and judgement.depends_on_submit:
                    submit = self._submit.look()
                    outcome = client.lease_outcome(lease.lease_id, lease.attempt_token)
                    judgement = judge(outcome, lease.tables, lease.attempt_token, submit)
        except FlussTieringError as error:
            if given_up := self._outage.lost(error, self.log):
                return given_up
            return Judgement(Verdict.WAITING, error.message)
        self._outage.restore(self.log)
        self._depends_on_submit = judgement.depends_on_submit
        if judgement.verdict is Verdict.WAITING:
            self.log.info("%s", judgement.message)
        return judgement

    @property
    def _is_timing(self) -> bool:
        return self._outage.lasts or (self._submit is not None and self._submit.counts_down)

    def _timeout_message(self, context: Context) -> str:
        lease = self._lease_handle(context)
        message = f"{', '.join(lease.tables)}: not all tables were tiered within {self.timeout:g} s"
        try:
            with FlussHook(lease.fluss_conn_id, timeout=_TIMEOUT_CALL_SECONDS).get_client() as client:
                outcome = client.lease_outcome(lease.lease_id, lease.attempt_token)
        except FlussTieringError as error:
            return f"{message}; {error.message}"
        return f"{message}; {judge(outcome, lease.tables, lease.attempt_token).message}"

    def _lease_handle(self, context: Context) -> LeaseHandle:
        ti = context["ti"]
        try:
            return LeaseHandle.from_xcom(self.lease, ti.dag_id, ti.run_id)
        except ValueError as error:
            raise AirflowFailException(f"There is no lease to wait for. {error}") from None

    def _fail(self, verdict: Verdict, message: str) -> NoReturn:
        # The next try would find the same outcome, unless a server or a task that is not watched changes it.
        if verdict is Verdict.UNREACHABLE or (verdict in _ROUNDS_ENDED and self.submit_task_id is None):
            raise AirflowException(message)
        raise AirflowFailException(message)


def _seconds(duration: timedelta | float) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
