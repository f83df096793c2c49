"""The trigger that waits in the triggerer for the outcome of all rounds under a lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.missing_connection import UnreachableConnectionError
from airflow_provider_fluss.outage_timer import OutageTimer
from airflow_provider_fluss.outcome import Judgement, Verdict, judge, named
from airflow_provider_fluss.submit_task import MAY_SUBMIT, SubmitTask
from airflow_provider_fluss.task_states import MARKED, SharedTaskStates, TaskInstanceKey
from fluss_tiering.model.errors import FlussTieringError

if TYPE_CHECKING:
    from fluss_tiering.client import AsyncTieringClient

KILL_TIMEOUT_SECONDS: Final = 5.0


class FlussTieringStatusTrigger(BaseTrigger):
    """Fire when every table of a lease has an outcome, or when it is clear that one of them will not have one.

    One call covers all tables in each poll. All triggers of a triggerer share one channel to the server, and those of
    a run ask Airflow together for the states of the submit task. The trigger keeps no state besides its arguments, so
    it can start again from them after a restart of the triggerer.

    Args:
        lease: The lease as the XCom of the acquire task holds it.
        poll_interval: The time in seconds between two polls.
        unavailable_timeout: The time in seconds for which the trigger waits for an unavailable server.
        submit_task: The arguments of `SubmitTask`, or None if no submit task is watched.
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
        """Return the path of the class and the arguments with which Airflow starts the trigger again."""
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
        """Poll until the verdict is final, and fire an event with it. The first poll is after one interval."""
        lease = LeaseHandle.from_xcom(self.lease)
        # The sensor asked before it was deferred. If the trigger fires before Airflow's scheduler has seen that the
        # process of the sensor ended, the scheduler takes that end for one of the task and fails it.
        await asyncio.sleep(self.poll_interval)
        judgement = await self._judgement(lease)
        yield TriggerEvent({**judgement.to_event(), "lease": self.lease})  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Cancel the rounds if a person marked the waiting task. If the task was cleared, they go on.

        The attempt token protects a newer attempt, in case Airflow calls this late.
        """
        key = TaskInstanceKey.of(self.task_instance)
        state = await sync_to_async(key.state)()
        if state not in MARKED:
            self.log.info("The waiting task is %s and was not marked, so the rounds go on", state or "cleared")
            return
        lease = LeaseHandle.from_xcom(self.lease)
        hook = FlussHook(lease.fluss_conn_id, timeout=KILL_TIMEOUT_SECONDS)
        async with await hook.get_async_client() as client:
            await client.cancel_tiering(lease.lease_id, lease.attempt_token, f"task {key.task_id} was marked {state}")

    async def _judgement(self, lease: LeaseHandle) -> Judgement:
        """Return the final judgement. While Airflow cannot look the connection up, this tries again."""
        now = asyncio.get_running_loop().time
        give_up_at = now() + self.unavailable_timeout
        while True:
            try:
                async with FlussHook(lease.fluss_conn_id).share_async_client() as client:
                    return await self._wait(client, lease)
            except UnreachableConnectionError as error:
                if now() >= give_up_at:
                    return Judgement(Verdict.UNREACHABLE, f"{error}; these tables wait for it: {named(lease.tables)}")
                self.log.warning("%s. Trying again", error)
            await asyncio.sleep(self.poll_interval)

    async def _wait(self, client: AsyncTieringClient, lease: LeaseHandle) -> Judgement:
        watched = SubmitTask.from_kwargs(self.submit_task) if self.submit_task else None
        states = SharedTaskStates.of(watched.key) if watched else None
        submit = MAY_SUBMIT if watched else None
        is_sure = False
        now = asyncio.get_running_loop().time
        outage = OutageTimer(self.unavailable_timeout)
        said = ""
        while True:
            try:
                if watched and watched.was_marked_failed:
                    reason = f"task {watched.key.task_id} was marked failed"
                    await client.cancel_tiering(lease.lease_id, lease.attempt_token, reason)
                outcome = await client.lease_outcome(lease.lease_id, lease.attempt_token)
            except FlussTieringError as error:
                if given_up := outage.lost(error, self.log):
                    return given_up
                await asyncio.sleep(self.poll_interval)
                continue
            outage.restore(self.log)
            judgement = judge(outcome, lease.tables, lease.attempt_token, submit)
            is_final = judgement.verdict is not Verdict.WAITING
            if is_final and (is_sure or watched is None or judgement.verdict is Verdict.TIERED):
                return judgement
            if not is_final and judgement.message != said:
                said = judgement.message
                self.log.info("%s", said)
            first_look = submit is MAY_SUBMIT
            # A person may have cleared the submit task since another trigger saw that it ended, so look again.
            is_sure = is_final
            if watched and states and (is_final or judgement.depends_on_submit or watched.is_deferred):
                # The outcome is asked for after this, so that what the task does in between is seen.
                since = now() if is_final else now() - self.poll_interval
                submit = watched.seen_in(await states.since(since))
            if not (is_final or (first_look and submit is not None and submit.ended)):
                await asyncio.sleep(self.poll_interval)
