"""Handlers of gRPC methods, wrapped whichever side streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

if TYPE_CHECKING:
    # These classes are generic only in their type stubs, not at run time.
    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]
    # The result depends on the kind of method: an awaitable or an async iterator.
    Behaviour = Callable[[Any, Context], Any]


def wrapped(
    handler: Handler,
    unary: Callable[[Behaviour], Behaviour],
    streaming: Callable[[Behaviour], Behaviour],
    *,
    takes_bytes: bool = False,
) -> Handler:
    """Return a handler with its behaviour wrapped.

    Args:
        unary: Wraps the behaviour of a method with one response.
        streaming: Wraps the behaviour of a method that answers with a stream.
        takes_bytes: Whether the wrapped behaviour takes requests as bytes; then it may answer with bytes too.
    """
    # Which of the four behaviours is set follows from which side streams.
    coders = handler.request_deserializer, handler.response_serializer
    if takes_bytes:
        coders = None, _passing_bytes(handler.response_serializer)
    if handler.request_streaming and handler.response_streaming:
        behaviour = streaming(cast("Behaviour", handler.stream_stream))
        return grpc.stream_stream_rpc_method_handler(behaviour, *coders)
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler(unary(cast("Behaviour", handler.stream_unary)), *coders)
    if handler.response_streaming:
        behaviour = streaming(cast("Behaviour", handler.unary_stream))
        return grpc.unary_stream_rpc_method_handler(behaviour, *coders)
    return grpc.unary_unary_rpc_method_handler(unary(cast("Behaviour", handler.unary_unary)), *coders)


@dataclass(slots=True)
class Passage:
    """What passes through a handler that is surrounded.

    Attributes:
        requests: The request; an iterator if there may be many.
        on_response: Called with each response of a stream before it is sent.
    """

    requests: Any
    on_response: Callable[[object], None] = lambda _: None


def surrounded(handler: Handler, around: Callable[[Passage, Context], AbstractAsyncContextManager[None]]) -> Handler:
    """Return a handler whose calls run in a block.

    Args:
        around: Returns the block. It may replace what passes through, and sees the error of a call that fails.
    """

    def unary(behaviour: Behaviour) -> Behaviour:
        async def handle(requests: object, context: Context) -> object:
            passage = Passage(requests)
            async with around(passage, context):
                return await behaviour(passage.requests, context)

        return handle

    def streaming(behaviour: Behaviour) -> Behaviour:
        async def handle(requests: object, context: Context) -> AsyncIterator[object]:
            passage = Passage(requests)
            async with around(passage, context):
                async for response in behaviour(passage.requests, context):
                    passage.on_response(response)
                    yield response

        return handle

    return wrapped(handler, unary, streaming)


def decoded(decode: Callable[[bytes], Any], message: bytes, method: str) -> Any:  # noqa: ANN401 - the message of the method
    """Return the request that a message holds.

    Args:
        decode: Decodes messages of the method.

    Raises:
        FlussTieringError: INVALID_REQUEST if the message cannot be decoded.
    """
    try:
        return decode(message)
    except DecodeError as error:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the request of {method.rpartition('/')[2]} cannot be decoded ({error}): expected a message as the "
            "server's protos define it",
        ) from error


def _passing_bytes(serialize: Callable[[Any], bytes] | None) -> Callable[[Any], bytes] | None:
    if serialize is None:
        return None
    return lambda response: response if isinstance(response, bytes) else serialize(response)


def status_of_call(context: Any, failed: BaseException | None) -> str:  # noqa: ANN401 - see Context
    """Return the name of the status of a call that has ended.

    Args:
        failed: What ended the call; None if it was answered.
    """
    if failed is None:
        return grpc.StatusCode.OK.name
    code = context.code()
    for status in grpc.StatusCode:
        if status is not grpc.StatusCode.OK and code in (status, status.value[0]):
            return status.name
    # No status was set: the client went away, or the server stops.
    return grpc.StatusCode.CANCELLED.name
