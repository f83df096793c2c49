"""The options of a channel to the tiering server, and the errors of its calls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, Protocol

import grpc

from fluss_tiering.client.target import DEFAULT_PORT
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.version import __version__
from fluss_tiering.wire.errors import code_from_metadata, code_from_status

_TOO_LARGE: Final = "larger than max"
"""A part of gRPC's text for a message that is too large. Such a call has the status of a server that throttles."""

_NOT_GRPC: Final = ("Failed parsing HTTP/2", "Trying to connect an http1.x server")
"""Parts of gRPC's texts for a program that accepts connections and does not speak gRPC."""

MAX_MESSAGE_BYTES: Final = 64 << 20
"""A message carries a write request of a few MiB, or whole log batches."""

# If one of these calls were repeated, it could do its work twice: the connection may break after the work is done.
_NOT_REPEATABLE: Final = (
    {"service": "fluss_tiering.v1.Tables", "method": "CreateTable"},
    {"service": "fluss_tiering.v1.Tables", "method": "DropTable"},
    {"service": "fluss_tiering.v1.Tables", "method": "DropPartition"},
    {"service": "fluss_tiering.v1.Tables", "method": "WriteRows"},
)
_SERVICE_CONFIG: Final = json.dumps(
    {
        "methodConfig": [
            {"name": _NOT_REPEATABLE},
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
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.enable_retries", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A client that waits for a server to restart finds it within two seconds. gRPC's own limit is two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


class FailedCall(Protocol):
    """The methods that the errors of blocking calls and of asyncio calls have in common."""

    def code(self) -> grpc.StatusCode:
        """Return the status."""
        ...

    def details(self) -> str | None:
        """Return the text of the status."""
        ...

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return the metadata that follows the answer."""
        ...


def error_of(call: FailedCall, target: str, timeout: float) -> FlussTieringError:
    """Return the error that a failed call stands for.

    Args:
        call: The error of gRPC.
        target: The address of the server, and how it is called besides.
        timeout: The deadline of the call, in seconds.
    """
    status, details = call.code(), call.details() or "no details"
    code = code_from_metadata(call.trailing_metadata())
    if code is not None:
        return FlussTieringError(code, details)
    if status is grpc.StatusCode.UNAVAILABLE and any(text in details for text in _NOT_GRPC):
        message = (
            f"cannot reach the tiering server at {target}: something else than a tiering server answers at this port, "
            f"perhaps the metrics port: use the port of the server, which is usually {DEFAULT_PORT} ({details})"
        )
    elif status is grpc.StatusCode.UNAVAILABLE:
        message = (
            f"cannot reach the tiering server at {target}: {details}; "
            "start it with `fluss-tiering serve` or check the address"
        )
    elif status in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        # A call whose error is read here was cancelled by its deadline and by nothing else.
        return FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"the tiering server at {target} did not answer within {timeout:g} s: it may be overloaded or stopped; "
            "look at its log and try again",
        )
    elif status is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        message = (
            f"a message to or from the tiering server at {target} is too large ({details}): ask for less at once, for "
            "example for one table by its name, or start the server with a larger max.message.bytes"
        )
    elif status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return FlussTieringError(
            ErrorCode.UNAVAILABLE, f"the tiering server at {target} has too much to do ({details}): try again later"
        )
    elif status is grpc.StatusCode.UNIMPLEMENTED:
        message = (
            f"{target} does not serve this call: it is not a tiering server, or it is older than this "
            f"client, which is fluss-tiering {__version__} ({details})"
        )
    else:
        message = f"the tiering server at {target} failed with {status.name}: {details}"
    return FlussTieringError(code_from_status(status), message)
