"""Ends calls that fail with gRPC statuses. An unexpected error becomes INTERNAL; only the log tells it in full."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NoReturn

import grpc
import structlog

from fluss_tiering.model.error_text import header_text
from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError
from fluss_tiering.model.tiering import MAX_SENT_ERROR_CHARS
from fluss_tiering.server.edge.call_notes import CallNotes, present_call, request_id_metadata
from fluss_tiering.wire.errors import status_of_error, trailing_metadata_of, trailing_metadata_of_error

if TYPE_CHECKING:
    from fluss_tiering.server.edge.handlers import Context

_QUIET: Final = {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE}
"""NOT_FOUND is a normal answer: clients ask for a thing to find out whether it exists. A server whose database is away
refuses all calls, and logs that by itself."""

logger = structlog.get_logger(__name__)


async def abort(context: Context, method: str, error: Exception) -> NoReturn:
    """End a call with the status of an error, and log it."""
    call = present_call()
    request_id = None if call is None else call.request_id
    status, metadata = grpc.StatusCode.INTERNAL, trailing_metadata_of(ErrorCode.UNKNOWN)
    if isinstance(error, FlussTieringError):
        code, message = error.code, error.message
        status, metadata = status_of_error(error), trailing_metadata_of_error(error)
        logger.log(
            logging.DEBUG if status in _QUIET or isinstance(error, ThrottledError) else logging.INFO,
            "call refused",
            method=method,
            code=code.value,
            error=message,
            request_id=request_id,
            **_origin(call),
        )
    else:
        code, message = ErrorCode.UNKNOWN, f"the server failed in {method.rpartition('/')[2]}: see its log"
        logger.error("call failed", method=method, request_id=request_id, exc_info=error)
    if call is not None:
        call.code = code
    await context.abort(status, header_text(message, MAX_SENT_ERROR_CHARS), (*metadata, *request_id_metadata()))


def _origin(call: CallNotes | None) -> dict[str, str]:
    """Return what the log says of a caller whose credentials are not valid: nobody else can tell who that was."""
    if call is None or call.identity is not None:
        return {}
    told = {"token_id": call.token_id, "reason": call.reason, "peer": call.peer}
    return {key: value for key, value in told.items() if value is not None}
