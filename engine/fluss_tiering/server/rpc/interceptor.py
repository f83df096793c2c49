"""Turns errors of handlers into gRPC statuses. An unexpected error becomes INTERNAL; only the log tells it in full."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, NoReturn

import grpc
import grpc.aio
import structlog

from fluss_tiering.model.error_text import header_text
from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError
from fluss_tiering.model.tiering import MAX_SENT_ERROR_CHARS
from fluss_tiering.server.audit.call import CallNotes, present_call, request_id_metadata
from fluss_tiering.server.rpc.access import CallAccess
from fluss_tiering.server.rpc.handlers import decoded, wrapped
from fluss_tiering.server.rpc.limits.calls import LimitedCalls
from fluss_tiering.wire.errors import status_of_error, trailing_metadata_of, trailing_metadata_of_error

_OURS: Final = "/fluss_tiering."
"""The beginning of the paths of our own services' methods."""

_CHECKS_ITSELF: Final = frozenset({"/fluss_tiering.v1.KvScan/ScanKv"})
"""Methods that check the leadership themselves, because a server that no longer leads answers some of their calls."""

logger = structlog.get_logger(__name__)

if TYPE_CHECKING:
    from fluss_tiering.server.rpc.handlers import Behaviour, Context, Handler


class OwnServicesInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of our own services, and leaves those of health and reflection as they are."""

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
        limits: The limits of calls.
        access: Refuses callers that may not make a call.
    """

    def __init__(
        self, present_check: Callable[[], Callable[[], None]], limits: LimitedCalls, access: CallAccess
    ) -> None:
        self._present_check = present_check
        self._access = access
        self._limited = limits

    def wrap(self, handler: Handler, method: str) -> Handler:
        """Return a handler that decodes requests and turns errors into statuses."""
        handler = self._access.wrap(self._limited.wrap(_decoding(handler, method), method), method)
        # The check belongs to the call, which goes on with the role that it began with.
        check = _unchecked if method in _CHECKS_ITSELF else self._present_check()
        if handler.request_streaming:
            handler = wrapped(handler, lambda unary: unary, lambda stream: _checked(stream, check))
        return wrapped(
            handler,
            lambda unary: _unary(unary, method, check),
            lambda stream: _streaming(stream, method, check),
        )


def _unchecked() -> None:
    """Do nothing: the method checks the leadership itself."""


def _decoding(handler: Handler, method: str) -> Handler:
    """Return a handler that decodes requests itself: gRPC would answer INTERNAL or UNKNOWN to an undecodable request.

    It may also answer with bytes, if they are faster to make than a message.
    """
    decode = handler.request_deserializer
    if decode is None:
        return handler

    def request_of(message: bytes) -> object:
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


def _unary(behaviour: Behaviour, method: str, check: Callable[[], None]) -> Behaviour:
    async def handle(request: object, context: Context) -> object:
        try:
            check()
            return await behaviour(request, context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - the answer must not show an unexpected error
            await _abort(context, method, _cause(error, check))

    return handle


def _cause(error: Exception, check: Callable[[], None]) -> Exception:
    """Return why a call failed: it is the role of the server, if the check fails too."""
    if isinstance(error, FlussTieringError) and error.code is ErrorCode.UNAVAILABLE:
        return error
    try:
        check()
    except FlussTieringError as refusal:
        return refusal
    return error


def _streaming(behaviour: Behaviour, method: str, check: Callable[[], None]) -> Behaviour:
    async def handle(request: object, context: Context) -> AsyncIterator[object]:
        try:
            check()
            async for response in behaviour(request, context):
                check()
                yield response
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - the answer must not show an unexpected error
            await _abort(context, method, _cause(error, check))

    return handle


def _checked(behaviour: Behaviour, check: Callable[[], None]) -> Behaviour:
    async def requests_of(requests: AsyncIterator[object]) -> AsyncIterator[object]:
        async for request in requests:
            check()
            yield request

    return lambda requests, context: behaviour(requests_of(requests), context)


def _origin(call: CallNotes | None) -> dict[str, str]:
    """Return what the log says of a caller whose credentials are not valid: nobody else can tell who that was."""
    if call is None or call.identity is not None:
        return {}
    told = {"token_id": call.token_id, "reason": call.reason, "peer": call.peer, "forwarded_for": call.forwarded_for}
    return {key: value for key, value in told.items() if value is not None}


async def _abort(context: Context, method: str, error: Exception) -> NoReturn:
    call = present_call()
    request_id = None if call is None else call.request_id
    status, metadata = grpc.StatusCode.INTERNAL, trailing_metadata_of(ErrorCode.UNKNOWN)
    if isinstance(error, FlussTieringError):
        code, message = error.code, error.message
        status, metadata = status_of_error(error), trailing_metadata_of_error(error)
        # NOT_FOUND is a normal answer: clients ask for a thing to find out whether it exists.
        # Calls of which there are too many are counted in lines of their own.
        quiet = status is grpc.StatusCode.NOT_FOUND or isinstance(error, ThrottledError)
        level = logging.DEBUG if quiet else logging.INFO
        logger.log(
            level, "call refused", method=method, code=code.value, error=message, request_id=request_id, **_origin(call)
        )
    else:
        code, message = ErrorCode.UNKNOWN, f"the server failed in {method.rpartition('/')[2]}: see its log"
        logger.error("call failed", method=method, request_id=request_id, exc_info=error)
    if call is not None:
        call.code = code
    await context.abort(status, header_text(message, MAX_SENT_ERROR_CHARS), (*metadata, *request_id_metadata()))
