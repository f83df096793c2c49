"""Forwards calls to the active server as bytes, and returns its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc
import grpc.aio

from fluss_tiering.client.channel import KEEPALIVE_OPTIONS, MAX_MESSAGE_BYTES
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.rpc.roles import Context
from fluss_tiering.wire.errors import ERROR_CODE_METADATA_KEY

FORWARDED_KEY: Final = "fluss-tiering-forwarded"
"""The metadata key of forwarded calls, so that no call is forwarded in a circle."""

_OPTIONS: Final = (
    *KEEPALIVE_OPTIONS,
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The client itself tries again.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_ENDED_UNREAD: Final = "Internal error from Core"
# Metadata of a connection, which each of the two connections has itself.
_OWN_METADATA: Final = ("grpc-", "user-agent", "content-type", "te", ":")

if TYPE_CHECKING:
    Call = grpc.aio.StreamStreamCall[bytes, bytes]


class ActiveServer:
    """A connection to the active server.

    Args:
        address: The "host:port" of the active server.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.aio.insecure_channel(address, _OPTIONS)
        self._closed = False

    def call(
        self, method: str, requests: AsyncIterator[bytes] | Iterator[bytes], context: Context, timeout: float | None
    ) -> Call:
        """Begin to forward a call.

        Args:
            method: The path of the method.
            requests: The serialized requests.
            context: The context of the call at this server.
            timeout: The time limit in seconds; None for no limit.
        """
        metadata = [*_passed_on(context.invocation_metadata()), (FORWARDED_KEY, "1")]
        passed_on: Any = self._channel.stream_stream(method)
        call: Call = passed_on(requests, timeout=timeout, metadata=metadata)
        return call

    async def answers(self, call: Call, context: Context) -> AsyncIterator[bytes]:
        """Yield the active server's responses, and return its metadata to the client.

        Raises:
            FlussTieringError: UNAVAILABLE if the server cannot be reached or is no longer the active one.
        """
        try:
            await context.send_initial_metadata(_passed_on(await call.initial_metadata()))
            async for response in call:
                yield response
            context.set_trailing_metadata(_passed_on(await call.trailing_metadata()))
        except grpc.aio.AioRpcError as error:
            await self.fail(error, context)
        except asyncio.CancelledError:
            if not self._closed:
                raise
            raise self.unreachable("it is no longer the active server") from None
        finally:
            call.cancel()

    async def fail(self, error: grpc.aio.AioRpcError, context: Context) -> NoReturn:
        """Abort the client's call with the active server's error, or raise that this server cannot be reached."""
        trailing = _passed_on(error.trailing_metadata())
        if self._closed:
            # gRPC answers such a call with one of several statuses.
            raise self.unreachable("it is no longer the active server") from error
        if gave_no_answer(error):
            raise self.unreachable(error.details() or "no answer") from error
        await context.abort(error.code(), error.details() or "", trailing)

    def unreachable(self, reason: str) -> FlussTieringError:
        """Return the error that the active server does not answer."""
        return FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"the active server at {self.address} cannot be reached from this standby server: {reason}; "
            "try again in a few seconds: by then it is back, or this server takes over",
        )

    async def close(self) -> None:
        """Close the connection, which ends the running calls."""
        self._closed = True
        await self._channel.close()


def gave_no_answer(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the error is one of the connection, and not an answer of the active server."""
    if ERROR_CODE_METADATA_KEY in dict(_passed_on(error.trailing_metadata())):
        return False
    # gRPC puts an error of its own in place of the status if the server ends a call before it has read the request.
    ended_unread = error.code() is grpc.StatusCode.INTERNAL and error.details() == _ENDED_UNREAD
    return ended_unread or error.code() is grpc.StatusCode.UNAVAILABLE


def _passed_on(metadata: Any) -> tuple[tuple[str, str | bytes], ...]:  # noqa: ANN401 - several kinds of pairs
    return tuple((key, value) for key, value in metadata or () if not key.startswith(_OWN_METADATA))
