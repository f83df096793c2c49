"""An asyncio connection to one Fluss server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Self, TypeVar

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.storage.fluss.rpc.address import ServerAddress
from fluss_tiering.storage.fluss.rpc.api_keys import ServedApis
from fluss_tiering.storage.fluss.rpc.call import Call
from fluss_tiering.storage.fluss.rpc.correlation import (
    CLOSED,
    RequestCorrelator,
    lost,
    no_greeting,
    silent,
    unreachable,
)
from fluss_tiering.storage.fluss.rpc.frames import (
    MAX_FIRST_FRAME_BYTES,
    MAX_FRAME_BYTES,
    PREFIX_BYTES,
    decode_response,
    encode_request,
    frame_length,
)
from fluss_tiering.storage.fluss.rpc.handshake import Credentials, handshake

ResultT = TypeVar("ResultT")


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
