"""Authenticates callers by tokens of an issuer of OpenID Connect: JSON Web Tokens (RFC 7519) that it has signed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import jwt

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.access_file import AccessFile
from fluss_tiering.server.edge.callers.authentication import Authenticated, CallCredentials
from fluss_tiering.server.edge.callers.identity import Identity
from fluss_tiering.server.edge.callers.issuer_keys import ALGORITHMS, IssuerKeys
from fluss_tiering.server.settings.values import Issuer

MAX_TOKEN_CHARS: Final = 16_000
"""The longest token that is read."""

_MAX_NAME_CHARS: Final = 255
"""As for `sub` in OpenID Connect Core 1.0, section 2."""
_MAX_VERIFIED: Final = 10_000
_CLOCKS_APART_S: Final = 60
"""How far the issuer's clock may be from this one, in seconds. A token is accepted for so long after it expires."""
_LATEST: Final = 1e11
"""The latest time in seconds since 1970 at which a token may expire. It is in the year 5138."""

Claims = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Verified:
    """What a token says whose signature and claims were checked.

    Attributes:
        names: The names of the identity in the access file: its own, then those of its groups.
        key: The key that the token is signed with.
        ends: When it expires, the clocks' difference included, in seconds since 1970.
    """

    names: tuple[str, ...]
    key: jwt.PyJWK
    ends: float


class OidcTokens:
    """Knows the tokens of an issuer. A token is verified once, and then known by its hash until it expires.

    Args:
        issuer: The issuer, and what it has to say.
        access: The roles of identities and groups.
        now: The present time in seconds since 1970.
    """

    def __init__(
        self, issuer: Issuer, keys: IssuerKeys, access: AccessFile, now: Callable[[], float] = time.time
    ) -> None:
        self._issuer = issuer
        self._keys = keys
        self._access = access
        self._now = now
        self._verified: dict[bytes, _Verified] = {}

    def authenticate(self, credentials: CallCredentials) -> Authenticated | Awaitable[Authenticated] | None:
        """Return the caller that the token names; an awaitable if the issuer has to be asked for a new key.

        Raises:
            FlussTieringError: AUTHENTICATION if the token is not valid. The awaitable raises it too, and UNAVAILABLE if
                the issuer cannot be asked for the key.
        """
        token = credentials.bearer
        # All headers begin with this letter, because they begin with a brace.
        if token is None or not token.startswith("e") or token.count(".") != 2:
            return None
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        known = self._verified.get(digest)
        if known is None:
            known = self._verify(token)
            if known is None:
                return self._authenticate_with_newer_keys(token, digest)
            self._remember(digest, known)
        elif not self._is_valid(known):
            # It is verified again, to say what is wrong.
            del self._verified[digest]
            return self.authenticate(credentials)
        return self._caller(known)

    async def _authenticate_with_newer_keys(self, token: str, digest: bytes) -> Authenticated:
        await self._keys.read_again()
        known = self._verify(token)
        if known is None:
            raise self._refused("its signature is of no key that the issuer publishes")
        self._remember(digest, known)
        return self._caller(known)

    def _caller(self, known: _Verified) -> Authenticated:
        grants = self._access.grants_of(known.names)
        return Authenticated(
            Identity(known.names[0], grants, known_by=known.names),
            lambda: self._is_valid(known) and self._access.grants_of(known.names) == grants,
        )

    def _is_valid(self, known: _Verified) -> bool:
        present = self._keys.find(known.key.key_id)
        # An issuer may publish another key under the same name.
        return self._now() < known.ends and present is not None and present.key == known.key.key

    def _remember(self, digest: bytes, known: _Verified) -> None:
        while len(self._verified) >= _MAX_VERIFIED:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = known

    def _verify(self, token: str) -> _Verified | None:
        """Return what a token says; None if a key that is not known here may have signed it."""
        if len(token) > MAX_TOKEN_CHARS:
            raise self._refused(f"it has {len(token)} characters: expected {MAX_TOKEN_CHARS} at most")
        header, claims = self._unverified(token)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise self._refused(
                f"it is signed with {str(algorithm)[:20]!r}: expected one of {', '.join(sorted(ALGORITHMS))}"
            )
        if claims.get("iss") != self._issuer.url:
            # The keys of another issuer are not asked for.
            raise self._refused("another issuer made it")
        key = self._keys.find(header.get("kid"))
        return None if key is None else self._checked(self._signed(token, key), key)

    def _unverified(self, token: str) -> tuple[Claims, Claims]:
        try:
            content = jwt.decode_complete(token, options={"verify_signature": False})
        except Exception:  # noqa: BLE001 - whatever the caller sent
            raise self._refused("it is no JSON Web Token") from None
        return content["header"], content["payload"]

    def _signed(self, token: str, key: jwt.PyJWK) -> Claims:
        """Return the claims of a token, checked but for those that name the caller."""
        try:
            return jwt.decode(
                token,
                key.key,
                # The key says what it is for. What the token says is only compared with it.
                algorithms=[key.algorithm_name],
                audience=self._issuer.audience,
                issuer=self._issuer.url,
                leeway=_CLOCKS_APART_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
            raise self._refused("its signature is wrong") from None
        except jwt.ExpiredSignatureError:
            raise self._refused("it has expired") from None
        except jwt.ImmatureSignatureError:
            raise self._refused("it is not valid yet, by the clock of this server") from None
        except jwt.InvalidAudienceError:
            raise self._refused(f"it is for another audience: expected {self._issuer.audience!r} in aud") from None
        except jwt.MissingRequiredClaimError as error:
            raise self._refused(f"it has no claim {error.claim}") from None
        except Exception:  # noqa: BLE001 - whatever the caller sent
            raise self._refused("its claims are not those of an access token or an ID token") from None

    def _checked(self, claims: Claims, key: jwt.PyJWK) -> _Verified:
        expires = claims["exp"]
        if not isinstance(expires, int | float) or expires > _LATEST:
            raise self._refused("its claim exp is no time: expected seconds since 1970")
        ends = expires + _CLOCKS_APART_S
        if self._now() >= ends:
            raise self._refused("it has expired")
        subject = claims.get(self._issuer.identity_claim)
        if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_NAME_CHARS or not subject.isprintable():
            raise self._refused(
                f"its claim {self._issuer.identity_claim} does not name the caller: expected a text of at most "
                f"{_MAX_NAME_CHARS} characters"
            )
        if self._issuer.identity_claim == "email" and claims.get("email_verified") is not True:
            raise self._refused("the issuer does not say that it has verified the address (the claim email_verified)")
        groups = claims.get(self._issuer.groups_claim, [])
        listed = groups if isinstance(groups, list) else [groups]
        names = (f"oidc-group/{each}" for each in listed if isinstance(each, str))
        return _Verified((f"oidc/{subject}", *names), key, ends)

    def _refused(self, reason: str) -> FlussTieringError:
        # Unlike with static tokens the reason helps nobody who guesses: no one can make up a signature.
        return FlussTieringError(
            ErrorCode.AUTHENTICATION,
            f"the token is not valid here: {reason}; get a new token of the issuer {self._issuer.url}",
        )
