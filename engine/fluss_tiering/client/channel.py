"""How a channel to the tiering server is set up, and what its failures say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, Protocol

import grpc

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.wire.errors import code_from_metadata, code_from_status

DEFAULT_PORT: Final = 9133
"""Beside Fluss's own 9123, and clear of 9124 to 9126, which its Docker set-up publishes for tablet servers."""

DEFAULT_TARGET: Final = f"127.0.0.1:{DEFAULT_PORT}"

_TOO_LARGE: Final = "larger than max"
"""In gRPC's own text for a message beyond the limit, whose status is that of a server that throttles."""

MAX_MESSAGE_BYTES: Final = 64 << 20
"""A message carries a write request of a few MiB, or log batches, which are kept whole."""

# Repeating these could do their work twice: the connection may break after the server did it.
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
CHANNEL_OPTIONS: Final = (
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.enable_retries", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A client that waits through a server's restart finds it within a second or two, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


def checked_target(target: str) -> str:
    """The address, as gRPC takes it: HOST:PORT, or a resolver's scheme before that.

    Raises:
        FlussTieringError: INVALID_REQUEST where host or port is missing, of which gRPC would tell only its own text.
    """
    host, _, port = target.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or re.search(r"\s", host):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the tiering server's address is {target!r}: expected HOST:PORT, for example {DEFAULT_TARGET}",
        )
    return target


class FailedCall(Protocol):
    """What the errors of blocking and of asyncio calls have in common."""

    def code(self) -> grpc.StatusCode:
        """The status."""
        ...

    def details(self) -> str | None:
        """The status's text."""
        ...

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """The metadata behind the answer."""
        ...


def error_of(call: FailedCall, target: str, timeout: float) -> FlussTieringError:
    """What a failed call to the server at `target` means; `timeout` is the deadline it had, in seconds."""
    status, details = call.code(), call.details() or "no details"
    code = code_from_metadata(call.trailing_metadata())
    if code is not None:
        return FlussTieringError(code, details)
    if status is grpc.StatusCode.UNAVAILABLE:
        message = (
            f"cannot reach the tiering server at {target}: {details}; "
            "start it with `fluss-tiering serve` or check the address"
        )
    elif status in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        # Nobody but the deadline cancels a call whose error is looked at.
        return FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"the tiering server at {target} did not answer within {timeout:g} s: it may be overloaded or stopped; "
            "look at its log and try again",
        )
    elif status is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        message = (
            f"a message to or from the tiering server at {target} is too large ({details}): ask for less at once, as "
            "for one table by its name, or start the server with a larger max.message.bytes"
        )
    elif status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return FlussTieringError(
            ErrorCode.UNAVAILABLE, f"the tiering server at {target} has too much to do ({details}): try again later"
        )
    elif status is grpc.StatusCode.UNIMPLEMENTED:
        message = f"{target} does not serve this call: it is no tiering server, or an older one ({details})"
    else:
        message = f"the tiering server at {target} failed with {status.name}: {details}"
    return FlussTieringError(code_from_status(status), message)
