"""Lets only those make a call who may: it finds out who calls, and compares their roles with the one the call takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError
from fluss_tiering.server.audit.call import address_of_peer, host_of, present_call
from fluss_tiering.server.rpc.handlers import wrapped
from fluss_tiering.server.rpc.required_roles import OPEN_TO_EXECUTORS, REQUIRED_ROLES
from fluss_tiering.server.security.authentication import (
    Authenticated,
    Authentication,
    CallCredentials,
    RefusedTokenError,
    refused_token,
    set_authenticated,
)
from fluss_tiering.server.security.identity import UNCHECKED, Identity, set_caller
from fluss_tiering.server.security.rates import CallRates
from fluss_tiering.server.security.roles import Role
from fluss_tiering.server.security.tokens import public_id

if TYPE_CHECKING:
    from fluss_tiering.server.rpc.handlers import Behaviour, Context, Handler


_REFUSAL_DELAY_S: Final = 0.5
"""How long a caller who makes too many calls waits for each refusal."""
_UNREAD_S: Final = 1.0
_MAX_UNREAD: Final = 16
"""The number of refused calls whose requests are read at once, for the audit log. They may be large."""


class CallAccess:
    """Refuses calls of callers that are not known or that lack the call's role.

    It comes before anything of a request is read, so that callers who are not known cost nothing.

    Args:
        authentication: Finds out who calls.
        rates: Refuses callers who make too many calls.
    """

    def __init__(self, authentication: Authentication, rates: CallRates) -> None:
        self._authentication = authentication
        self._rates = rates
        self._unread = 0

    def wrap(self, handler: Handler, method: str) -> Handler:
        """Return a handler that refuses who may not make the call."""

        def unary(behaviour: Behaviour) -> Behaviour:
            async def handle(requests: Any, context: Context) -> object:  # noqa: ANN401 - one or many
                await self._admit(method, requests, context)
                return await behaviour(requests, context)

            return handle

        def streaming(behaviour: Behaviour) -> Behaviour:
            async def handle(requests: Any, context: Context) -> AsyncIterator[object]:  # noqa: ANN401 - one or many
                caller = await self._admit(method, requests, context)
                async for response in behaviour(_while_valid(requests, caller), context):
                    _check_valid(caller)
                    yield response

            return handle

        return wrapped(handler, unary, streaming)

    async def _admit(self, method: str, requests: AsyncIterator[bytes], context: Context) -> Authenticated:
        try:
            found = await self._authorized(method, context)
        except ThrottledError:
            # A caller that waits for answers before it calls again is slowed down by this.
            await asyncio.sleep(_REFUSAL_DELAY_S)
            raise
        except FlussTieringError as error:
            if error.code is ErrorCode.AUTHORIZATION:
                await self._note_unread(requests)
            raise
        set_authenticated(found)
        return found

    async def _note_unread(self, requests: AsyncIterator[bytes]) -> None:
        """Note the request of a known caller who is refused, so that the audit log says which table it was about."""
        call = present_call()
        if call is None or self._unread >= _MAX_UNREAD:
            return
        self._unread += 1
        try:
            async with asyncio.timeout(_UNREAD_S):
                call.unread = await anext(aiter(requests), None)
        except TimeoutError:
            return
        finally:
            self._unread -= 1

    async def _authorized(self, method: str, context: Context) -> Authenticated:
        call = present_call()
        try:
            credentials = CallCredentials.of(context.invocation_metadata(), context.auth_context())
            if call is not None and credentials.bearer is not None:
                call.token_id = public_id(credentials.bearer)
            found = _by_address(await self._authentication.authenticate(credentials), context)
        except FlussTieringError as error:
            if call is not None and isinstance(error, RefusedTokenError):
                call.reason = error.reason
            self._rates.check_unknown(host_of(address_of_peer(context.peer() or "")))
            raise
        if call is not None:
            call.identity = found.identity.name
            if found.is_forwarded:
                call.note_forwarder()
        self._rates.check(found.identity)
        if found.identity.executor_of is not None:
            _check_open_to_executors(method)
            set_caller(found.identity)
            return found
        role = REQUIRED_ROLES[method]
        if not found.identity.has(role):
            raise _lacks_role(found.identity, role, method)
        set_caller(found.identity, role)
        return found


def _by_address(found: Authenticated, context: Context) -> Authenticated:
    """Let the calls with tokens that another server checks count by address: anybody may bring such a token."""
    if found.identity.executor_of is not UNCHECKED:
        return found
    host = host_of(address_of_peer(context.peer() or ""))
    return replace(found, identity=replace(found.identity, counts_with=f"executor/{host}"))


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
