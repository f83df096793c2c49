"""The asyncio client of a Fluss cluster, for the tiering server."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay

from fluss_tiering.model.closing import AsyncClosing
from fluss_tiering.storage.fluss.rpc.address import ServerAddress
from fluss_tiering.storage.fluss.rpc.async_connection import AsyncFlussConnection
from fluss_tiering.storage.fluss.rpc.call import Call
from fluss_tiering.storage.fluss.rpc.client import BACK_OFF
from fluss_tiering.storage.fluss.rpc.deadline import Deadline
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError
from fluss_tiering.storage.fluss.rpc.handshake import Credentials
from fluss_tiering.storage.fluss.rpc.routing import RoutedCall, Router, may_repeat

ResultT = TypeVar("ResultT")


class AsyncFlussClient(AsyncClosing):
    """Does what `FlussClient` does, with the same errors, in the event loop that it is used in."""

    def __init__(self, bootstrap: str, *, credentials: Credentials | None = None, timeout: float = 30.0) -> None:
        """Make a client. Arguments and errors are those of `FlussClient`."""
        self._router = Router(ServerAddress.parse_list(bootstrap))
        self._credentials = credentials
        self._user = None if credentials is None else credentials.username
        self._timeout = timeout
        self._connections: dict[ServerAddress, AsyncFlussConnection] = {}
        self._opening: dict[ServerAddress, asyncio.Lock] = {}

    async def close(self) -> None:
        """End all connections. Calls in flight fail."""
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.close()

    async def call(self, call: Call[Any, ResultT], *, within: float | None = None) -> ResultT:
        """Send a call and return its result. Arguments and errors are those of `FlussClient.call`."""
        deadline = Deadline.of(self._timeout if within is None else within)
        tries = AsyncRetrying(
            stop=stop_after_delay(deadline.seconds),
            wait=BACK_OFF,
            retry=retry_if_exception(lambda error: may_repeat(call, error)),
            reraise=True,
        )
        try:
            result: ResultT = await tries(self._once, call, deadline)
        except FlussServerError as error:
            raise error.of_user(self._user) from error.__cause__
        return result

    async def _once(self, call: Call[Any, ResultT], deadline: Deadline) -> ResultT:
        steps = self._router.steps(call)
        try:
            sent = next(steps)
            while True:
                try:
                    result = await self._send(sent, deadline)
                except Exception as error:  # noqa: BLE001 - the steps know what to do about it
                    sent = steps.throw(error)
                else:
                    sent = steps.send(result)
        except StopIteration as end:
            result_of_call: ResultT = end.value
            return result_of_call

    async def _send(self, sent: RoutedCall, deadline: Deadline) -> Any:  # noqa: ANN401 - the result type is the call's
        connection = await self._connection(sent.address, deadline)
        return await connection.call(sent.call, deadline.try_timeout(sent.call))

    async def _connection(self, address: ServerAddress, deadline: Deadline) -> AsyncFlussConnection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.usable:
                connection = await AsyncFlussConnection.open(
                    address, credentials=self._credentials, within=deadline.connect_timeout()
                )
                self._connections[address] = connection
            return connection
