"""Values that settings are made of: the files of TLS, an issuer of OpenID Connect, and checked URLs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import sqlalchemy as sa

from fluss_tiering.client.target import is_loopback
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_POSTGRESQL_SCHEMES: Final = frozenset({"postgresql", "postgres", "postgresql+psycopg"})


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of TLS.

    Attributes:
        cert: The server's certificate chain in PEM, its own certificate first.
        key: The key of the certificate in PEM, without a password.
        client_ca: The certificates in PEM of the authorities whose certificates clients must show; None if clients
            need none.
    """

    cert: Path
    key: Path
    client_ca: Path | None


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer, and what its tokens must say.

    Attributes:
        url: The issuer, exactly as the claim `iss` of its tokens says it.
        audience: What the claim `aud` must be or hold: the name of this server at the issuer.
        identity_claim: The claim that names the caller.
        groups_claim: The claim that names the caller's groups.
    """

    url: str
    audience: str
    identity_claim: str
    groups_claim: str

    @property
    def configuration_url(self) -> str:
        """Where the issuer says where its keys are (OpenID Connect Discovery 1.0, section 4)."""
        return self.url.rstrip("/") + "/.well-known/openid-configuration"


def checked_url(text: str, what: str) -> str:
    """Return a URL from which keys may be read: nobody on the way can put others in their place.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is not one of https, or of http on this machine.
    """
    expected = "expected a URL such as https://login.example.com/realms/shop, or http:// on this machine"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{what} is {text!r} ({error}): {expected}") from error
    trusted = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host or ""))
    if not host or port == 0 or not trusted or parts.username is not None or parts.fragment or not text.isprintable():
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{what} is {text!r}: {expected}")
    return text


def checked_store_url(url: str) -> sa.URL:
    """Return a URL of a PostgreSQL database as SQLAlchemy needs it.

    Raises:
        FlussTieringError: INVALID_REQUEST if the text is anything else.
    """
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        parsed = None
    if parsed is not None and "@" in (parsed.host or ""):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            "the store's URL has more than one @ before the host: write an @ of the user or the password as %40, a "
            "colon as %3A and a slash as %2F",
        )
    if parsed is None or parsed.drivername not in _POSTGRESQL_SCHEMES:
        kind = "" if parsed is None else f" but of {parsed.drivername}"
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the store's URL is not one of PostgreSQL{kind}: expected postgresql://, then the user, a colon, the "
            "password, @HOST:PORT/DATABASE; leave it out for SQLite in the data folder",
        )
    return parsed.set(drivername="postgresql+psycopg")
