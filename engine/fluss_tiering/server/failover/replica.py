"""One of several servers on one PostgreSQL: waits, takes over, leads, and ends when another one took over."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import structlog

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.server.backend import Backend
from fluss_tiering.server.failover.election import Election, Leader
from fluss_tiering.server.failover.leadership import Leadership, LeadershipFence
from fluss_tiering.server.failover.standby import StandbyRole
from fluss_tiering.server.failover.standby_reads import read_handlers
from fluss_tiering.server.failover.succession import Succession
from fluss_tiering.server.rpc.listener import RpcListener, address_of
from fluss_tiering.server.rpc.roles import Role
from fluss_tiering.server.settings import ServerSettings
from fluss_tiering.server.store.database import Database
from fluss_tiering.server.store.store import SqlTieringStore
from fluss_tiering.server.threads import ServerThreads

_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - what to replace

OpenActive = Callable[[AsyncExitStack, LeadershipFence, Callable[[], None]], Awaitable[Role]]
"""Opens the active server's parts behind a fence and a check; the stack closes them."""

logger = structlog.get_logger(__name__)


class FailoverReplica:
    """Runs a server's part in the succession.

    Args:
        url: of the PostgreSQL database.
        monotonic: seconds, for the leadership's deadline.
    """

    def __init__(
        self,
        settings: ServerSettings,
        url: str,
        *,
        backend: Backend[Any],
        listener: RpcListener,
        open_active: OpenActive,
        monotonic: Callable[[], float],
    ) -> None:
        database = Database.postgresql(url)
        lease_s = settings.leader_lease_ms / 1000
        self._url = url
        self._backend = backend
        self._listener = listener
        self._open_active = open_active
        self._address = settings.advertised_address or _address(settings.host, listener.port)
        election = Election(database, str(uuid.uuid4()), self._address, lease_s)
        self._leadership = Leadership(election, lease_s, monotonic)
        self._fence = LeadershipFence(self._leadership, database)
        self._succession = Succession(election, self._leadership, lease_s)
        self._threads = ServerThreads()
        self._store: SqlTieringStore | None = None
        self._standby = StandbyRole(read_handlers(self._threads, self._open_store))
        self._settled = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether this server is the active one."""
        return self._leadership.is_valid

    async def start(self, active: AsyncExitStack) -> None:
        """Returns once this server is active, or waits until it may be; `active` closes what it opens then.

        Raises:
            FlussTieringError: UNAVAILABLE, STORAGE, and what opening the active server's parts does; INVALID_REQUEST
                when the store is bound to another data folder, before it waits in vain.
        """
        await self._succession.prepare()
        self._life = asyncio.create_task(self._live(active), name="succession")
        settled = asyncio.ensure_future(self._settled.wait())
        await asyncio.wait([settled, self._life], return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        if self._life.done():
            await self._life

    async def ended(self) -> None:
        """Waits until this server can go on no more. Raises why: NOT_LEADER_OR_FOLLOWER, CORRUPT_DATA and others."""
        if self._life is not None:
            await self._life

    async def halt(self) -> None:
        """Takes over and renews no more."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait([self._life])

    async def stop(self) -> None:
        """Makes way for the next one, once this server was halted and what was active is closed."""
        self._standby.follow(None, "this server is stopping")
        await self._succession.end()
        if self._store is not None:
            await self._threads.control(self._store.close)
        self._threads.close()

    async def _live(self, active: AsyncExitStack) -> None:
        self._listener.become(self._standby)
        await self._succession.wait(self._seen)
        self._standby.follow(None, "this server is taking over")
        leading = asyncio.create_task(self._succession.lead(self._renewed), name="leadership")
        opening = asyncio.create_task(self._take_over(active), name="take-over")
        try:
            await asyncio.wait([leading, opening], return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                self._listener.become(await opening)
                await self._renewed(self._leadership.is_valid)
                logger.info("this server is the active one", generation=self._leadership.generation)
                self._settled.set()
            await leading
        finally:
            for task in (leading, opening):
                task.cancel()
            await asyncio.wait([leading, opening])

    async def _take_over(self, active: AsyncExitStack) -> Role:
        async def open_active() -> Role:
            async with AsyncExitStack() as opening:
                role = await self._open_active(opening, self._fence, self._leadership.require)
                active.push_async_exit(opening.pop_all())
            return role

        return await self._succession.take_over(open_active, self._waits_for_data_folder)

    def _waits_for_data_folder(self, reason: str) -> None:
        self._standby.follow(None, f"this server is taking over, but {reason}")
        self._settled.set()

    async def _seen(self, leader: Leader | None, problem: FlussTieringError | None) -> None:
        if leader is None:
            self._standby.follow(None, problem.message if problem else "this server is about to take over")
            return
        self._standby.follow(leader.address, "")
        if not self._settled.is_set():
            await self._threads.control(self._check_binding)
            logger.info("waiting for the active server to end", active=leader.address, generation=leader.generation)
            await self._listener.set_serving(False)
            self._settled.set()

    async def _renewed(self, leads: bool) -> None:
        await self._listener.set_serving(leads)

    def _check_binding(self) -> None:
        try:
            store = self._open_store()
        except FlussTieringError:
            # Not in the present layout: the take-over migrates it, or says what is wrong.
            return
        # A backend that cannot tell yet which storage it has is checked when this server takes over.
        storage = self._backend.identity()
        if storage is not None:
            store.is_bound(storage.storage_id, storage.location)

    def _open_store(self) -> SqlTieringStore:
        # In the thread of control. It stays open once the layout is the present one.
        if self._store is None:
            self._store = SqlTieringStore.open_to_read(self._url)
        return self._store


def _address(host: str, port: int) -> str:
    return address_of(socket.gethostname() if host in _ANY_ADDRESS else host, port)
