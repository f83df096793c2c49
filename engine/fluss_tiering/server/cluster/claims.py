"""Which tables of a Fluss cluster are due: its coordinator says so, and this server is its tiering service (S22).

The coordinator hands out one table a request, first in, first out, and offers it again 120 s after the last heartbeat.
A table that it handed out is held, with heartbeats, for as long as it is Pending, Tiering or Failed here: given back as
failed it would be offered again at once, as finished it would count as tiered. What is held is not stored: after a
restart of this server the coordinator offers it again, and rounds that run do not ask for it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatAnswer, HeartbeatEntry, TieringState
from fluss_tiering.server.managers import Managers
from fluss_tiering.server.threads import ServerThreads
from fluss_tiering.storage.fluss.rpc.async_client import AsyncFlussClient
from fluss_tiering.storage.fluss.rpc.calls.lake import heartbeat

_HEARTBEAT_S: Final = 25.0
_GIVEN_UP_S: Final = 120.0
"""Without a heartbeat for so long a table is offered again (`TIERING_SERVICE_TIMEOUT_MS`)."""
_DISCOVERY_S: Final = 5.0
"""Between looks for a table that was handed out and is not known here."""
_WITHIN_S: Final = 10.0

_OVER: Final = frozenset({TieringState.NEW, TieringState.INITIALIZED, TieringState.SCHEDULED})
"""States in which nothing is left of what a table was held for."""

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Held:
    """A table that the coordinator handed out; times on the monotonic clock.

    Attributes:
        entry: what heartbeats say of it, with the coordinator's epochs, not ours.
        kept_alive: when the coordinator last heard of it.
        due_here: whether our own state has followed; not as long as the table is not known here.
        looked_for: when a table that is not known here was last looked for.
    """

    path: TablePath
    entry: HeartbeatEntry
    kept_alive: float
    due_here: bool = False
    looked_for: float | None = None


class ClusterClaims:
    """The tables held at the cluster's coordinator; used on the event loop only. Call `run_once` again and again.

    A table that cannot be tiered here is not kept alive: another tiering service may have it then.
    """

    def __init__(
        self,
        client: AsyncFlussClient,
        threads: ServerThreads,
        managers: Managers,
        discover: Callable[[], Awaitable[object]],
        *,
        heartbeat_s: float = _HEARTBEAT_S,
    ) -> None:
        """`discover` registers the cluster's new tables; what is held is kept alive every `heartbeat_s`."""
        self._client = client
        self._threads = threads
        self._tiering = managers.tiering
        self._discover = discover
        self._heartbeat_s = heartbeat_s
        self._held: dict[int, _Held] = {}

    @property
    def held(self) -> frozenset[int]:
        """Ids of the tables that are held."""
        return frozenset(self._held)

    async def run_once(self) -> None:
        """Reports what is over, keeps the rest alive, and takes all that is due.

        Raises:
            FlussTieringError: UNAVAILABLE, and what was not confirmed stays held; to be called again.
        """
        for table_id, held in list(self._held.items()):
            if not held.due_here:
                await self._follow(table_id, held)
        answer = await self._report()
        while answer.claim is not None:
            await self._hold(answer.claim, answer.coordinator_epoch)
            answer = await self._client.call(heartbeat(request_table=True), within=_WITHIN_S)

    async def _report(self) -> HeartbeatAnswer:
        """One heartbeat for all that is held, which asks for a table too."""
        now = time.monotonic()
        states = await self._threads.control(self._states, [id_ for id_, held in self._held.items() if held.due_here])
        for table_id in [id_ for id_, state in states.items() if state is None]:
            # Dropped, or not tiered any more: the cluster knows.
            self._let_go(table_id, "it is not tiered any more")
        over = [id_ for id_, state in states.items() if state in _OVER]
        alive = [
            id_
            for id_, state in states.items()
            if state is not None and state not in _OVER and now - self._held[id_].kept_alive >= self._heartbeat_s
        ]
        answer = await self._client.call(
            heartbeat(
                tiering=[self._held[id_].entry for id_ in alive],
                finished=[self._held[id_].entry for id_ in over],
                request_table=True,
            ),
            within=_WITHIN_S,
        )
        for table_id in alive:
            self._held[table_id].kept_alive = now
        for table_id in over:
            error = answer.finished_errors.get(table_id)
            self._let_go(table_id, "it was tiered" if error is None else error.message)
        for table_id, error in answer.tiering_errors.items():
            # The coordinator started again, or gave the table to somebody else, or it was dropped. If it is still to be
            # tiered it will be handed out again.
            self._let_go(table_id, error.message)
        return answer

    async def _hold(self, claim: Claim, coordinator_epoch: int) -> None:
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, coordinator_epoch=coordinator_epoch)
        held = self._held[claim.table_id] = _Held(claim.path, entry, time.monotonic())
        logger.info(
            "table handed out by the cluster",
            table=str(claim.path),
            table_id=claim.table_id,
            cluster_epoch=claim.tiering_epoch,
        )
        await self._follow(claim.table_id, held)

    async def _follow(self, table_id: int, held: _Held) -> None:
        """Has our own state follow: Scheduled -> Pending; a table that is not known here is looked for first."""
        now = time.monotonic()
        if now - held.kept_alive >= _GIVEN_UP_S:
            self._let_go(table_id, "it is not known here")
            return
        state = await self._threads.control(self._tiering.make_due, table_id)
        if state is None and (held.looked_for is None or now - held.looked_for >= _DISCOVERY_S):
            held.looked_for = now
            await self._discover()
            state = await self._threads.control(self._tiering.make_due, table_id)
        held.due_here = state is not None

    def _states(self, table_ids: Sequence[int]) -> dict[int, TieringState | None]:
        """In the thread of control: the states of tables; None for those that are not tiered."""
        found = {id_: self._tiering.tables.get(id_) for id_ in table_ids}
        return {id_: None if table is None else table.status.state for id_, table in found.items()}

    def _let_go(self, table_id: int, why: str) -> None:
        held = self._held.pop(table_id, None)
        if held is not None:
            logger.info("table no longer held", table=str(held.path), table_id=table_id, why=why)
