"""One of several servers on one PostgreSQL: it waits, takes over, leads, and stops leading when it must."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from typing import Any, Final

import structlog

from fluss_tiering.model.closing import time_limit
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.server.backends.backend import Backend
from fluss_tiering.server.core.store.database import Database
from fluss_tiering.server.core.store.note import StoreKind, check_kind
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.edge.listener import RpcListener, address_of
from fluss_tiering.server.edge.server_roles import Role
from fluss_tiering.server.failover.election import Election, Leader
from fluss_tiering.server.failover.leadership import Leadership, LeadershipFence
from fluss_tiering.server.failover.standby import StandbyRole, server_credentials
from fluss_tiering.server.failover.succession import Succession
from fluss_tiering.server.settings.server_settings import ServerSettings

_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - these are replaced, not bound

_CLOSING_S: Final = 5.0
"""How long a server may take to close after its leadership ended, before its process ends with all that it holds.

The leadership is not renewed while a server closes, so that it may end meanwhile. The server that takes over waits for
the data folder. What is cut off by the end of the process is recovered as after a kill.
"""

OpenActive = Callable[[AsyncExitStack, LeadershipFence, Callable[[], None]], Awaitable[Role]]
"""Opens the components of the active server behind a fence and a check. The stack closes them."""

logger = structlog.get_logger(__name__)


class FailoverReplica:
    """Runs one of several servers.

    Args:
        url: The URL of the PostgreSQL database.
        backend: The kind of storage.
        listener: The gRPC server.
        open_active: Opens the components of the active server.
        monotonic: A clock in seconds that never goes back, for the leadership.
        end_process: Ends the process at once. It is called if this server cannot close although its leadership ended;
            None to wait without end.

    Attributes:
        database_reachable: Whether the last look at the database, or the last renewal, was answered.
        waits_for_data_folder: Whether this server leads but cannot open the data folder, which another server holds.
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
        end_process: Callable[[], None] | None,
    ) -> None:
        lease_s = settings.leader_lease_ms / 1000
        self._database = Database.postgresql(url, connect_timeout_s=lease_s / 4)
        self._url = url
        self._backend = backend
        self._data_dir = settings.data_dir
        self._listener = listener
        self._open_active = open_active
        self._end_process = end_process
        self._active = AsyncExitStack()
        self.database_reachable = True
        self.waits_for_data_folder = False
        self._serves = False
        self._takes_over = "this server is taking over"
        if settings.fluss:
            self._takes_over += (
                f", for which it needs the Fluss cluster at {settings.fluss}: if that takes long, its log says why"
            )
        self._address = settings.advertised_address or _address(settings.host, listener.port)
        election = Election(self._database, str(uuid.uuid4()), self._address, lease_s)
        self._leadership = Leadership(election, lease_s, monotonic)
        self._succession = Succession(election, self._leadership, lease_s, self._address)
        self._threads = ServerThreads()
        self._standby = StandbyRole(asks=settings.asks_callers, credentials=lambda: server_credentials(settings))
        self._followed: Leader | None = None
        self._settled = asyncio.Event()
        self._course: asyncio.Task[None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether this server is the active one."""
        return self._leadership.is_valid

    async def start(self) -> None:
        """Begin to wait for the leadership. Return once this server is active, or once it is sure that it must wait.

        Raises:
            FlussTieringError: UNAVAILABLE or STORAGE if the database cannot be used; INVALID_REQUEST if the database
                belongs to another storage, or if the data folder was used with SQLite, for which this server would
                wait in vain; the errors of `open_active`.
        """
        await self._succession.prepare()
        self._course = asyncio.create_task(self._run(), name="succession")
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
        """Stop waiting for the leadership, or renewing it, and close the active server's components."""
        if self._course is not None:
            self._course.cancel()
            await asyncio.wait([self._course])
        await self._close_active()

    async def close(self) -> None:
        """Let the next server take over. Call it after `stop`."""
        self._standby.follow(None, "this server is stopping")
        await self._succession.close()
        self._threads.close()

    async def _run(self) -> None:
        while True:
            self._listener.serve(self._standby)
            await self._succession.wait_for_leadership(self._follow)
            self._standby.follow(None, self._takes_over)
            await self._lead()

    async def _lead(self) -> None:
        """Take over and lead. Return with all closed once the leadership lapsed; raise if another server took over."""
        keeping = self._succession.keep_leadership(self._tried_to_renew)
        leading = asyncio.create_task(keeping, name="leadership")
        opening = asyncio.create_task(self._take_over(), name="take-over")
        try:
            await asyncio.wait([leading, opening], return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                role = await opening
                self.waits_for_data_folder = False
                self._listener.serve(role)
                self._serves = True
                await self._listener.set_serving(self._leadership.is_valid)
                logger.info("this server is the active one", generation=self._leadership.generation)
                self._settled.set()
                try:
                    await leading
                finally:
                    # Calls that come from now on wait for the next active server, and so do those that still run.
                    self._listener.serve(self._standby)
                    self._serves = False
                    role.end_streams()
                    await self._listener.set_serving(False)
            await leading
        finally:
            self.waits_for_data_folder = False
            for task in (leading, opening):
                task.cancel()
            with self._closing_limit():
                # What a take-over has opened is closed, and waits for the calls that it began.
                await asyncio.wait([leading, opening])
        self._standby.follow(None, "this server stopped leading")
        await self._close_active()
        await self._succession.resign()

    async def _take_over(self) -> Role:
        fence = LeadershipFence(self._leadership, self._database)
        generation = self._leadership.generation

        def check() -> None:
            self._leadership.require(generation)

        async def open_active() -> Role:
            async with AsyncExitStack() as opening:
                role = await self._open_active(opening, fence, check)
                self._active.push_async_exit(opening.pop_all())
            return role

        return await self._succession.take_over(open_active, self._waits_for_data_folder)

    async def _close_active(self) -> None:
        with self._closing_limit():
            if not self._leadership.is_valid:
                # A thread may wait for an answer about a transaction, which no longer matters.
                self._database.sockets.break_all()
            await self._active.aclose()

    def _closing_limit(self) -> AbstractContextManager[None]:
        """Return a block in which a server closes, whose time ends soon after the leadership."""
        if self._end_process is None:
            return nullcontext()
        leads_s = self._leadership.remaining_s if self._leadership.is_valid else 0.0
        return time_limit(leads_s + _CLOSING_S, self._end_process)

    def _waits_for_data_folder(self, reason: str) -> None:
        self._standby.follow(None, f"this server is taking over, but {reason}")
        self.waits_for_data_folder = True
        self._settled.set()

    async def _follow(self, leader: Leader | None, problem: FlussTieringError | None) -> None:
        self._note_database(problem)
        if problem is not None:
            # The active server may still serve, although this server cannot see the database.
            self._standby.doubt(problem.message)
            return
        if leader is None:
            self._standby.follow(None, "this server is about to take over")
            return
        if self._succession.is_here(leader):
            reason = (
                f"{leader.address}, the address of the last one, is this server's own: its leadership ends in a "
                "moment, unless two servers have the same advertised-address"
            )
            self._standby.follow(None, reason)
        else:
            self._standby.follow(leader.address, "")
        if leader != self._followed:
            self._followed = leader
            logger.info("waiting for the active server to end", active=leader.address, generation=leader.generation)
        if not self._settled.is_set():
            await self._threads.control(self._check_binding)
            await self._listener.set_serving(False)
            self._settled.set()

    def _note_database(self, problem: FlussTieringError | None) -> None:
        if problem is not None and self.database_reachable:
            logger.warning("the database cannot be used", error=problem.message)
        self.database_reachable = problem is None

    async def _tried_to_renew(self, problem: FlussTieringError | None) -> None:
        self._note_database(problem)
        # A server that leads may not serve yet: it opens the storage, or waits for it.
        if self._serves:
            await self._listener.set_serving(self._leadership.is_valid)

    def _check_binding(self) -> None:
        try:
            store = SqlTieringStore.open_to_read(self._url)
        except FlussTieringError:
            # The database does not have the present layout. The take-over migrates it or reports what is wrong.
            return
        try:
            # A backend that cannot tell yet which storage it has is checked when this server takes over.
            storage = self._backend.identity()
            if storage is not None:
                store.is_bound(storage.storage_id, storage.location)
        finally:
            store.close()
        check_kind(self._data_dir, StoreKind.POSTGRESQL)


def _address(host: str, port: int) -> str:
    return address_of(socket.gethostname() if host in _ANY_ADDRESS else host, port)
