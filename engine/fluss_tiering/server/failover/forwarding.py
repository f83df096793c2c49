"""Passes calls on to the active server as they are, bytes and all, and its answers back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc
import grpc.aio

from fluss_tiering.client.channel import MAX_MESSAGE_BYTES
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.rpc.roles import Context
from fluss_tiering.wire.errors import ERROR_CODE_METADATA_KEY

FORWARDED_KEY: Final = "fluss-tiering-forwarded"
"""Marks a call that was passed on, so that none goes round in a circle."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The caller itself tries again.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
# The connection's own, which each of the two has.
_OWN_METADATA: Final = ("grpc-", "user-agent", "content-type", "te", ":")

if TYPE_CHECKING:
    Call = grpc.aio.StreamStreamCall[bytes, bytes]


class ActiveServer:
    """A connection to the active server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.aio.insecure_channel(address, _OPTIONS)
        self._closed = False

    def call(
        self, method: str, requests: AsyncIterator[bytes] | Iterator[bytes], context: Context, timeout: float | None
    ) -> Call:
        """Begins to pass a call on."""
        metadata = [*_passed_on(context.invocation_metadata()), (FORWARDED_KEY, "1")]
        passed_on: Any = self._channel.stream_stream(method)
        call: Call = passed_on(requests, timeout=timeout, metadata=metadata)
        return call

    async def answers(self, call: Call, context: Context) -> AsyncIterator[bytes]:
        """Passes what the active server answers back, and what it says before and after.

        Raises:
            FlussTieringError: UNAVAILABLE when it cannot be reached, or is not the active one any more.
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
            raise self.unreachable("it is not the active one any more") from None
        finally:
            call.cancel()

    async def fail(self, error: grpc.aio.AioRpcError, context: Context) -> NoReturn:
        """Passes an error back as it is, or says that the active server cannot be reached."""
        trailing = _passed_on(error.trailing_metadata())
        if error.code() is grpc.StatusCode.UNAVAILABLE and ERROR_CODE_METADATA_KEY not in dict(trailing):
            raise self.unreachable(error.details() or "no answer") from error
        await context.abort(error.code(), error.details() or "", trailing)

    def unreachable(self, reason: str) -> FlussTieringError:
        """That there is no answer from the active server."""
        return FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"the active server at {self.address} cannot be reached from this one, which waits: {reason}; "
            "try again, within seconds it is back or this one takes over",
        )

    async def close(self) -> None:
        """Ends the calls that are under way."""
        self._closed = True
        await self._channel.close()


def _passed_on(metadata: Any) -> tuple[tuple[str, str | bytes], ...]:  # noqa: ANN401 - several kinds of pairs
    return tuple((key, value) for key, value in metadata or () if not key.startswith(_OWN_METADATA))
