"""The trigger: waits in the triggerer for the outcome of all rounds under a lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.outage_timer import OutageTimer
from airflow_provider_fluss.outcome import Judgement, Verdict, judge
from airflow_provider_fluss.submit_task import SubmitTask
from fluss_tiering.model.errors import FlussTieringError

if TYPE_CHECKING:
    from fluss_tiering.client import AsyncTieringClient

KILL_TIMEOUT_SECONDS: Final = 5.0


class FlussTieringStatusTrigger(BaseTrigger):
    """Fires once every table of a lease has an outcome, or once it is clear that one will not come.

    One call a poll covers all tables. The trigger's arguments are all that it knows: it runs again from them after a
    restart of the triggerer, and leaves nothing behind to clean up.

    Args:
        lease: the lease as the acquire task's XCom holds it.
        poll_interval: seconds between two polls.
        unavailable_timeout: seconds for which an unavailable server is waited for.
        submit_task: the task that submits the application, as `SubmitTask.to_kwargs` gives it.
    """

    def __init__(
        self,
        lease: dict[str, Any],
        poll_interval: float,
        unavailable_timeout: float,
        submit_task: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lease = lease
        self.poll_interval = poll_interval
        self.unavailable_timeout = unavailable_timeout
        self.submit_task = submit_task

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class path and the arguments to run again from."""
        return (
            "airflow_provider_fluss.triggers.status.FlussTieringStatusTrigger",
            {
                "lease": self.lease,
                "poll_interval": self.poll_interval,
                "unavailable_timeout": self.unavailable_timeout,
                "submit_task": self.submit_task,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the verdict is final and fire it."""
        lease = LeaseHandle.from_xcom(self.lease)
        async with await FlussHook(lease.fluss_conn_id).get_async_client() as client:
            judgement = await self._wait(client, lease)
        yield TriggerEvent(judgement.to_event())  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Cancel the rounds of this attempt: somebody marked or cleared the waiting task.

        It may run after a newer attempt began under the same lease id, which the attempt token protects (L22).
        """
        lease = LeaseHandle.from_xcom(self.lease)
        hook = FlussHook(lease.fluss_conn_id, timeout=KILL_TIMEOUT_SECONDS)
        async with await hook.get_async_client() as client:
            await client.cancel_tiering(lease.lease_id, lease.attempt_token, "the task that waited for it was killed")

    async def _wait(self, client: AsyncTieringClient, lease: LeaseHandle) -> Judgement:
        submit = SubmitTask(**self.submit_task) if self.submit_task else None
        submit_ended: str | None = None
        outage = OutageTimer(self.unavailable_timeout)
        said = ""
        while True:
            try:
                outcome = await client.lease_outcome(lease.lease_id, lease.attempt_token)
            except FlussTieringError as error:
                if given_up := outage.lost(error):
                    return given_up
                self.log.warning("The tiering server is unavailable, trying again: %s", error.message)
            else:
                outage.restore()
                judgement = judge(outcome, lease.tables, lease.attempt_token, submit_ended)
                if judgement.verdict is not Verdict.WAITING:
                    return judgement
                if judgement.message != said:
                    said = judgement.message
                    self.log.info("%s", said)
                if judgement.unclaimed and submit:
                    submit_ended = await sync_to_async(submit.look)()
            await asyncio.sleep(self.poll_interval)
