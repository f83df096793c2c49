"""Gives each call an id, and writes to the audit log who made it and how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.server.edge.call_notes import CallNotes, request_id_metadata, set_call
from fluss_tiering.server.edge.callers.roles import Role
from fluss_tiering.server.edge.handlers import Passage, status_of_call, surrounded
from fluss_tiering.server.edge.interceptor import OwnServicesInterceptor
from fluss_tiering.server.edge.methods import METHODS, REQUIRED_ROLES, cut_name
from fluss_tiering.wire.errors import status_of

if TYPE_CHECKING:
    from fluss_tiering.server.edge.audit_log import AuditLog
    from fluss_tiering.server.edge.handlers import Context, Handler

_MAX_DECODED_BYTES: Final = 1 << 16
"""The size up to which the request of a refused caller is decoded, so that the line says which table it was about."""

_ADMITTED: Final = "ADMITTED"


class AuditInterceptor(OwnServicesInterceptor):
    """Writes a line for each call, and two for each stream: when it begins and when it ends.

    It runs outside of the interceptor that turns errors into statuses, so that it sees refusals too.

    Args:
        log: The audit log; None for none. Calls get ids in any case.
        all_calls: Whether all calls are written. Otherwise those are whose role is more than reader, and those that
            were refused.
    """

    def __init__(self, log: AuditLog | None, *, all_calls: bool) -> None:
        self._log = log
        self._all_calls = all_calls

    def wrap(self, handler: Handler, method: str) -> Handler:
        """Return a handler whose calls are written to the audit log."""
        always = self._all_calls or REQUIRED_ROLES[method] is not Role.READER
        # A standby server refuses each call as a stream.
        described = METHODS[method]
        is_stream = described.client_streaming or described.server_streaming

        @asynccontextmanager
        async def around(passage: Passage, context: Context) -> AsyncIterator[None]:
            call, log = _begin(method, context), self._log
            passage.on_response = call.note_response
            if log is not None and is_stream:
                call.on_first_request = lambda: self._write(log, call, "begin", _ADMITTED, always=always)
            failed: BaseException | None = None
            try:
                yield
            except BaseException as error:
                failed = error
                raise
            finally:
                if log is not None:
                    _name_unread(call, method)
                    refused = failed is not None and call.on_first_request is not None
                    event = "call" if not is_stream else "begin" if refused else "end"
                    self._write(log, call, event, status_of_call(context, failed), always=always)

        return surrounded(handler, around)

    def _write(self, log: AuditLog, call: CallNotes, event: str, outcome: str, *, always: bool) -> None:
        if not always and not _is_refused(call):
            return
        line: dict[str, object] = {
            "time": _now(),
            "event": event,
            "request_id": call.request_id,
            "identity": None if call.identity is None else cut_name(call.identity),
            "call": call.method,
            "outcome": outcome,
        }
        if call.code is not None:
            line["code"] = call.code.value
        if call.token_id is not None:
            line["token_id"] = call.token_id
        if call.reason is not None:
            line["reason"] = call.reason
        line |= call.named.fields()
        line["peer"] = call.peer
        if event != "begin":
            line["duration_ms"] = call.milliseconds
        if event == "end":
            line |= {"requests": call.requests, "responses": call.responses}
            if call.rows is not None:
                line["rows"] = call.rows
        log.write(line)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _begin(method: str, context: Context) -> CallNotes:
    call = CallNotes(method, context.peer() or "")
    set_call(call)
    context.set_trailing_metadata(request_id_metadata())
    return call


def _name_unread(call: CallNotes, method: str) -> None:
    """Note what the request of a refused caller names. Nothing is decoded for callers that are not known."""
    if call.unread is None or len(call.unread) > _MAX_DECODED_BYTES:
        return
    try:
        call.named.add(GetMessageClass(METHODS[method].input_type).FromString(call.unread))
    except DecodeError:
        return


def _is_refused(call: CallNotes) -> bool:
    # NOT_FOUND is a normal answer: clients ask for a thing to find out whether it exists.
    return call.code is not None and status_of(ErrorCode(call.code)) is not grpc.StatusCode.NOT_FOUND
