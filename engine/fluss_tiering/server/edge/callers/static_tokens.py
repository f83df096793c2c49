"""Authenticates callers by the server's file of static tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.authentication import Authenticated, CallCredentials, refused_token
from fluss_tiering.server.edge.callers.identity import Identity
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile, split_token
from fluss_tiering.server.edge.watched_files import WatchedFiles

_KNOWN_BY: Final = "token-id/"
_DAY_S: Final = 86_400


class StaticTokens:
    """Knows the tokens in a file. A token that is revoked is refused after a second at the latest.

    Args:
        now: The present time.
        monotonic: A clock in seconds that never goes back.

    Attributes:
        watched: The tokens by their ids.

    Raises:
        FlussTieringError: The errors of `TokenFile.read`, and those of `WatchedFiles`; INVALID_REQUEST if there is no
            file.
    """

    def __init__(
        self, file: TokenFile, now: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        def by_id() -> Mapping[str, StaticToken]:
            if not file.path.exists():
                # Whoever means to revoke all tokens does that by a file without tokens.
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"there is no file {file.path}, which tokens-file names: check the path, or make the file with "
                    f"`fluss-tiering token create NAME --file {file.path} --role ROLE`",
                )
            return {each.id: each for each in file.read()}

        self._now = now
        self.watched = WatchedFiles("the tokens", [file.path], by_id, monotonic)

    def authenticate(self, credentials: CallCredentials) -> Authenticated | None:
        """Return the owner of the token."""
        if credentials.bearer is None or (parts := split_token(credentials.bearer)) is None:
            return None
        token_id, secret = parts
        token = self.watched.content.get(token_id)
        if token is None:
            raise refused_token("unknown or revoked")
        if not token.has_secret(secret):
            raise refused_token("wrong secret")
        if not token.is_valid_at(self._now()):
            raise refused_token("expired")
        identity = Identity(f"token/{token.name}", token.grants, known_by=(_KNOWN_BY + token.id,))
        return Authenticated(identity, lambda: self._is_valid(token))

    def grants_of(self, names: Iterable[str]) -> tuple[Grant, ...]:
        """Return the roles that valid tokens give to an identity which is known by these names."""
        content, now = self.watched.content, self._now()
        found = (content.get(name.removeprefix(_KNOWN_BY)) for name in names if name.startswith(_KNOWN_BY))
        return tuple(grant for token in found if token and token.is_valid_at(now) for grant in token.grants)

    def days_until_expiry(self) -> list[tuple[StaticToken, float]]:
        """Return each token that expires, and the days until then; below zero once it has."""
        now = self._now()
        return [
            (each, (each.expires - now).total_seconds() / _DAY_S)
            for each in self.watched.content.values()
            if each.expires is not None
        ]

    def _is_valid(self, token: StaticToken) -> bool:
        return self.watched.content.get(token.id) == token and token.is_valid_at(self._now())
