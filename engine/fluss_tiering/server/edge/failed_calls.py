"""Ends calls that fail with gRPC statuses. An unexpected error becomes INTERNAL; only the log tells it in full."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

import grpc
import structlog

from fluss_tiering.model.error_text import header_text
from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError
from fluss_tiering.model.tiering import MAX_SENT_ERROR_CHARS
from fluss_tiering.server.edge.audit_log import RefusedCalls
from fluss_tiering.server.edge.call_notes import CallNotes, present_call, request_id_metadata
from fluss_tiering.wire.errors import status_of_error, trailing_metadata_of, trailing_metadata_of_error

if TYPE_CHECKING:
    from fluss_tiering.server.edge.handlers import Context

logger = structlog.get_logger(__name__)


class FailedCalls:
    """Answers calls that fail, and logs them.

    A server that cannot serve refuses every call of every client, for as long as its database is away. Of each method
    and each code, 100 refused calls within ten seconds have lines of their own. The others are counted.
    """

    def __init__(self) -> None:
        self._refused: RefusedCalls[tuple[str, ErrorCode]] = RefusedCalls(_summarize)

    def flush(self) -> None:
        """Log what is counted of refused calls."""
        self._refused.flush()

    async def abort(self, context: Context, method: str, error: Exception) -> NoReturn:
        """End a call with the status of an error."""
        call = present_call()
        request_id = None if call is None else call.request_id
        status, metadata = grpc.StatusCode.INTERNAL, trailing_metadata_of(ErrorCode.UNKNOWN)
        if isinstance(error, FlussTieringError):
            code, message = error.code, error.message
            status, metadata = status_of_error(error), trailing_metadata_of_error(error)
            # NOT_FOUND is a normal answer: clients ask for a thing to find out whether it exists.
            # Calls of which there are too many are counted in lines of their own.
            quiet = status is grpc.StatusCode.NOT_FOUND or isinstance(error, ThrottledError)
            if quiet or self._refused.has_line(f"{method} {code}", (method, code)):
                logger.log(
                    logging.DEBUG if quiet else logging.INFO,
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


def _summarize(kind: tuple[str, ErrorCode], count: int) -> None:
    method, code = kind
    logger.info("further calls refused", method=method, code=code.value, further_refused_calls=count)


def _origin(call: CallNotes | None) -> dict[str, str]:
    """Return what the log says of a caller whose credentials are not valid: nobody else can tell who that was."""
    if call is None or call.identity is not None:
        return {}
    told = {"token_id": call.token_id, "reason": call.reason, "peer": call.peer}
    return {key: value for key, value in told.items() if value is not None}
