"""The asyncio client of a Fluss cluster, for the tiering server."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self, TypeVar

from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay

from fluss_tiering.storage.fluss.rpc.address import ServerAddress
from fluss_tiering.storage.fluss.rpc.async_connection import AsyncFlussConnection
from fluss_tiering.storage.fluss.rpc.call import Call
from fluss_tiering.storage.fluss.rpc.client import BACK_OFF
from fluss_tiering.storage.fluss.rpc.deadline import TimeLimit
from fluss_tiering.storage.fluss.rpc.handshake import Credentials
from fluss_tiering.storage.fluss.rpc.routing import Cluster, Sent, worth_repeating

ResultT = TypeVar("ResultT")


class AsyncFlussClient:
    """As `FlussClient`, with the same errors; belongs to the event loop that it is used in."""

    def __init__(self, bootstrap: str, *, credentials: Credentials | None = None, timeout: float = 30.0) -> None:
        """Connects to nobody yet; arguments and errors as of `FlussClient`."""
        self._cluster = Cluster(ServerAddress.parse_list(bootstrap))
        self._credentials = credentials
        self._timeout = timeout
        self._connections: dict[ServerAddress, AsyncFlussConnection] = {}
        self._opening: dict[ServerAddress, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all connections; calls in flight fail."""
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.close()

    async def call(self, call: Call[Any, ResultT], *, within: float | None = None) -> ResultT:
        """The result of a call, `within` so many seconds instead of the client's; errors as of `FlussClient.call`."""
        time_limit = TimeLimit.of(self._timeout if within is None else within)
        tries = AsyncRetrying(
            stop=stop_after_delay(time_limit.seconds),
            wait=BACK_OFF,
            retry=retry_if_exception(lambda error: worth_repeating(call, error)),
            reraise=True,
        )
        result: ResultT = await tries(self._once, call, time_limit)
        return result

    async def _once(self, call: Call[Any, ResultT], time_limit: TimeLimit) -> ResultT:
        steps = self._cluster.steps(call)
        try:
            sent = next(steps)
            while True:
                try:
                    result = await self._send(sent, time_limit)
                except Exception as error:  # noqa: BLE001 - the steps know what to do about it
                    sent = steps.throw(error)
                else:
                    sent = steps.send(result)
        except StopIteration as end:
            result_of_call: ResultT = end.value
            return result_of_call

    async def _send(self, sent: Sent, time_limit: TimeLimit) -> Any:  # noqa: ANN401 - of whichever call it is
        connection = await self._connection(sent.address, time_limit)
        return await connection.call(sent.call, time_limit.for_try(sent.call))

    async def _connection(self, address: ServerAddress, time_limit: TimeLimit) -> AsyncFlussConnection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.usable:
                connection = await AsyncFlussConnection.open(
                    address, credentials=self._credentials, within=time_limit.to_connect()
                )
                self._connections[address] = connection
            return connection
