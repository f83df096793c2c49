"""Wraps the handlers of our own services: requests are decoded, the leadership is checked, errors become statuses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.access import CallAccess
from fluss_tiering.server.edge.call_notes import present_call
from fluss_tiering.server.edge.failed_calls import abort
from fluss_tiering.server.edge.handlers import Passage, decoded, surrounded, wrapped
from fluss_tiering.server.edge.limits import CallLimits

_OURS: Final = "/fluss_tiering."
"""The beginning of the paths of our own services' methods."""

_CHECKS_ITSELF: Final = frozenset({"/fluss_tiering.v1.KvScan/ScanKv"})
"""Methods that check the leadership themselves, because a server that no longer leads answers some of their calls."""

if TYPE_CHECKING:
    from fluss_tiering.server.edge.handlers import Behaviour, Context, Handler


class OwnServicesInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of our own services, and leaves that of health as it is."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler of a call, wrapped if it is one of our own."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        return handler if handler is None or not method.startswith(_OURS) else self.wrap(handler, method)

    @abstractmethod
    def wrap(self, handler: Handler, method: str) -> Handler:
        """Return the handler of a method, wrapped."""


class ErrorInterceptor(OwnServicesInterceptor):
    """Turns errors into statuses.

    Args:
        present_check: Returns the check of the role that the server has. A check raises the error that a call is
            refused with. It is called before the call and for each message of a stream, in both directions. It is also
            called when a call fails: the failures of a server that no longer leads come from that.
        access: Refuses callers that may not make a call.
    """

    def __init__(self, present_check: Callable[[], Callable[[], None]], limits: CallLimits, access: CallAccess) -> None:
        self._present_check = present_check
        self._access = access
        self._limits = limits

    def wrap(self, handler: Handler, method: str) -> Handler:
        """Return a handler that decodes requests and turns errors into statuses."""
        handler = self._access.wrap(self._limits.wrap(_decoding(handler, method, self._limits)), method)
        # The check belongs to the call, which goes on with the role that it began with.
        check = _unchecked if method in _CHECKS_ITSELF else self._present_check()

        @asynccontextmanager
        async def around(passage: Passage, context: Context) -> AsyncIterator[None]:
            if handler.request_streaming:
                passage.requests = _checked(passage.requests, check)
            passage.on_response = lambda _: check()
            try:
                check()
                yield
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - the answer must not show an unexpected error
                await abort(context, method, _cause(error, check))

        return surrounded(handler, around)


def _unchecked() -> None:
    """Do nothing: the method checks the leadership itself."""


def _decoding(handler: Handler, method: str, limits: CallLimits) -> Handler:
    """Return a handler that decodes requests itself: gRPC would answer INTERNAL or UNKNOWN to an undecodable request.

    It may also answer with bytes, if they are faster to make than a message.
    """
    decode = handler.request_deserializer
    if decode is None:
        return handler

    def request_of(message: bytes) -> object:
        limits.check_size(message, method)
        request = decoded(decode, message, method)
        if (call := present_call()) is not None:
            call.note_request(request)
        return request

    async def requests_of(messages: AsyncIterator[bytes]) -> AsyncIterator[object]:
        async for message in messages:
            yield request_of(message)

    def streaming(stream: Behaviour) -> Behaviour:
        if handler.request_streaming:
            return lambda messages, context: stream(requests_of(messages), context)
        return lambda message, context: stream(request_of(message), context)

    return wrapped(
        handler,
        lambda unary: lambda message, context: unary(request_of(message), context),
        streaming,
        takes_bytes=True,
    )


def _cause(error: Exception, check: Callable[[], None]) -> Exception:
    """Return why a call failed: it is the role of the server, if the check fails too."""
    if isinstance(error, FlussTieringError) and error.code is ErrorCode.UNAVAILABLE:
        return error
    try:
        check()
    except FlussTieringError as refusal:
        return refusal
    return error


async def _checked(requests: AsyncIterator[object], check: Callable[[], None]) -> AsyncIterator[object]:
    async for request in requests:
        check()
        yield request
