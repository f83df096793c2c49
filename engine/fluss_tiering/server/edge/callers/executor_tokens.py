"""Tokens for executors: each lets its owner read one table, as long as one round of it runs or for some hours.

The token of a query is of use only as long as whoever makes the query may read the table.

So no token of a person or of a driver reaches Spark's workers. A token is a JWT that this server signs with a key that
its database keeps: a round outlives a restart of the server, and with it its token does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import jwt

from fluss_tiering.model.table import TablePath
from fluss_tiering.server.edge.callers.authentication import Authenticated, CallCredentials, refused_token
from fluss_tiering.server.edge.callers.identity import UNCHECKED, ExecutorScope, Identity, scope_of
from fluss_tiering.server.edge.callers.roles import Grant, Role

PREFIX: Final = "flx_"
KEY_NAME: Final = "executor_tokens"
"""The name of the key in the server's database."""
KEY_BYTES: Final = 32

_ALGORITHM: Final = "HS256"
_AUDIENCE: Final = "fluss-tiering executor"
_LONGEST_ROUND: Final = timedelta(days=7)
"""The token of a round ends with it. This is the longest time that one may be of use if a round never ends."""
_READS: Final = timedelta(hours=12)
"""How long the executors of a query may read its table."""
_MAX_NAMES: Final = 4
"""In how many names a token says who made the query. Somebody may be in many groups, and metadata is short."""

GrantsOf = Callable[[Iterable[str]], tuple[Grant, ...]]
"""Returns the roles that an identity has now, by the names by which the server's files know it."""


class ExecutorTokens:
    """Makes the tokens of executors and knows them again.

    Args:
        key: The key of `KEY_BYTES` bytes.
        is_running: Returns whether a round runs, by table id and tiering epoch. Any thread may call it.
        grants_of: Returns the roles that whoever makes a query still has.
    """

    def __init__(self, key: bytes, is_running: Callable[[int, int], bool], grants_of: GrantsOf) -> None:
        self._key = key
        self._is_running = is_running
        self._grants_of = grants_of

    def for_round(self, table_id: int, tiering_epoch: int) -> str:
        """Return the token with which a round's executors read its table."""
        return self._signed(ExecutorScope(table_id, tiering_epoch), _LONGEST_ROUND, {})

    def for_reads(self, table_id: int, path: TablePath, asked_by: Identity) -> str:
        """Return a token with which a query's executors read a table, as long as who makes the query may read it.

        Args:
            asked_by: Who makes the query.
        """
        names = [each for each in asked_by.known_by if self._may_read(path, [each])]
        query = {"path": str(path), "known_by": names[:_MAX_NAMES]}
        return self._signed(ExecutorScope(table_id, None), _READS, query)

    def _may_read(self, path: TablePath, names: Iterable[str]) -> bool:
        grants = self._grants_of(names)
        if not any(Role.READER in each.role.included for each in grants):
            return False
        scope = scope_of(grants, Role.READER)
        return scope is None or path in scope

    def _signed(self, scope: ExecutorScope, longest: timedelta, query: Mapping[str, object]) -> str:
        claims = {
            "aud": _AUDIENCE,
            "exp": datetime.now(UTC) + longest,
            "table": scope.table_id,
            "epoch": scope.tiering_epoch,
            **query,
        }
        return PREFIX + jwt.encode(claims, self._key, _ALGORITHM)

    def authenticate(self, credentials: CallCredentials) -> Authenticated | None:
        """Return the executors that the token is for.

        Raises:
            FlussTieringError: AUTHENTICATION if the token is not one of this server, or if its round has ended.
        """
        if not is_executor_token(credentials):
            return None
        try:
            claims = jwt.decode(
                str(credentials.bearer).removeprefix(PREFIX),
                self._key,
                [_ALGORITHM],
                audience=_AUDIENCE,
                options={"require": ["exp", "aud", "table"]},
            )
        except jwt.InvalidTokenError as error:
            raise refused_token(f"token of executors: {error}") from None
        scope = ExecutorScope(claims["table"], claims.get("epoch"))
        is_valid = self._validity(scope, claims)
        if not is_valid():
            raise refused_token(
                "token of executors: its round has ended, or it has expired, or who made the query may not read the "
                "table any more"
            )
        return Authenticated(executor(scope), is_valid)

    def _validity(self, scope: ExecutorScope, claims: dict[str, Any]) -> Callable[[], bool]:
        epoch = scope.tiering_epoch
        if epoch is not None:
            return lambda: self._is_running(scope.table_id, epoch)
        path, names, ends = TablePath.parse(claims["path"]), claims["known_by"], float(claims["exp"])
        return lambda: datetime.now(UTC).timestamp() < ends and self._may_read(path, names)


class UncheckedExecutorTokens:
    """Lets calls with tokens of executors through, on a server that refuses all calls: it starts, or it waits."""

    def authenticate(self, credentials: CallCredentials) -> Authenticated | None:
        """Return executors of no table."""
        return Authenticated(executor(None), lambda: True) if is_executor_token(credentials) else None


def is_executor_token(credentials: CallCredentials) -> bool:
    """Return whether a call brings a token of executors, valid or not."""
    return credentials.bearer is not None and credentials.bearer.startswith(PREFIX)


def executor(scope: ExecutorScope | None) -> Identity:
    """Return the identity of the executors of a round or of a query.

    Args:
        scope: What they may read; None for any of them.
    """
    if scope is None:
        return Identity("executor", (), UNCHECKED)
    what = "reads" if scope.tiering_epoch is None else scope.tiering_epoch
    return Identity(f"executor/{scope.table_id}/{what}", (), scope)
