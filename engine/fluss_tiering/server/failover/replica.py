"""One of several servers on one PostgreSQL: it waits, takes over, leads, and ends when another server takes over."""

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

_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - these are replaced, not bound

OpenActive = Callable[[AsyncExitStack, LeadershipFence, Callable[[], None]], Awaitable[Role]]
"""Opens the components of the active server behind a fence and a check. The stack closes them."""

logger = structlog.get_logger(__name__)


class FailoverReplica:
    """Runs one of several servers.

    Args:
        settings: The settings of the server.
        url: The URL of the PostgreSQL database.
        backend: The kind of storage.
        listener: The gRPC server.
        open_active: Opens the components of the active server.
        monotonic: A clock in seconds that never goes back, for the leadership.
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
        self._course: asyncio.Task[None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether this server is the active one."""
        return self._leadership.is_valid

    async def start(self, active: AsyncExitStack) -> None:
        """Begin to wait for the leadership. Return once this server is active, or once it is sure that it must wait.

        Args:
            active: Closes what the active server opens.

        Raises:
            FlussTieringError: UNAVAILABLE or STORAGE if the database cannot be used; INVALID_REQUEST if the database
                belongs to another storage, for which this server would wait in vain; the errors of `open_active`.
        """
        await self._succession.prepare()
        self._course = asyncio.create_task(self._run(active), name="succession")
        settled = asyncio.ensure_future(self._settled.wait())
        await asyncio.wait([settled, self._course], return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        if self._course.done():
            await self._course

    async def wait_until_lost(self) -> None:
        """Wait until this server can no longer go on, and raise the reason.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER if another server took over; the errors of `open_active` if this
                server failed to take over.
        """
        if self._course is not None:
            await self._course

    async def stop(self) -> None:
        """Stop waiting for the leadership, or renewing it."""
        if self._course is not None:
            self._course.cancel()
            await asyncio.wait([self._course])

    async def close(self) -> None:
        """Let the next server take over. Call it after `stop`, once the active server's components are closed."""
        self._standby.follow(None, "this server is stopping")
        await self._succession.close()
        if self._store is not None:
            await self._threads.control(self._store.close)
        self._threads.close()

    async def _run(self, active: AsyncExitStack) -> None:
        self._listener.serve(self._standby)
        await self._succession.wait_for_leadership(self._follow)
        self._standby.follow(None, "this server is taking over")
        leading = asyncio.create_task(self._succession.keep_leadership(self._renewed), name="leadership")
        opening = asyncio.create_task(self._take_over(active), name="take-over")
        try:
            await asyncio.wait([leading, opening], return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                self._listener.serve(await opening)
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

    async def _follow(self, leader: Leader | None, problem: FlussTieringError | None) -> None:
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
            # The database does not have the present layout. The take-over migrates it or reports what is wrong.
            return
        # A backend that cannot tell yet which storage it has is checked when this server takes over.
        storage = self._backend.identity()
        if storage is not None:
            store.is_bound(storage.storage_id, storage.location)

    def _open_store(self) -> SqlTieringStore:
        # Called in the control thread. The store stays open once it could be opened.
        if self._store is None:
            self._store = SqlTieringStore.open_to_read(self._url)
        return self._store


def _address(host: str, port: int) -> str:
    return address_of(socket.gethostname() if host in _ANY_ADDRESS else host, port)
