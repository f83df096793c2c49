"""Lets only those make a call who may: it finds out who calls, and compares their roles with the one the call takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.call_notes import present_call
from fluss_tiering.server.edge.callers.authentication import (
    Authenticated,
    Authentication,
    CallCredentials,
    RefusedTokenError,
    refused_token,
)
from fluss_tiering.server.edge.callers.identity import Caller, Identity, set_caller
from fluss_tiering.server.edge.callers.roles import Role
from fluss_tiering.server.edge.callers.tokens import public_id
from fluss_tiering.server.edge.handlers import Passage, surrounded
from fluss_tiering.server.edge.methods import OPEN_TO_EXECUTORS, REQUIRED_ROLES

if TYPE_CHECKING:
    from fluss_tiering.server.edge.handlers import Context, Handler


class CallAccess:
    """Refuses calls of callers that are not known or that lack the call's role.

    It comes before a request is decoded, so that callers who are not known cost little.

    Args:
        authentication: Finds out who calls.
    """

    def __init__(self, authentication: Authentication) -> None:
        self._authentication = authentication

    def wrap(self, handler: Handler, method: str) -> Handler:
        """Return a handler that refuses who may not make the call."""

        @asynccontextmanager
        async def around(passage: Passage, context: Context) -> AsyncIterator[None]:
            found = await self._admit(method, passage.requests, context)
            if handler.request_streaming:
                passage.requests = _while_valid(passage.requests, found)
            passage.on_response = lambda _: _check_valid(found)
            yield

        return surrounded(handler, around)

    async def _admit(self, method: str, requests: object, context: Context) -> Authenticated:
        try:
            found = await self._authorized(method, context)
        except FlussTieringError as error:
            call = present_call()
            if error.code is ErrorCode.AUTHORIZATION and call is not None and isinstance(requests, bytes):
                # So that the audit log says which table the refused call was about.
                call.unread = requests
            raise
        return found

    async def _authorized(self, method: str, context: Context) -> Authenticated:
        call = present_call()
        try:
            credentials = CallCredentials.of(context.invocation_metadata(), context.auth_context())
            if call is not None and credentials.bearer is not None:
                call.token_id = public_id(credentials.bearer)
            found = await self._authentication.authenticate(credentials)
        except FlussTieringError as error:
            if call is not None and isinstance(error, RefusedTokenError):
                call.reason = error.reason
            raise
        if call is not None:
            call.identity = found.identity.name
        if found.identity.executor_of is not None:
            _check_open_to_executors(method)
            set_caller(Caller(found.identity, None))
            return found
        role = REQUIRED_ROLES[method]
        if not found.identity.has(role):
            raise _lacks_role(found.identity, role, method)
        set_caller(Caller(found.identity, role))
        return found


def _lacks_role(identity: Identity, role: Role, method: str) -> FlussTieringError:
    remedy = "ask an administrator of the server for it"
    if not identity.grants:
        remedy = "ask an administrator of the server for an entry with exactly this identity in the access file"
    return FlussTieringError(
        ErrorCode.AUTHORIZATION,
        f"{identity.name} may not call {method.rpartition('/')[2]}: it takes the role {role}; {remedy}",
    )


def _check_open_to_executors(method: str) -> None:
    if method not in OPEN_TO_EXECUTORS:
        raise FlussTieringError(
            ErrorCode.AUTHORIZATION,
            f"the token of an executor may not call {method.rpartition('/')[2]}: it may only read",
        )


async def _while_valid(requests: AsyncIterator[object], caller: Authenticated) -> AsyncIterator[object]:
    async for request in requests:
        _check_valid(caller)
        yield request


def _check_valid(caller: Authenticated) -> None:
    if not caller.is_valid():
        raise refused_token()
