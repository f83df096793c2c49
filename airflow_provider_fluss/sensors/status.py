"""The sensor that waits until every table of a lease has been tiered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.bases.sensor import poke_mode_only
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.outage_timer import OutageTimer
from airflow_provider_fluss.outcome import Verdict, judge
from airflow_provider_fluss.submit_task import SubmitTask
from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
from fluss_tiering.model.errors import FlussTieringError

if TYPE_CHECKING:
    from airflow.sdk import Context

_ATTEMPT_IS_OVER = frozenset({Verdict.CANCELLED, Verdict.SUPERSEDED, Verdict.NOT_SUBMITTED})
"""Verdicts that a retry of the sensor cannot change. Only a new acquire and submit can."""


@poke_mode_only
class FlussTieringStatusSensor(BaseSensorOperator):
    """Wait for the outcome of each table's round under a lease, beside the task that submits the application.

    The sensor returns one summary for each table with its epoch, rows, bytes, files and lake snapshot. It fails if
    rounds failed, once all rounds have ended; the error names each failed table with its last error. It also fails if
    the attempt was cancelled, with the reason of the cancellation, and if a newer attempt took over. If the server is
    unavailable, the sensor waits for it for `unavailable_timeout`.

    Args:
        lease: The output of the acquire task. (templated)
        submit_task_id: The id of the submit task in the same task group. If it is given, the sensor also fails when the
            submit task has ended and tables are unclaimed. A submit task that is killed cannot report this itself.
        claim_timeout: The time in seconds after the success of the submit task in which the application must claim its
            tables. In cluster deploy mode the application may start after the submit task has ended.
        deferrable: Whether the sensor waits in the triggerer. If it is False, the sensor pokes in a worker.
        poke_interval: The time in seconds between two polls. One poll covers all tables.
        unavailable_timeout: The time in seconds for which the sensor waits for an unavailable server.
    """

    template_fields: Sequence[str] = ("lease",)
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        lease: object,
        submit_task_id: str | None = None,
        claim_timeout: timedelta | float = 600,
        deferrable: bool = True,
        poke_interval: timedelta | float = 10,
        unavailable_timeout: timedelta | float = 300,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.lease = lease
        self.submit_task_id = submit_task_id
        self.deferrable = deferrable
        self.claim_timeout = _seconds(claim_timeout)
        self.unavailable_timeout = _seconds(unavailable_timeout)
        self._outage = OutageTimer(self.unavailable_timeout)
        self._submit: SubmitTask | None = None
        self._unclaimed = False

    def execute(self, context: Context) -> object:
        """Poke once, and then defer to the trigger or go on poking until the outcome is known."""
        if self.submit_task_id is not None:
            ti = context["ti"]
            self._submit = SubmitTask(
                dag_id=ti.dag_id,
                run_id=ti.run_id,
                task_id=self.submit_task_id,
                map_index=-1 if ti.map_index is None else ti.map_index,
                claim_timeout=self.claim_timeout,
            )
        if not self.deferrable:
            return super().execute(context)
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
        lease = self._lease_handle(context)
        # This comes before the question for the outcome, so that a claim in between is seen.
        submit_ended = self._submit.look() if self._submit and self._unclaimed else None
        try:
            with FlussHook(lease.fluss_conn_id).get_client() as client:
                outcome = client.lease_outcome(lease.lease_id, lease.attempt_token)
        except FlussTieringError as error:
            if given_up := self._outage.lost(error):
                raise AirflowException(given_up.message) from error
            self.log.warning("The tiering server is unavailable, trying again: %s", error.message)
            return PokeReturnValue(is_done=False)
        self._outage.restore()
        judgement = judge(outcome, lease.tables, lease.attempt_token, submit_ended)
        if judgement.verdict is not Verdict.WAITING:
            return PokeReturnValue(is_done=True, xcom_value=self.execute_complete(context, judgement.to_event()))
        self.log.info("%s", judgement.message)
        self._unclaimed = bool(judgement.unclaimed)
        return PokeReturnValue(is_done=False)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the summaries of the rounds, or fail with the message of the trigger."""
        verdict = Verdict(event["verdict"])
        if verdict is not Verdict.TIERED:
            _fail(verdict, event["message"])
        self.log.info("%s", event["message"])
        rounds: list[dict[str, Any]] = event["rounds"]
        return rounds

    def _lease_handle(self, context: Context) -> LeaseHandle:
        ti = context["ti"]
        try:
            return LeaseHandle.from_xcom(self.lease, ti.dag_id, ti.run_id)
        except ValueError as error:
            raise AirflowFailException(f"There is no lease to wait for. {error}") from error


def _seconds(duration: timedelta | float) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def _fail(verdict: Verdict, message: str) -> NoReturn:
    if verdict in _ATTEMPT_IS_OVER:
        raise AirflowFailException(message)
    raise AirflowException(message)
