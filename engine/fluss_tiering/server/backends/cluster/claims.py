"""Takes due tables from the coordinator of a Fluss cluster. To the coordinator this server is a tiering service.

The coordinator hands out one table for each request, first in, first out. It offers a table again 120 s after the last
heartbeat. This server holds a table that was handed out, by heartbeats, while the table is Pending, Tiering or Failed
here. If it returned the table as failed, the coordinator would offer it again at once; if it returned the table as
finished, the table would count as tiered. The held tables are not stored: after a restart of this server the
coordinator offers them again, and running rounds do not need them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatAnswer, HeartbeatEntry, TieringState, TieringStats
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.storage.fluss.rpc.calls.lake import heartbeat
from fluss_tiering.storage.fluss.rpc.calls.tables import table
from fluss_tiering.storage.fluss.rpc.client import AsyncFlussClient

_HEARTBEAT_S: Final = 25.0
_GIVEN_UP_S: Final = 120.0
"""The coordinator offers a table again after this time without a heartbeat (`TIERING_SERVICE_TIMEOUT_MS`)."""
_DISCOVERY_S: Final = 5.0
"""The time between two looks for a table that was handed out and is not known here."""
_TAKEN_PART: Final = 5
"""The part of the time between two heartbeats in which tables are taken, one after the other."""
_WITHIN_S: Final = 10.0
_EPOCH_AFTER_ELECTION: Final = 0
"""The tiering epoch that a coordinator gives to the tables that were in Tiering when it was elected again."""

_OVER: Final = frozenset({TieringState.NEW, TieringState.INITIALIZED, TieringState.SCHEDULED})
"""The states in which the round that a table was held for is over."""

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Held:
    """A table that the coordinator handed out. Times are those of the monotonic clock.

    Attributes:
        entry: The table's entry in heartbeats, with the coordinator's epochs, which differ from this server's epochs.
        kept_alive: The time of the last heartbeat for the table.
        due_here: Whether the table became Pending here. It cannot while the table is not known here.
        looked_for: The time of the last look for a table that is not known here; None before the first look.
    """

    path: TablePath
    entry: HeartbeatEntry
    kept_alive: float
    due_here: bool = False
    looked_for: float | None = None


class ClusterClaims:
    """The tables that are held at the cluster's coordinator. It is used on the event loop only.

    `run_once` is a background job. A table that cannot be tiered here gets no heartbeats, so that another tiering
    service may take it.

    Args:
        discover: Registers the new tables of the cluster.
        heartbeat_s: The time between two heartbeats for a table, in seconds.
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
        self._client = client
        self._threads = threads
        self._tiering = managers.tiering
        self._discover = discover
        self._heartbeat_s = heartbeat_s
        self._held: dict[int, _Held] = {}

    @property
    def held(self) -> frozenset[int]:
        """The ids of the tables that are held."""
        return frozenset(self._held)

    async def run_once(self) -> None:
        """Report the tables whose rounds are over, send heartbeats for the others, and take tables that are due.

        It takes tables only for as long as the first of them can wait for its heartbeat, which the next call sends.

        Raises:
            FlussTieringError: UNAVAILABLE if the cluster does not answer. Tables whose end it did not confirm stay
                held until the next call.
        """
        for table_id, held in list(self._held.items()):
            if not held.due_here:
                await self._follow(table_id, held)
        answer = await self._report()
        until = time.monotonic() + self._heartbeat_s / _TAKEN_PART
        while answer.claim is not None:
            await self._hold(answer.claim, answer.coordinator_epoch)
            if time.monotonic() >= until:
                return
            answer = await self._client.call(heartbeat(request_table=True), within=_WITHIN_S)

    async def _report(self) -> HeartbeatAnswer:
        """Send one heartbeat for all held tables, and ask for a table with it."""
        now = time.monotonic()
        states = await self._threads.control(self._states, [id_ for id_, held in self._held.items() if held.due_here])
        for table_id in [id_ for id_, state in states.items() if state is None]:
            # The table was dropped or is no longer tiered, which the cluster knows.
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
                finished=[self._tiered(id_) for id_ in over],
                request_table=True,
            ),
            within=_WITHIN_S,
        )
        answer = await self._as_of_now(answer)
        for table_id in alive:
            self._held[table_id].kept_alive = now
        for table_id in over:
            error = answer.finished_errors.get(table_id)
            self._let_go(table_id, "it was tiered" if error is None else error.message)
        for table_id, error in answer.tiering_errors.items():
            # The coordinator started again, gave the table to another service, or the table was dropped. A table that
            # must still be tiered will be handed out again.
            self._let_go(table_id, error.message)
        return answer

    async def _as_of_now(self, answer: HeartbeatAnswer) -> HeartbeatAnswer:
        """Report the tables again that were refused because the coordinator has been elected again since.

        A coordinator of Fluss 1.0 that lost its ZooKeeper session and is elected again leaves tables in Tiering, but
        sets their tiering epochs to 0 (`LakeTableTieringManager.registerLakeTable`). Without this report it would offer
        them only after their time-out. No other service is fenced by it: what is handed out later has an epoch above 0,
        and a coordinator that was started since has no table in Tiering.
        """
        finished, tiering = (
            [id_ for id_, error in errors.items() if _is_of_an_earlier_election(error)]
            for errors in (answer.finished_errors, answer.tiering_errors)
        )
        for table_id in (*finished, *tiering):
            held = self._held[table_id]
            held.entry = replace(
                held.entry, tiering_epoch=_EPOCH_AFTER_ELECTION, coordinator_epoch=answer.coordinator_epoch
            )
        if not finished and not tiering:
            return answer
        again = await self._client.call(
            heartbeat(
                tiering=[self._held[id_].entry for id_ in tiering], finished=[self._tiered(id_) for id_ in finished]
            ),
            within=_WITHIN_S,
        )
        return replace(
            answer,
            finished_errors={**_without(answer.finished_errors, finished), **again.finished_errors},
            tiering_errors={**_without(answer.tiering_errors, tiering), **again.tiering_errors},
        )

    def _tiered(self, table_id: int) -> HeartbeatEntry:
        totals = self._tiering.totals.of(table_id)
        size = TieringStats(lake_file_size=totals.lake_file_size, lake_record_count=totals.lake_record_count)
        return replace(self._held[table_id].entry, stats=size)

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
        """Make the table Pending here too; look for it in the cluster first if it is not known here."""
        now = time.monotonic()
        if now - held.kept_alive >= _GIVEN_UP_S:
            self._let_go(table_id, "it is not known here")
            return
        state = await self._threads.control(self._tiering.make_due, table_id)
        if state is None and (held.looked_for is None or now - held.looked_for >= _DISCOVERY_S):
            is_first_look = held.looked_for is None
            held.looked_for = now
            await self._discover()
            state = await self._threads.control(self._tiering.make_due, table_id)
            if state is None and is_first_look:
                await self._tell_if_refused(held.path)
        held.due_here = state is not None

    async def _tell_if_refused(self, path: TablePath) -> None:
        """Say so if the user may not describe the table. The coordinator hands out tables without a look at rights."""
        try:
            await self._client.call(table(path), within=_WITHIN_S)
        except FlussTieringError as error:
            if error.code is ErrorCode.AUTHORIZATION:
                logger.warning("table handed out by the cluster cannot be tiered", table=str(path), why=error.message)

    def _states(self, table_ids: Sequence[int]) -> dict[int, TieringState | None]:
        """Return the states of tables, None for those that are not tiered; in the control thread."""
        found = {id_: self._tiering.tables.get(id_) for id_ in table_ids}
        return {id_: None if table is None else table.status.state for id_, table in found.items()}

    def _let_go(self, table_id: int, why: str) -> None:
        held = self._held.pop(table_id, None)
        if held is not None:
            logger.info("table no longer held", table=str(held.path), table_id=table_id, why=why)


def _is_of_an_earlier_election(error: FlussTieringError) -> bool:
    return error.code is ErrorCode.INVALID_COORDINATOR


def _without(errors: Mapping[int, FlussTieringError], table_ids: Collection[int]) -> dict[int, FlussTieringError]:
    return {id_: error for id_, error in errors.items() if id_ not in table_ids}
