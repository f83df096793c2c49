"""The operator that does all of a round in one task: acquire, submit, wait and release."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fluss.assets.events import record_lake_assets
from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import ONE_TASK_KEY
from airflow_provider_fluss.lineage import LeaseLineage
from airflow_provider_fluss.operators.lease import acquire_lease
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from airflow_provider_fluss.operators.tiering_attempt import TieringAttempt
from airflow_provider_fluss.outage_timer import OutageTimer
from airflow_provider_fluss.outcome import Judgement, Verdict, fail_if_ended, judge
from airflow_provider_fluss.submit_task import SubmitState
from airflow_provider_fluss.task_states import TaskInstanceKey
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.tiering import DEFAULT_LEASE_DURATION_MS

if TYPE_CHECKING:
    from airflow.sdk import Context

_CLAIM_SECONDS: Final = 600.0
"""How long after the submission an application may claim its tables. In cluster deploy mode it may start later."""


class FlussTieringOperator(LeaseLineage, FlussTieringSparkOperator):
    """Run a round of each table in one task: acquire the lease, submit the application, wait, and release the lease.

    Use it if one box is enough. Four tasks are better if the wait is long, since this task takes a slot of a worker for
    the whole time, unless a `Way` defers it. It takes every argument of `FlussTieringSparkOperator` except `lease`.

    The task returns one summary for each table with its epoch, rows, bytes, files and lake snapshot. It fails if a
    table was not tiered, and names it with its last error. A retry goes on with the same attempt while one of its
    rounds runs, and does not tier again what is Tiered. When the task has succeeded, or fails for the last time, or a
    person marks it, it cancels what still runs and releases the lease. While it is deferred it cannot do so: then
    `release_lease_on_failure` does, or the lease expires. Outlets and OpenLineage work as with the
    `FlussTieringStatusSensor`.

    Args:
        tables: The `database.table` of each table of the round. (templated)
        lease_duration: The time after which the lease expires, unless the running application renews it. It has to be
            longer than the pause between two tries.
        fluss_conn_id: The connection of the tiering server. (templated)
        poke_interval: The time in seconds between two looks at the rounds after Spark has ended.
        unavailable_timeout: The time in seconds for which the task waits for an unavailable server.
        kwargs: Arguments of `FlussTieringSparkOperator`.
    """

    has_own_lease: ClassVar[bool] = True
    template_fields: Sequence[str] = (
        *(field for field in FlussTieringSparkOperator.template_fields if field != "lease"),
        "tables",
        "fluss_conn_id",
    )

    def __init__(
        self,
        *,
        tables: Sequence[str],
        lease_duration: timedelta | str = timedelta(milliseconds=DEFAULT_LEASE_DURATION_MS),
        fluss_conn_id: str = FlussHook.default_conn_name,
        poke_interval: float = 10,
        unavailable_timeout: float = 300,
        **kwargs: Any,
    ) -> None:
        if "lease" in kwargs:
            raise ValueError("lease cannot be set: this task acquires a lease of its own")
        super().__init__(lease=None, **kwargs)
        self.tables = tables
        self.lease_duration = lease_duration
        self.fluss_conn_id = fluss_conn_id
        self.poke_interval = poke_interval
        self.unavailable_timeout = unavailable_timeout

    def execute(self, context: Context) -> list[dict[str, Any]]:  # type: ignore[override] # the submit task returns None
        """Tier the tables and return the summaries of their rounds."""
        self._checked_arguments()
        lease = acquire_lease(context, self.tables, self.lease_duration, self.fluss_conn_id, self.log)
        # The callbacks and the lineage read the lease here, as in the submit task.
        self.lease = lease.to_xcom()
        context["ti"].xcom_push(key=ONE_TASK_KEY, value=self.lease)
        return self._finish(context, lambda: super(FlussTieringOperator, self).execute(context))

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> list[dict[str, Any]]:
        """Go on with the operator that submits, and return the summaries of the rounds."""
        ti = context["ti"]
        self.lease = ti.xcom_pull(task_ids=ti.task_id, key=ONE_TASK_KEY, map_indexes=TaskInstanceKey.of(ti).index)
        resume = super().resume_execution
        return self._finish(context, lambda: resume(next_method, next_kwargs, context))

    def _finish(self, context: Context, submit: Callable[[], None]) -> list[dict[str, Any]]:
        """Submit, wait for the rounds, and release the lease, unless the task is deferred."""
        try:
            submit()
            judgement = self._wait()
        except Exception as error:
            if self._attempt is not None:
                self._attempt.leave(error)
            raise
        self._held().cancel(f"task {self.task_id} has ended")
        rounds = list(judgement.rounds)
        if context.get("outlets"):
            record_lake_assets(context, rounds, FlussHook(self.fluss_conn_id).get_address())
        return rounds

    def _wait(self) -> Judgement:
        """Return the judgement once all tables are Tiered. After client deploy mode they are so at once."""
        lease = self._held().lease
        outage = OutageTimer(self.unavailable_timeout)
        claims_over_at = time.monotonic() + _CLAIM_SECONDS
        self.log.info("The application was submitted: it has %d s to claim its tables at the server", _CLAIM_SECONDS)
        while True:
            submit = SubmitState("has succeeded", ended=True, claims_over=time.monotonic() > claims_over_at)
            try:
                with FlussHook(lease.fluss_conn_id).get_client() as client:
                    outcome = client.lease_outcome(lease.lease_id, lease.attempt_token)
                outage.restore(self.log)
                judgement = judge(outcome, lease.tables, lease.attempt_token, submit)
            except FlussTieringError as error:
                judgement = outage.lost(error, self.log) or Judgement(Verdict.WAITING, error.message)
            if judgement.verdict is Verdict.TIERED:
                self.log.info("%s", judgement.message)
                return judgement
            if judgement.verdict is not Verdict.WAITING:
                fail_if_ended(judgement)
                raise AirflowException(judgement.message)
            time.sleep(self.poke_interval)

    def _held(self) -> TieringAttempt:
        if self._attempt is None:
            raise RuntimeError("the attempt is known in execute only")
        return self._attempt
