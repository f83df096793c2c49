"""Handlers of gRPC methods, wrapped whichever side streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

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
        handler: The handler.
        unary: Wraps the behaviour of a method with one request and one response.
        streaming: Wraps the behaviour of a method that takes or answers a stream.
        takes_bytes: Whether the wrapped behaviour takes requests as bytes; then it may answer with bytes too.
    """
    # Which of the four behaviours is set follows from which side streams.
    coders = handler.request_deserializer, handler.response_serializer
    if takes_bytes:
        coders = None, _passing_bytes(handler.response_serializer)
    if handler.request_streaming:
        behaviour = streaming(cast("Behaviour", handler.stream_stream))
        return grpc.stream_stream_rpc_method_handler(behaviour, *coders)
    if handler.response_streaming:
        behaviour = streaming(cast("Behaviour", handler.unary_stream))
        return grpc.unary_stream_rpc_method_handler(behaviour, *coders)
    return grpc.unary_unary_rpc_method_handler(unary(cast("Behaviour", handler.unary_unary)), *coders)


def _passing_bytes(serialize: Callable[[Any], bytes] | None) -> Callable[[Any], bytes] | None:
    if serialize is None:
        return None
    return lambda response: response if isinstance(response, bytes) else serialize(response)
