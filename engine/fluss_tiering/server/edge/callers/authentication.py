"""Who makes a call: the first authenticator that knows the call's credentials says it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.identity import ANYBODY, Identity

AUTHORIZATION_KEY: Final = "authorization"

_BEARER: Final = "bearer "


@dataclass(frozen=True, slots=True)
class CallCredentials:
    """What a call brings to prove who makes it.

    Attributes:
        bearer: The token in the call's metadata; None if there is none.
        certificate: The authentication context of the connection, with the client's certificate if it has one.
    """

    bearer: str | None
    certificate: Mapping[str, Iterable[bytes]]

    @classmethod
    def of(
        cls, metadata: Iterable[tuple[str, str | bytes]] | None, certificate: Mapping[str, Iterable[bytes]]
    ) -> CallCredentials:
        """Return the credentials in a call's metadata and connection.

        Raises:
            FlussTieringError: AUTHENTICATION if the metadata has credentials of another kind than a bearer token.
        """
        bearer = None
        for key, value in metadata or ():
            if key == AUTHORIZATION_KEY:
                text = value if isinstance(value, str) else value.decode("ascii", "replace")
                if bearer is not None or not text.lower().startswith(_BEARER):
                    raise FlussTieringError(
                        ErrorCode.AUTHENTICATION,
                        "the call's metadata has no authorization that is known here: expected one bearer token",
                    )
                bearer = text[len(_BEARER) :].strip()
        return cls(bearer, certificate)


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The caller of a call.

    Attributes:
        identity: Who it is.
        is_valid: Whether the credentials are still valid. A stream ends when they are not.
    """

    identity: Identity
    is_valid: Callable[[], bool]


class Authenticator(Protocol):
    """Knows one kind of credentials. It is called on the event loop for each call, so it must not wait."""

    def authenticate(self, credentials: CallCredentials) -> Authenticated | Awaitable[Authenticated] | None:
        """Return the caller; None if the credentials are not of this kind.

        An authenticator that has to ask somebody else returns an awaitable, which that call alone waits for.

        Raises:
            FlussTieringError: AUTHENTICATION if they are of this kind and not valid.
        """
        ...


class Authentication:
    """Finds out who makes a call.

    Args:
        authenticators: The kinds of credentials that are accepted; None if nobody is asked.
    """

    def __init__(self, authenticators: Sequence[Authenticator] | None) -> None:
        self._authenticators = authenticators

    @property
    def asks(self) -> bool:
        """Whether callers must prove who they are."""
        return self._authenticators is not None

    async def authenticate(self, credentials: CallCredentials) -> Authenticated:
        """Return the caller.

        Raises:
            FlussTieringError: AUTHENTICATION if no authenticator knows the credentials; UNAVAILABLE if who could tell
                cannot be asked.
        """
        if self._authenticators is None:
            return _ANYBODY
        for each in self._authenticators:
            if found := each.authenticate(credentials):
                return found if isinstance(found, Authenticated) else await found
        if credentials.bearer is None:
            raise FlussTieringError(
                ErrorCode.AUTHENTICATION,
                "this server answers nobody who does not prove who they are: give a token, for example with "
                "--token-file, FLUSS_TIERING_TOKEN or the password of an Airflow connection, or a client certificate "
                "that the server knows",
            )
        raise refused_token()


class RefusedTokenError(FlussTieringError):
    """A token is not valid.

    Attributes:
        reason: Why, for the logs of the server. The caller is not told, which would help who guesses.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(ErrorCode.AUTHENTICATION, message)
        self.reason = reason


def refused_token(reason: str = "unknown") -> RefusedTokenError:
    """Return the error for each token of the server's own that is not valid.

    Args:
        reason: Why it is not valid, for the logs of the server.
    """
    return RefusedTokenError(
        reason,
        "the token is not valid here: it is unknown, expired or revoked; ask an administrator of the server for a new "
        "one",
    )


_ANYBODY: Final = Authenticated(ANYBODY, lambda: True)
