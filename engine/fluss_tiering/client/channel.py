"""Channels to the tiering server: their options, the one of several servers that calls go to, and calls made again.

gRPC does not work in a forked process once it was used before the fork. Calls in such a process would never return: its
own handling of `fork` is turned off by `fork_handling`. They are refused instead.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from fluss_tiering.fork_handling import IS_HANDLED
from fluss_tiering.model.errors import SERVER_AWAY, ErrorCode, FlussTieringError, ThrottledError

MAX_MESSAGE_BYTES: Final = 64 << 20
"""A message carries a write request of a few MiB, or whole log batches."""

# If one of these calls were repeated, it could do its work twice: the connection may break after the work is done.
_NOT_REPEATABLE: Final = (
    {"service": "fluss_tiering.v1.Tables", "method": "CreateTable"},
    {"service": "fluss_tiering.v1.Tables", "method": "DropTable"},
    {"service": "fluss_tiering.v1.Tables", "method": "DropPartition"},
    {"service": "fluss_tiering.v1.Tables", "method": "WriteRows"},
)
# If gRPC repeats a stream and finds no server, it tells the status and never ends the wait for the first message: a
# reader then waits for ever, and no time limit ends it. Callers open a stream again themselves.
STREAMS: Final = (
    {"service": "fluss_tiering.v1.LakeTiering", "method": "WatchTieringStatuses"},
    {"service": "fluss_tiering.v1.Tables", "method": "FetchKvSnapshot"},
    {"service": "fluss_tiering.v1.Tables", "method": "FetchLog"},
)
_SERVICE_CONFIG: Final = json.dumps(
    {
        "methodConfig": [
            {"name": [*_NOT_REPEATABLE, *STREAMS]},
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "0.2s",
                    "maxBackoff": "3s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            },
        ]
    }
)
KEEPALIVE_OPTIONS: Final = (
    # A connection that carries nothing any more, because its other end or a machine in between is gone without a word,
    # is given up after 13 s, and the next call opens another one. Without pings, calls would use it for a quarter of an
    # hour. A connection without calls is looked after too, so that the next call finds it whole.
    ("grpc.keepalive_time_ms", 8_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
CHANNEL_OPTIONS: Final = (
    *KEEPALIVE_OPTIONS,
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A client that waits for a server to restart finds it within two seconds. gRPC's own limit is two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
RETRY_OPTIONS: Final = (("grpc.service_config", _SERVICE_CONFIG), ("grpc.enable_retries", 1))
"""For a server without others. A client of several goes on at the next one instead."""

NOT_CONNECTED: Final = "failed to connect"
"""A part of gRPC's texts for a call that was not sent, since there was no connection."""

_SPREAD: Final = 1.5
_NO_SERVER_S: Final = 1.0
"""How long a client waits before it asks all servers again which one is active."""

_user: int | None = None
"""The process that was the first to use gRPC. A forked process inherits the number."""

Metadata = tuple[tuple[str, str], ...]
"""What goes with a call beside its request."""


class FollowedChannel:
    """Makes each call on the channel to the server that was active last. Generated stubs use it like gRPC's channels.

    Calls raise FlussTieringError with INVALID_REQUEST in a process that was forked after the first one, and the errors
    of `metadata`.

    Args:
        channels: A channel to each address, all blocking or all asyncio.
        metadata: Returns the metadata of each call. The interceptors of gRPC differ for both kinds of channels.
    """

    def __init__(self, channels: Sequence[Any], metadata: Callable[[], Metadata]) -> None:
        self._channels = channels
        self._metadata = metadata
        self._present = 0

    @property
    def count(self) -> int:
        """The number of channels."""
        return len(self._channels)

    def unary_unary(self, *method: Any, **coders: Any) -> _Call:
        """Return the calls of a method."""
        return _Call(self, [each.unary_unary(*method, **coders) for each in self._channels])

    def unary_stream(self, *method: Any, **coders: Any) -> _Call:
        """Return the calls of a method."""
        return _Call(self, [each.unary_stream(*method, **coders) for each in self._channels])

    def stream_unary(self, *method: Any, **coders: Any) -> _Call:
        """Return the calls of a method."""
        return _Call(self, [each.stream_unary(*method, **coders) for each in self._channels])

    def stream_stream(self, *method: Any, **coders: Any) -> _Call:
        """Return the calls of a method."""
        return _Call(self, [each.stream_stream(*method, **coders) for each in self._channels])

    def call(self, calls: Sequence[Any]) -> tuple[Any, Metadata]:
        """Return the call of the present channel, and its metadata."""
        require_own_process()
        return calls[self._present], self._metadata()

    def follow(self, error: FlussTieringError) -> bool:
        """Make further calls on the next channel, if an error says that a server does not serve.

        Returns:
            Whether the call may be made again there: a server that waits has refused it, or it was not sent.
        """
        if error.code not in SERVER_AWAY or self.count == 1:
            return False
        self._present = (self._present + 1) % self.count
        return error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER or NOT_CONNECTED in error.message

    def close(self) -> None:
        """Close blocking channels."""
        for each in self._channels:
            each.close()

    async def aclose(self) -> None:
        """Close asyncio channels."""
        for each in self._channels:
            await each.close()


class _Call:
    def __init__(self, channel: FollowedChannel, calls: Sequence[Any]) -> None:
        self._channel = channel
        self._calls = calls

    def __call__(self, request: object, **options: Any) -> Any:  # noqa: ANN401 - an answer, a stream or an awaitable
        call, metadata = self._channel.call(self._calls)
        return call(request, metadata=metadata, **options)

    def future(self, request: object, **options: Any) -> Any:  # noqa: ANN401 - grpc.Future is generic in stubs only
        call, metadata = self._channel.call(self._calls)
        return call.future(request, metadata=metadata, **options)


class Tries:
    """The tries of one call, as long as nothing of it was done. Such a call may be repeated, whatever it does.

    Args:
        channel: The channel of the call.
        timeout: How long the call may be repeated, in seconds.
    """

    def __init__(self, channel: FollowedChannel, timeout: float) -> None:
        self._channel = channel
        self._deadline = time.monotonic() + timeout
        self._left = channel.count
        self._waiting: FlussTieringError | None = None

    def pause_s(self, error: FlussTieringError) -> float:
        """Return how long to wait before the call is made again, in seconds.

        Raises:
            FlussTieringError: The error, or that of a server that waits to take over, if the call is not made again.
        """
        if isinstance(error, ThrottledError):
            # Callers that were refused together do not come back together.
            return self._within(error.retry_after_ms / 1000 * random.uniform(1, _SPREAD), error)  # noqa: S311
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._waiting = error
        if not self._channel.follow(error):
            raise error
        self._left -= 1
        if self._left:
            return 0.0
        if self._waiting is None:
            # None of the servers can be reached.
            raise error
        waiting, self._left, self._waiting = self._waiting, self._channel.count, None
        return self._within(_NO_SERVER_S, waiting)

    def _within(self, pause_s: float, error: FlussTieringError) -> float:
        if time.monotonic() + pause_s > self._deadline:
            raise error
        return pause_s


def forked() -> bool:
    """Return whether a process that this one was forked from has used gRPC, so that it does not work here."""
    return _user not in (None, os.getpid()) and not IS_HANDLED


def require_own_process() -> None:
    """Check that gRPC works in this process, which uses it now.

    Raises:
        FlussTieringError: INVALID_REQUEST if it was forked from one that has used gRPC.
    """
    global _user  # noqa: PLW0603 - one for the process, as gRPC's own state
    if forked():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"this process {os.getpid()} was forked from process {_user}, which had used the client, so that gRPC does "
            "not work here: expected each process to make its first client after the fork; or start processes in "
            'another way, for example with multiprocessing.get_context("spawn")',
        )
    _user = _user or os.getpid()
