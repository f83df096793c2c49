"""The blocking client of a Fluss cluster, for executors."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from fluss_tiering.storage.fluss.rpc.address import ServerAddress
from fluss_tiering.storage.fluss.rpc.call import Call
from fluss_tiering.storage.fluss.rpc.connection import FlussConnection
from fluss_tiering.storage.fluss.rpc.deadline import TimeLimit
from fluss_tiering.storage.fluss.rpc.handshake import Credentials
from fluss_tiering.storage.fluss.rpc.routing import Cluster, Sent, worth_repeating

ResultT = TypeVar("ResultT")

BACK_OFF: Final = wait_random_exponential(multiplier=0.1, max=1.0)
"""Between tries, in seconds."""


class FlussClient:
    """Sends calls to the servers of the cluster that they belong to; safe to share between threads.

    A server that is away, or no longer the right one, is looked for anew until the call's time is used up. Calls that
    must not be done twice are not repeated once they may have been done.
    """

    def __init__(self, bootstrap: str, *, credentials: Credentials | None = None, timeout: float = 30.0) -> None:
        """Connects to nobody yet.

        Args:
            bootstrap: HOST:PORT of any servers of the cluster, with commas between them.
            credentials: for a listener that demands SASL.
            timeout: seconds that a call may take in all, connecting and repeating included.

        Raises:
            FlussTieringError: INVALID_REQUEST for what is no address.
        """
        self._cluster = Cluster(ServerAddress.parse_list(bootstrap))
        self._credentials = credentials
        self._timeout = timeout
        self._connections: dict[ServerAddress, FlussConnection] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections; calls in flight fail."""
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    def call(self, call: Call[Any, ResultT], *, within: float | None = None) -> ResultT:
        """The result of a call, `within` so many seconds instead of the client's.

        Raises:
            FlussTieringError: what the call's maker says; UNAVAILABLE for a cluster that cannot be reached or is too
                slow, UNSUPPORTED_VERSION for one that does not serve the call, CORRUPT_DATA for another kind of server,
                `FlussServerError` for what Fluss answers.
        """
        time_limit = TimeLimit.of(self._timeout if within is None else within)
        tries = Retrying(
            stop=stop_after_delay(time_limit.seconds),
            wait=BACK_OFF,
            retry=retry_if_exception(lambda error: worth_repeating(call, error)),
            reraise=True,
        )
        result: ResultT = tries(self._once, call, time_limit)
        return result

    def _once(self, call: Call[Any, ResultT], time_limit: TimeLimit) -> ResultT:
        steps = self._cluster.steps(call)
        try:
            sent = next(steps)
            while True:
                try:
                    result = self._send(sent, time_limit)
                except Exception as error:  # noqa: BLE001 - the steps know what to do about it
                    sent = steps.throw(error)
                else:
                    sent = steps.send(result)
        except StopIteration as end:
            result_of_call: ResultT = end.value
            return result_of_call

    def _send(self, sent: Sent, time_limit: TimeLimit) -> Any:  # noqa: ANN401 - of whichever call it is
        connection = self._connection(sent.address, time_limit.to_connect())
        return connection.call(sent.call, time_limit.for_try(sent.call))

    def _connection(self, address: ServerAddress, timeout: float) -> FlussConnection:
        connection = self._connections.get(address)
        if connection is not None and connection.usable:
            return connection
        made = FlussConnection(address, credentials=self._credentials, timeout=timeout)
        with self._lock:
            other = self._connections.get(address)
            if other is not None and other.usable:
                made.close()
                return other
            self._connections[address] = made
        return made
