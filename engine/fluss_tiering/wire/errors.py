"""Conversions between errors and gRPC statuses, or the `PbError` of one part of an answer; and the metadata of calls.

The details of a status carry the error's message. The trailing metadata carries the `ErrorCode`, since several codes
share a status. If the metadata has no code that is known here, the answer came from gRPC itself, from a proxy or from
another version, and the code is derived from the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import grpc

from fluss_tiering.api.v1 import common_pb2
from fluss_tiering.model.error_text import sendable
from fluss_tiering.model.errors import GRPC_STATUS_NAMES, ErrorCode, FlussTieringError, NotActiveError, ThrottledError
from fluss_tiering.model.tiering import MAX_SENT_ERROR_CHARS

ERROR_CODE_METADATA_KEY: Final = "fluss-error-code"
SERVER_ID_METADATA_KEY: Final = "fluss-tiering-server-id"
"""The metadata key with which a call names the server that it is for, by the id of its storage: the one in its data
folder, or the id of its Fluss cluster. Two servers that stand in for each other have the same id."""

_MAX_DIGITS: Final = 8

_CODES_BY_STATUS: Final[Mapping[grpc.StatusCode, ErrorCode]] = {
    grpc.StatusCode.UNAVAILABLE: ErrorCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.UNAVAILABLE,
    grpc.StatusCode.INVALID_ARGUMENT: ErrorCode.INVALID_REQUEST,
    grpc.StatusCode.OUT_OF_RANGE: ErrorCode.INVALID_REQUEST,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.INVALID_REQUEST,
    grpc.StatusCode.DATA_LOSS: ErrorCode.CORRUPT_DATA,
    grpc.StatusCode.UNIMPLEMENTED: ErrorCode.UNSUPPORTED_VERSION,
    grpc.StatusCode.UNAUTHENTICATED: ErrorCode.AUTHENTICATION,
    grpc.StatusCode.PERMISSION_DENIED: ErrorCode.AUTHORIZATION,
}


RETRY_AFTER_KEY: Final = "retry-after-ms"
"""The trailing metadata key of the milliseconds after which a call that was refused may be made again."""
ACTIVE_SERVER_KEY: Final = "fluss-tiering-active-server"
"""The trailing metadata key of the address of the active server, in the answer of a standby server."""
_NO_RETRY: Final = ("grpc-retry-pushback-ms", "-1")
"""With this trailing metadata, gRPC's clients do not make the call again at the same server (gRPC proposal A6)."""


def status_of_error(error: FlussTieringError) -> grpc.StatusCode:
    """Return the gRPC status that carries an error."""
    return grpc.StatusCode.RESOURCE_EXHAUSTED if isinstance(error, ThrottledError) else status_of(error.code)


def trailing_metadata_of_error(error: FlussTieringError) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata that carries an error's code and, if it has one, the time to wait."""
    metadata = trailing_metadata_of(error.code)
    if isinstance(error, NotActiveError) and error.active is not None:
        metadata = (*metadata, (ACTIVE_SERVER_KEY, error.active), _NO_RETRY)
    if isinstance(error, ThrottledError):
        metadata = (*metadata, (RETRY_AFTER_KEY, str(error.retry_after_ms)))
    return metadata


def retry_after_from_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> int | None:
    """Return the milliseconds after which a call may be made again; None if trailing metadata does not say it."""
    for key, value in metadata or ():
        text = str(value)
        if key == RETRY_AFTER_KEY and text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS:
            return int(text)
    return None


def status_of(code: ErrorCode) -> grpc.StatusCode:
    """Return the gRPC status that carries a code."""
    return grpc.StatusCode[GRPC_STATUS_NAMES[code]]


def trailing_metadata_of(code: ErrorCode) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata that carries a code."""
    return ((ERROR_CODE_METADATA_KEY, code.value),)


def code_from_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> ErrorCode | None:
    """Return the code in trailing metadata; None if it has no code that is known here."""
    for key, value in metadata or ():
        if key == ERROR_CODE_METADATA_KEY:
            return ErrorCode.__members__.get(str(value))
    return None


def code_from_status(status: grpc.StatusCode) -> ErrorCode:
    """Return the code that is nearest to a status without a code."""
    return _CODES_BY_STATUS.get(status, ErrorCode.UNKNOWN)


def error_to_pb(error: FlussTieringError) -> common_pb2.PbError:
    """Return the message of an error. An answer may carry thousands of them, so a long text is cut."""
    return common_pb2.PbError(code=error.code.value, message=sendable(error.message, MAX_SENT_ERROR_CHARS))


def error_from_pb(message: common_pb2.PbError) -> FlussTieringError:
    """Return the error of a message. A code that is not known here becomes UNKNOWN."""
    code = ErrorCode(message.code) if message.code in ErrorCode.__members__ else ErrorCode.UNKNOWN
    return FlussTieringError(code, message.message)


def named_server_id(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """Return the id of the server that a call's metadata names; None if it names none."""
    for key, value in metadata or ():
        if key == SERVER_ID_METADATA_KEY:
            return str(value)
    return None
