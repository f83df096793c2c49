"""Limits of health and reflection, which are not services of our own: nobody has to prove who they are for health."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import grpc
import grpc.aio

from fluss_tiering.model.errors import FlussTieringError, ThrottledError
from fluss_tiering.server.audit.call import address_of_peer, host_of
from fluss_tiering.server.security.authentication import Authenticated, Authentication, CallCredentials, refused_token
from fluss_tiering.server.security.rates import CallRates, Rate
from fluss_tiering.wire.errors import status_of_error, trailing_metadata_of_error

if TYPE_CHECKING:
    from fluss_tiering.server.rpc.handlers import Behaviour, Context, Handler

_HEALTH: Final = "/grpc.health.v1.Health/"
_REFLECTION: Final = "/grpc.reflection."
_PER_SECOND: Final = 50
_BURST: Final = 200
"""The number of calls to the health service from one address: many programs may ask at the same moment."""
_AT_ONCE: Final = 64
"""The number of calls of one address to the health service that are answered at once. Most are over at once."""
_REQUEST_S: Final = 2.0
_REQUEST_BYTES: Final = 1 << 10
_RETRY_MS: Final = 1000
_REFUSAL_DELAY_S: Final = 0.5
_LOOK_S: Final = 1.0
"""The time between two looks whether the caller of reflection is still known."""


class OpenServices(grpc.aio.ServerInterceptor):
    """Limits the calls to health by address, and answers reflection only to those who proved who they are.

    As with our own services, no request is read before the call is counted.

    Args:
        authentication: Finds out who calls.
        rates: Counts the calls of those who are known.
    """

    def __init__(self, authentication: Authentication, rates: CallRates) -> None:
        self._authentication = authentication
        self._rates = rates
        self._calls = Rate(_PER_SECOND, _BURST)
        self._running: Counter[str] = Counter()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler of a call, limited if it is one of these services."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None:
            return None
        if method.startswith(_HEALTH):
            return self._health(handler)
        return self._reflection(handler) if method.startswith(_REFLECTION) else handler

    def _health(self, handler: Handler) -> Handler:
        decode = cast("Callable[[bytes], Any]", handler.request_deserializer)

        async def unary(messages: AsyncIterator[bytes], context: Context) -> object:
            del messages
            with self._counted(await self._health_caller(context)):
                request = decode(await _request(context))
                return await cast("Behaviour", handler.unary_unary)(request, context)

        async def stream(messages: AsyncIterator[bytes], context: Context) -> None:
            del messages
            with self._counted(await self._health_caller(context)):
                request = decode(await _request(context))
                # Health writes into the context, until the client goes away.
                async with _newest_only(context) as answers:
                    await cast("Behaviour", handler.unary_stream)(request, cast("Context", answers))

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(stream, None, handler.response_serializer)
        return grpc.stream_unary_rpc_method_handler(unary, None, handler.response_serializer)

    async def _health_caller(self, context: Context) -> str:
        host = host_of(address_of_peer(context.peer() or ""))
        wait_s = self._calls.wait_s(host)
        if wait_s or self._running[host] >= _AT_ONCE:
            retry_ms = max(_RETRY_MS, round(wait_s * 1000))
            error = ThrottledError("too many calls to the health service come from this address", retry_ms)
            await _refuse(context, error)
        return host

    @contextmanager
    def _counted(self, host: str) -> Iterator[None]:
        self._running[host] += 1
        try:
            yield
        finally:
            self._running[host] -= 1
            if not self._running[host]:
                del self._running[host]

    def _reflection(self, handler: Handler) -> Handler:
        async def stream(requests: AsyncIterator[object], context: Context) -> AsyncIterator[object]:
            caller = await self._known(context)
            try:
                self._rates.begin(caller.identity)
            except ThrottledError as error:
                await _refuse(context, error)
            try:
                async for response in cast("Behaviour", handler.stream_stream)(
                    self._limited(requests, caller, context), context
                ):
                    yield response
            finally:
                self._rates.end(caller.identity)

        return grpc.stream_stream_rpc_method_handler(stream, handler.request_deserializer, handler.response_serializer)

    async def _known(self, context: Context) -> Authenticated:
        try:
            credentials = CallCredentials.of(context.invocation_metadata(), context.auth_context())
            return await self._authentication.authenticate(credentials)
        except FlussTieringError as refused:
            error = refused
        try:
            self._rates.check_unknown(host_of(address_of_peer(context.peer() or "")))
        except ThrottledError as throttled:
            error = throttled
            # A caller that waits for answers before it asks again is slowed down by this.
            await asyncio.sleep(_REFUSAL_DELAY_S)
        await _refuse(context, error)
        raise error  # never reached: the call is aborted

    async def _limited(
        self, requests: AsyncIterator[object], caller: Authenticated, context: Context
    ) -> AsyncIterator[object]:
        reader = aiter(requests)
        while True:
            async with _awaited(reader) as request:
                while not (await asyncio.wait([request], timeout=_LOOK_S))[0]:
                    if not caller.is_valid():
                        await _refuse(context, refused_token())
            if request.result() is None:
                return
            try:
                self._rates.check(caller.identity)
                if not caller.is_valid():
                    raise refused_token()
            except FlussTieringError as error:
                await _refuse(context, error)
            yield request.result()


@asynccontextmanager
async def _awaited(requests: AsyncIterator[object]) -> AsyncIterator[asyncio.Future[object]]:
    """Read the next request of a stream, None at its end, until the block is left."""
    following = asyncio.ensure_future(anext(requests, None))
    try:
        yield following
    finally:
        following.cancel()


class _Newest:
    """Takes the answers to a watcher of health, of which only the newest counts.

    Health writes them while it holds a lock, for which each change of the status waits, and each new watcher.
    """

    def __init__(self) -> None:
        self._newest: object = None
        self._is_new = asyncio.Event()

    async def write(self, message: object) -> None:
        """Take an answer."""
        self._newest = message
        self._is_new.set()

    async def send(self, context: Context) -> None:
        """Send what is newest, as fast as the client takes it."""
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            await context.write(self._newest)


@asynccontextmanager
async def _newest_only(context: Context) -> AsyncIterator[_Newest]:
    answers = _Newest()
    sending = asyncio.create_task(answers.send(context))
    try:
        yield answers
    finally:
        sending.cancel()
        # A client that went away has broken the sending off.
        await asyncio.gather(sending, return_exceptions=True)


async def _request(context: Context) -> bytes:
    try:
        async with asyncio.timeout(_REQUEST_S):
            message: object = await context.read()
    except TimeoutError:
        message = None
    if not isinstance(message, bytes) or len(message) > _REQUEST_BYTES:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected one small request at the beginning of the call")
    return message


async def _refuse(context: Context, error: FlussTieringError) -> None:
    await context.abort(status_of_error(error), error.message, trailing_metadata_of_error(error))
