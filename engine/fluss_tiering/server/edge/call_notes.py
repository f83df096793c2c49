"""What is noted of a call while it is answered, for the logs: who makes it, about what, and how it ends."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final
from urllib.parse import unquote

from google.protobuf.message import Message

from fluss_tiering.api.v1.tables_pb2 import WriteRowsResponse
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.server.edge.methods import Named

REQUEST_ID_KEY: Final = "fluss-tiering-request-id"
"""The trailing metadata key of a call's id."""

_MAX_ADDRESS_CHARS: Final = 128


class CallNotes:
    """What is known of a call. It is used on the event loop only.

    Args:
        peer: The address that the call came from, as gRPC names it.

    Attributes:
        request_id: The id of the call, with which users and logs name it.
        peer: The address that the call came from.
        identity: Who makes the call; None as long as that is not known.
        token_id: The part of the call's token that is no secret; None if it brings no token of the server's own. Any
            client may say it.
        reason: Why the credentials are not valid, which the caller is not told; None if it is not known.
        code: The error that the call was refused with; None if it was not.
        named: What the requests name.
        unread: The request of a known caller who was refused; None if it did not come, or if the call was not refused.
        requests: The number of requests that were read.
        responses: The number of responses.
        rows: The number of rows that were written; None if the call writes none.
        on_first_request: Called once, with the first request.
    """

    def __init__(self, method: str, peer: str) -> None:
        self.method = method.rpartition("/")[2]
        self.peer = address_of_peer(peer)
        self.request_id = secrets.token_hex(16)
        self.identity: str | None = None
        self.token_id: str | None = None
        self.reason: str | None = None
        self.code: ErrorCode | None = None
        self.named = Named()
        self.unread: bytes | None = None
        self.requests = 0
        self.responses = 0
        self.rows: int | None = None
        self.on_first_request: Callable[[], None] | None = None
        self._began = time.monotonic()

    @property
    def milliseconds(self) -> float:
        """How long the call has taken."""
        return round((time.monotonic() - self._began) * 1000, 3)

    def note_response(self, response: object) -> None:
        """Note a response."""
        self.note_begin()
        self.responses += 1
        if isinstance(response, WriteRowsResponse):
            self.rows = (self.rows or 0) + response.row_count

    def note_request(self, request: Message) -> None:
        """Note a request that was read."""
        self.requests += 1
        self.named.add(request)
        self.note_begin()

    def note_begin(self) -> None:
        """Note that the call was admitted."""
        if self.on_first_request is not None:
            begin, self.on_first_request = self.on_first_request, None
            begin()


_CALL: ContextVar[CallNotes | None] = ContextVar("fluss_tiering_call", default=None)


def set_call(call: CallNotes) -> None:
    """Note which call this task answers."""
    _CALL.set(call)


def present_call() -> CallNotes | None:
    """Return what is known of the call that this task answers; None outside of calls."""
    return _CALL.get()


def request_id_metadata() -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata that names the present call."""
    call = _CALL.get()
    return () if call is None else ((REQUEST_ID_KEY, call.request_id),)


def address_of_peer(peer: str) -> str:
    """Return "host:port" of a peer, which gRPC names in a way like `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    return unquote(peer.removeprefix("ipv4:").removeprefix("ipv6:"))[:_MAX_ADDRESS_CHARS]
