"""A connection to one Fluss server: a blocking one, and one for the server's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from concurrent.futures import Future
from typing import Any, Final, Self, TypeVar

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.storage.fluss.rpc.api_keys import ServedApis
from fluss_tiering.storage.fluss.rpc.call import Call, ServerAddress
from fluss_tiering.storage.fluss.rpc.connection_steps import (
    CLOSED,
    MAX_FIRST_FRAME_BYTES,
    MAX_FRAME_BYTES,
    PREFIX_BYTES,
    Credentials,
    RequestCorrelator,
    decode_response,
    encode_request,
    frame_length,
    handshake,
    lost,
    no_greeting,
    silent,
    unreachable,
)

ResultT = TypeVar("ResultT")

_STALL_S: Final = 30.0
"""A peer that takes or sends nothing for this long in the middle of a frame counts as gone."""


class FlussConnection:
    """One socket on which many threads send requests. A thread of the connection reads the answers, in any order.

    Raises:
        FlussConnectionError: The server is not there, hung up, or was silent for `timeout` seconds.
        FlussTieringError: CORRUPT_DATA if the server speaks another protocol.
        FlussServerError: The server refused the credentials.
    """

    def __init__(
        self, address: ServerAddress, *, credentials: Credentials | None = None, timeout: float = 10.0
    ) -> None:
        """Connect and do the handshake within `timeout` seconds."""
        self._name = str(address)
        self._socket = _connect(address, timeout)
        try:
            self.served = self._shake_hands(credentials, timeout)
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(_STALL_S)
        self._correlator: RequestCorrelator[Future[memoryview]] = RequestCorrelator(self._name, self.served)
        self._sending = threading.Lock()
        self._ended: str | None = None
        threading.Thread(target=self._read, name=f"fluss-{self._name}", daemon=True).start()

    @property
    def usable(self) -> bool:
        """Whether the connection has not ended."""
        return self._ended is None

    def call(self, call: Call[Any, ResultT], timeout: float) -> ResultT:
        """Send a call and return its result. An answer that takes longer than `timeout` seconds ends the connection.

        Raises:
            FlussTieringError: UNSUPPORTED_VERSION, before anything is sent, if the server does not serve the call; the
                errors that the call finds in its answer.
            FlussServerError: The server answered with an error.
            FlussConnectionError: The connection broke, or the server was too slow.
        """
        answered: Future[memoryview] = Future()
        frame = self._correlator.register(call, answered)
        self._send(frame)
        try:
            message = answered.result(timeout)
        except TimeoutError as error:
            # A server that answers late counts as gone, so that other threads do not wait for it any longer.
            failure = silent(self._name, call.api.name, timeout)
            self._end(failure.message)
            raise failure from error
        return call.answer(message)

    def close(self) -> None:
        """End the connection. Calls in flight fail."""
        self._end(CLOSED)

    def _shake_hands(self, credentials: Credentials | None, timeout: float) -> ServedApis:
        deadline = time.monotonic() + timeout
        steps = handshake(credentials, self._name)
        try:
            call = next(steps)
            while True:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                self._socket.sendall(
                    encode_request(call.api, call.api.versions[0], 0, call.request.SerializeToString())
                )
                response = decode_response(self._frame(deadline, MAX_FIRST_FRAME_BYTES), self._name)
                if response.error is not None:
                    raise response.error
                call = steps.send(call.answer(response.message))
        except StopIteration as end:
            served: ServedApis = end.value
            return served
        except TimeoutError as error:
            raise no_greeting(self._name, f"silence for {timeout:.3g} s") from error
        except (OSError, EOFError) as error:
            raise no_greeting(self._name, str(error) or "it hung up") from error

    def _send(self, frame: bytes) -> None:
        try:
            with self._sending:
                if self._ended is not None:
                    # Nothing was sent, so the request cannot have done its work.
                    raise unreachable(self._name, self._ended)
                self._socket.sendall(frame)
        except OSError as error:
            self._end(str(error))
            raise lost(self._name, str(error)) from error

    def _read(self) -> None:
        why = "it hung up"
        try:
            while True:
                self._correlator.deliver(decode_response(self._frame(None, MAX_FRAME_BYTES), self._name))
        except (OSError, EOFError, FlussTieringError) as error:
            why = str(error) or why
        finally:
            self._end(why)
            # Only the reading thread closes the socket: if another one did, the descriptor could belong to another
            # connection before this thread reads from it again.
            self._socket.close()

    def _frame(self, deadline: float | None, limit: int) -> bytearray:
        """Return the next frame without its length. Without a deadline, wait for the frame's start without limit."""
        prefix = self._exactly(PREFIX_BYTES, deadline, patient=deadline is None)
        return self._exactly(frame_length(prefix, self._name, limit), deadline)

    def _exactly(self, size: int, deadline: float | None, *, patient: bool = False) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        received = 0
        while received < size:
            if deadline is not None:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                count = self._socket.recv_into(view[received:])
            except TimeoutError:
                if patient and received == 0 and self._ended is None:
                    continue
                raise
            if count == 0:
                raise EOFError("it hung up")
            received += count
        return data

    def _end(self, why: str) -> None:
        if self._ended is None:
            self._ended = why
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._correlator.fail_all(self._ended)


def _connect(address: ServerAddress, timeout: float) -> socket.socket:
    try:
        connected = socket.create_connection((address.host, address.port), timeout)
    except (OSError, UnicodeError) as error:
        raise unreachable(str(address), error) from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


class AsyncFlussConnection:
    """Does what `FlussConnection` does, with the same errors, in the event loop that it is opened in.

    `open` makes a connection.
    """

    def __init__(
        self, address: ServerAddress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, served: ServedApis
    ) -> None:
        """Take over a connection whose handshake is done."""
        self._name = str(address)
        self._reader = reader
        self._writer = writer
        self.served = served
        self._correlator: RequestCorrelator[asyncio.Future[memoryview]] = RequestCorrelator(self._name, served)
        self._ended: str | None = None
        self._reading = asyncio.create_task(self._read(), name=f"fluss-{self._name}")

    @classmethod
    async def open(
        cls, address: ServerAddress, *, credentials: Credentials | None = None, within: float = 10.0
    ) -> Self:
        """Connect and do the handshake, each within this many seconds. Errors are those of `FlussConnection`."""
        name = str(address)
        try:
            async with asyncio.timeout(within):
                reader, writer = await asyncio.open_connection(address.host, address.port)
        except TimeoutError as error:
            raise unreachable(name, f"silence for {within:.3g} s") from error
        except (OSError, UnicodeError) as error:
            raise unreachable(name, error) from error
        try:
            async with asyncio.timeout(within):
                served = await _shake_hands(name, reader, writer, credentials)
        except TimeoutError as error:
            writer.close()
            raise no_greeting(name, f"silence for {within:.3g} s") from error
        except (OSError, EOFError) as error:
            writer.close()
            raise no_greeting(name, _why(error)) from error
        except BaseException:
            writer.close()
            raise
        return cls(address, reader, writer, served)

    @property
    def usable(self) -> bool:
        """Whether the connection has not ended."""
        return self._ended is None

    async def call(self, call: Call[Any, ResultT], within: float) -> ResultT:
        """Send a call and return its result, as `FlussConnection.call` does; `within` is the timeout in seconds."""
        if self._ended is not None:
            raise unreachable(self._name, self._ended)
        answered: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._writer.write(self._correlator.register(call, answered))
        try:
            async with asyncio.timeout(within):
                await self._writer.drain()
                message = await answered
        except TimeoutError as error:
            failure = silent(self._name, call.api.name, within)
            self._end(failure.message)
            raise failure from error
        except OSError as error:
            self._end(str(error))
            raise lost(self._name, str(error)) from error
        finally:
            if answered.done() and not answered.cancelled():
                answered.exception()  # Marks the error as seen, also if `drain` failed first.
        return call.answer(message)

    async def close(self) -> None:
        """End the connection. Calls in flight fail."""
        self._end(CLOSED)
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading

    async def _read(self) -> None:
        why = "it hung up"
        try:
            while True:
                frame = await _frame(self._reader, self._name, MAX_FRAME_BYTES)
                self._correlator.deliver(decode_response(frame, self._name))
        except (OSError, EOFError, FlussTieringError) as error:
            why = _why(error)
        finally:
            self._end(why)

    def _end(self, why: str) -> None:
        if self._ended is None:
            self._ended = why
        self._correlator.fail_all(self._ended)
        self._writer.transport.abort()


async def _shake_hands(
    name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: Credentials | None
) -> ServedApis:
    steps = handshake(credentials, name)
    try:
        call = next(steps)
        while True:
            writer.write(encode_request(call.api, call.api.versions[0], 0, call.request.SerializeToString()))
            await writer.drain()
            response = decode_response(await _frame(reader, name, MAX_FIRST_FRAME_BYTES), name)
            if response.error is not None:
                raise response.error
            call = steps.send(call.answer(response.message))
    except StopIteration as end:
        served: ServedApis = end.value
        return served


async def _frame(reader: asyncio.StreamReader, name: str, limit: int) -> bytes:
    return await reader.readexactly(frame_length(await reader.readexactly(PREFIX_BYTES), name, limit))


def _why(error: Exception) -> str:
    return "it hung up" if isinstance(error, asyncio.IncompleteReadError) else str(error) or "it hung up"
