"""Servers of which one leads, in this process and on a real PostgreSQL, whose components a test opens."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.edge.listener import RpcListener
from fluss_tiering.server.edge.server_roles import Role, bytes_handler
from fluss_tiering.server.failover.leadership import LeadershipFence
from fluss_tiering.server.failover.replica import FailoverReplica
from fluss_tiering.server.settings.server_settings import load_settings
from waiting import WAIT_S

LEASE_MS = 8000
"""So long that a busy machine renews it in time."""
SHORT_LEASE_MS = 2000
"""For tests in which the leadership lapses: if it lapses once more, they go on all the same."""
METHOD = "/fluss_tiering.v1.Tables/ListTables"
SERVICE = "fluss_tiering.v1.Tables"


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@dataclass
class Active:
    """Stands for the components of an active server: a role that answers, and a store behind the fence."""

    name: str
    check: Callable[[], None]
    fence: LeadershipFence
    store: SqlTieringStore
    server_id: str | None = None
    streams_ended: bool = False
    closed: bool = False

    def handler(self, method: str) -> Any:
        async def answer(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            del context
            async for request in requests:
                yield f"{self.name}: ".encode() + request

        del method
        return bytes_handler(answer)

    def end_streams(self) -> None:
        self.streams_ended = True


@dataclass
class Server:
    """A server whose components are opened by the test."""

    name: str
    folder: Path
    url: str
    identity: Any = None
    lease_ms: int = LEASE_MS
    advertised: str = ""
    opened: list[Active] = field(default_factory=list)
    process_ended: threading.Event = field(default_factory=threading.Event)
    before_opening: Callable[[], Awaitable[None]] | None = None
    on_unwinding: Callable[[], None] | None = None
    before_closing: Callable[[], None] | None = None
    closed: bool = False

    def make(self) -> None:
        settings = load_settings(
            data_dir=self.folder,
            port=0,
            leader_lease=self.lease_ms,
            advertised_address=self.advertised,
        )
        self.listener = RpcListener(settings)
        self.replica = FailoverReplica(
            settings,
            self.url,
            backend=SimpleNamespace(identity=lambda: self.identity),  # type: ignore[arg-type]
            listener=self.listener,
            open_active=self._open,
            monotonic=time.monotonic,
            end_process=self.process_ended.set,
        )

    async def start(self) -> None:
        self.make()
        await self.listener.start()
        await self.replica.start()

    async def end(self) -> None:
        try:
            with suppress(FlussTieringError):
                await self.replica.stop()
            if not self.closed:
                await self.replica.close()
        finally:
            await self.listener.stop(0)

    def waits_for(self, active: Server) -> str:
        """Return the beginning of the answer to a call, as long as another server is active."""
        return f"this server waits, and 127.0.0.1:{active.listener.port} is the active one"

    async def health(self) -> str:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.listener.port}") as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=SERVICE), timeout=20
            )
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    async def call(self) -> bytes | str:
        """Return the answer to a call, or why there was none."""
        options = [("grpc.enable_retries", 0)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.listener.port}", options) as channel:
            try:
                return bytes(await channel.unary_unary(METHOD)(b"", timeout=20))  # type: ignore[misc]
            except grpc.aio.AioRpcError as error:
                return str(error.details())

    async def _open(self, stack: AsyncExitStack, fence: LeadershipFence, check: Callable[[], None]) -> Role:
        if self.on_unwinding is not None:
            stack.callback(self.on_unwinding)
        if self.before_opening is not None:
            await self.before_opening()
        store = await asyncio.to_thread(SqlTieringStore.open, self.url, fence)
        active = Active(self.name, check, fence, store)
        stack.callback(self._close, active)
        self.opened.append(active)
        return active

    def _close(self, active: Active) -> None:
        if self.before_closing is not None:
            self.before_closing()
        active.closed = True
        active.store.close()


def write(active: Active, token: int) -> None:
    with active.store.transaction() as transaction:
        transaction.put_attempt_token(token)
