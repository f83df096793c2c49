"""The frames of a connection to a Fluss server, and the order of its requests, without I/O.

The frames of Fluss's protocol are bytes in big-endian order:

    request:  length i32 · api key i16 · version i16 · request id i32 · message
    response: length i32 · kind i8 · request id i32 (absent in kind 2) · message

The length is the number of bytes that follow it. Kind 0 is an answer, 1 an error, 2 a failure of the whole connection.
The handshake comes first: the server says which calls it serves, then the client may say who it is. After it each
answer is handed to the request that it belongs to.
"""

from __future__ import annotations

import itertools
import struct
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError

from fluss_tiering.api.fluss.v1.connection_pb2 import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    AuthenticateRequest,
    AuthenticateResponse,
    ErrorResponse,
)
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey, ServedApis
from fluss_tiering.storage.fluss.rpc.call import Call, ServerKind
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError, FlussServerError

PREFIX_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 1 << 30
"""A log batch is sent as a whole and may be large."""
MAX_FIRST_FRAME_BYTES: Final = 1 << 20
"""The limit during the handshake: a larger frame does not come from a Fluss server."""
MAX_REQUEST_BYTES: Final = 100 << 20
"""`netty.server.max-request-size`: the server hangs up on larger frames."""

_REQUEST: Final = struct.Struct(">ihhi")
_PREFIX: Final = struct.Struct(">i")
_RESPONSE: Final = struct.Struct(">bi")
_ANSWER, _ERROR, _FAILURE = range(3)
_MECHANISM: Final = "PLAIN"
CLOSED: Final = "this program closed it, because it ends, or because its server leads no more"
"""Why a connection ended that was not lost."""


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """A response of a server.

    Attributes:
        request_id: The id of the request that it answers; None for a failure of the whole connection.
        message: The answer's bytes; empty if there is an error.
        error: The error that the server sent instead of an answer.
    """

    request_id: int | None
    message: memoryview
    error: FlussServerError | None = None


def encode_request(api: ApiKey, version: int, request_id: int, message: bytes) -> bytes:
    """Return the frame of a request in a version of its call.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is larger than servers take.
    """
    length = _REQUEST.size - PREFIX_BYTES + len(message)
    if length > MAX_REQUEST_BYTES:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"a {api.name} request of {length} bytes: Fluss takes {MAX_REQUEST_BYTES} at most; send less at once",
        )
    return _REQUEST.pack(length, api, version, request_id) + message


def frame_length(prefix: bytes | bytearray, server: str, limit: int = MAX_FRAME_BYTES) -> int:
    """Return how many bytes follow the first four of a frame.

    Raises:
        FlussTieringError: CORRUPT_DATA if no frame has such a length, because the server speaks another protocol.
    """
    length = int(_PREFIX.unpack(prefix)[0])
    if not 1 <= length <= limit:
        raise _not_fluss(server, f"sent {bytes(prefix)!r} where a frame's length should be")
    return length


def decode_response(frame: bytes | bytearray, server: str) -> Response:
    """Return the response in a frame, which is given without its length.

    Raises:
        FlussTieringError: CORRUPT_DATA if the frame is no response.
    """
    view = memoryview(frame)
    kind = frame[0] if frame else None
    if kind == _FAILURE:
        return Response(None, view[:0], _error(view[1:], server))
    if kind not in {_ANSWER, _ERROR} or len(frame) < _RESPONSE.size:
        raise _not_fluss(server, f"sent a frame of kind {kind} and {len(frame)} bytes")
    _, request_id = _RESPONSE.unpack_from(frame)
    message = view[_RESPONSE.size :]
    if kind == _ERROR:
        return Response(request_id, view[:0], _error(message, server))
    return Response(request_id, message)


def _error(message: memoryview, server: str) -> FlussServerError:
    try:
        error = ErrorResponse.FromString(message.tobytes())
    except DecodeError as failed:
        raise _not_fluss(server, "sent an error that cannot be read") from failed
    return FlussServerError.of(error.error_code, error.error_message)


def _not_fluss(server: str, what: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.CORRUPT_DATA,
        f"{server} does not speak Fluss's protocol: it {what}; expected the address of a Fluss server, as in its "
        "bind.listeners",
    )


def api_versions(role: ServerKind) -> Call[ApiVersionsResponse, ServedApis]:
    """Make the call that asks a server of this role which calls it serves."""
    return Call(
        ApiKey.API_VERSIONS,
        ApiVersionsRequest(client_software_name="fluss-tiering", client_software_version="1"),
        ApiVersionsResponse,
        ServedApis.of,
        role,
    )


@dataclass(frozen=True, slots=True)
class Credentials:
    """The user and the password for SASL/PLAIN. `repr` does not show the password.

    Raises:
        FlussTieringError: INVALID_REQUEST if one of them is empty or has a NUL character, which PLAIN cannot carry.
    """

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        for what, value in (("user name", self.username), ("password", self.password)):
            if not value or "\0" in value:
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"the {what} for Fluss is empty or has a NUL character: expected the one of the cluster's JAAS "
                    "configuration",
                )

    def token(self) -> bytes:
        """Return the token that PLAIN sends: an empty authorization id, the user and the password."""
        return f"\0{self.username}\0{self.password}".encode()


def authenticate(credentials: Credentials) -> Call[AuthenticateResponse, None]:
    """Make the call that says who calls."""
    return Call(
        ApiKey.AUTHENTICATE,
        AuthenticateRequest(protocol=_MECHANISM, token=credentials.token()),
        AuthenticateResponse,
        # PLAIN has one step. Fluss sends an empty challenge in its answer, which asks for nothing more.
        lambda _: None,
        ServerKind.ANY,
    )


class RequestCorrelator:
    """Numbers the requests of one connection and hands each answer to the caller that waits for it.

    Answers may come in any order.
    """

    def __init__(self, server: str, served: ServedApis) -> None:
        """Begin without requests.

        Args:
            server: The server's name, for errors.
            served: The calls that the server serves.
        """
        self._server = server
        self._served = served
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[memoryview]] = {}

    def register(self, call: Call[Any, Any], answered: Future[memoryview]) -> bytes:
        """Number a request, remember who waits for its answer, and return the frame to send.

        Raises:
            FlussTieringError: UNSUPPORTED_VERSION if the server does not serve the call; INVALID_REQUEST if the
                request is too large.
        """
        version = self._served.version_of(call.api, self._server)
        # Fluss's request ids are signed 32-bit numbers.
        number = next(self._numbers) & 0x7FFFFFFF
        frame = encode_request(call.api, version, number, call.request.SerializeToString())
        self._waiting[number] = answered
        return frame

    def deliver(self, response: Response) -> None:
        """Hand an answer to the caller that waits for it. Drop the answer if nobody waits any more.

        Raises:
            FlussServerError: The server reported a failure of the whole connection.
        """
        if response.request_id is None:
            raise response.error or FlussConnectionError(f"the Fluss server at {self._server} gave up the connection")
        answered = self._waiting.pop(response.request_id, None)
        if answered is None or answered.done():
            return
        if response.error is not None:
            answered.set_exception(response.error)
        else:
            answered.set_result(response.message)

    def fail_all(self, why: str) -> None:
        """End all requests that still wait with `FlussConnectionError`: no answer will come any more."""
        for number in list(self._waiting):
            answered = self._waiting.pop(number, None)
            if answered is not None and not answered.done():
                answered.set_exception(lost(self._server, why))


def lost(server: str, why: str) -> FlussConnectionError:
    """Return the error for a connection that broke after a request had been sent."""
    return FlussConnectionError(f"lost the connection to the Fluss server at {server}: {why}", outcome_unknown=True)


def unreachable(server: str, why: object) -> FlussConnectionError:
    """Return the error for a server to which no connection could be made."""
    return FlussConnectionError(
        f"cannot reach the Fluss server at {server}: {why}; check the address and whether the cluster runs"
    )


def silent(server: str, what: str, seconds: float) -> FlussConnectionError:
    """Return the error for a server that took too long to answer."""
    return FlussConnectionError(
        f"the Fluss server at {server} did not answer {what} within {seconds:.3g} s: it may be overloaded or stopped",
        outcome_unknown=True,
    )


def no_greeting(server: str, why: object) -> FlussConnectionError:
    """Return the error for a server that is there but does not answer the handshake as a Fluss server does."""
    return FlussConnectionError(
        f"{server} did not answer as a Fluss server does: {why}; check that it is the address of one, as in its "
        "bind.listeners, and that it runs"
    )
