"""The client of a Fluss cluster, for threads and executors, and its form for the server's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from fluss_tiering.model.closing import AsyncClosing, Closing
from fluss_tiering.storage.fluss.rpc.call import Call, ServerAddress
from fluss_tiering.storage.fluss.rpc.connection import FlussConnection
from fluss_tiering.storage.fluss.rpc.connection_steps import CLOSED, Credentials, unreachable
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError
from fluss_tiering.storage.fluss.rpc.routing import Deadline, RoutedCall, Router, may_repeat

ResultT = TypeVar("ResultT")

BACK_OFF: Final = wait_random_exponential(multiplier=0.1, max=1.0)
"""The pause between two tries of a call, in seconds."""
T = TypeVar("T")
_THREADS: Final = 8
_THREADS_OF_LOOP: Final = 64
"""A call to a server that does not answer keeps its thread until its time is over: calls to others need one, too."""


class FlussClient(Closing):
    """Sends each call to the server of the cluster that it belongs to. Threads may share a client.

    When a server is away, or is no longer the right one, the client looks for the right server until the call's time
    is used up. A call that must not be done twice is not repeated once it may have been done.
    """

    def __init__(self, bootstrap: str, *, credentials: Credentials | None = None, timeout: float = 30.0) -> None:
        """Make a client, which connects to a server when the first call needs it.

        Args:
            bootstrap: HOST:PORT of any servers of the cluster, separated by commas.
            credentials: The user and the password for a listener that demands SASL.
            timeout: The seconds that a call may take in all, including connecting and repeating.

        Raises:
            FlussTieringError: INVALID_REQUEST if `bootstrap` has a part that is no address.
        """
        self._router = Router(ServerAddress.parse_list(bootstrap))
        self._credentials = credentials
        self._user = None if credentials is None else credentials.username
        self._timeout = timeout
        self._connections: dict[ServerAddress, FlussConnection] = {}
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """End all connections. Calls in flight fail, and are not repeated."""
        self._closed = True
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    def call(self, call: Call[Any, ResultT], *, within: float | None = None) -> ResultT:
        """Send a call and return its result.

        Args:
            within: The seconds that the call may take in all, instead of the client's timeout.

        Raises:
            FlussTieringError: The errors that the call's maker names; UNAVAILABLE if the cluster cannot be reached or
                is too slow; UNSUPPORTED_VERSION if it does not serve the call; CORRUPT_DATA if the server is not a
                Fluss server.
            FlussServerError: The server answered with an error.
        """
        deadline = Deadline.of(self._timeout if within is None else within)
        tries = Retrying(
            stop=stop_after_delay(deadline.seconds),
            wait=BACK_OFF,
            retry=retry_if_exception(lambda error: not self._closed and may_repeat(call, error)),
            reraise=True,
        )
        try:
            result: ResultT = tries(self._once, call, deadline)
        except FlussServerError as error:
            raise error.of_user(self._user) from error.__cause__
        return result

    def _once(self, call: Call[Any, ResultT], deadline: Deadline) -> ResultT:
        steps = self._router.steps(call)
        try:
            sent = next(steps)
            while True:
                try:
                    result = self._send(sent, deadline)
                except Exception as error:  # noqa: BLE001 - the steps know what to do about it
                    sent = steps.throw(error)
                else:
                    sent = steps.send(result)
        except StopIteration as end:
            result_of_call: ResultT = end.value
            return result_of_call

    def _send(self, sent: RoutedCall, deadline: Deadline) -> Any:  # noqa: ANN401 - the result type is the call's
        connection = self._connection(sent.address, deadline.connect_timeout())
        return connection.call(sent.call, deadline.try_timeout(sent.call))

    def _connection(self, address: ServerAddress, timeout: float) -> FlussConnection:
        connection = self._connections.get(address)
        if connection is not None and connection.usable:
            return connection
        made = FlussConnection(address, credentials=self._credentials, timeout=timeout)
        with self._lock:
            other = self._connections.get(address)
            if self._closed:
                made.close()
                raise unreachable(str(address), CLOSED)
            if other is not None and other.usable:
                made.close()
                return other
            self._connections[address] = made
        return made


class AsyncFlussClient(AsyncClosing):
    """A `FlussClient` for an event loop, whose calls wait in threads."""

    def __init__(self, bootstrap: str, *, credentials: Credentials | None = None, timeout: float = 30.0) -> None:
        """Make a client. Arguments and errors are those of `FlussClient`."""
        self._client = FlussClient(bootstrap, credentials=credentials, timeout=timeout)
        self._threads = ThreadPoolExecutor(_THREADS_OF_LOOP, thread_name_prefix="fluss-loop")

    async def close(self) -> None:
        """End all connections. Calls in flight fail."""
        self._client.close()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def call(self, call: Call[Any, ResultT], *, within: float | None = None) -> ResultT:
        """Send a call and return its result. Arguments and errors are those of `FlussClient.call`."""
        waits = partial(self._client.call, call, within=within)
        return await asyncio.get_running_loop().run_in_executor(self._threads, waits)


class ParallelCalls:
    """A pool of threads that make calls. Threads may share it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="fluss-calls")

    def each(self, function: Callable[[T], ResultT], items: Iterable[T]) -> list[ResultT]:
        """Call a function for each item and return the results in the items' order.

        The first error is raised when all of the calls have ended.
        """
        items = list(items)
        if len(items) <= 1:
            return [function(item) for item in items]
        futures = [self._threads.submit(function, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def later(self, function: Callable[[], object]) -> None:
        """Call a function soon without waiting for its result. Do nothing once the pool is closed."""
        with suppress(RuntimeError):
            self._threads.submit(function)

    def close(self) -> None:
        """End the threads when their calls have ended."""
        self._threads.shutdown()
