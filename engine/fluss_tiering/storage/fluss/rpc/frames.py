"""The frames of Fluss's protocol as bytes, in big-endian order; there is no I/O here.

    request:  length i32 · api key i16 · version i16 · request id i32 · message
    response: length i32 · kind i8 · request id i32 (absent in kind 2) · message

The length is the number of bytes that follow it. Kind 0 is an answer, 1 an error, 2 a failure of the whole connection.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from fluss_tiering.api.fluss.v1.connection_pb2 import ErrorResponse
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError

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
