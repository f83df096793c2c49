"""How a client proves who it is, and how it knows that the server is the right one.

Secrets come from files or from the environment, never from a command line, which all users of a machine can read.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

TOKEN_VARIABLE: Final = "FLUSS_TIERING_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE_VARIABLE: Final = "FLUSS_TIERING_TOKEN_FILE"  # noqa: S105 - the name of a variable
TLS_VARIABLE: Final = "FLUSS_TIERING_TLS"
TLS_CA_VARIABLE: Final = "FLUSS_TIERING_TLS_CA"
TLS_CERT_VARIABLE: Final = "FLUSS_TIERING_TLS_CERT"
TLS_KEY_VARIABLE: Final = "FLUSS_TIERING_TLS_KEY"
ALLOW_INSECURE_VARIABLE: Final = "FLUSS_TIERING_ALLOW_INSECURE"

VARIABLES: Final = frozenset(
    {
        TOKEN_VARIABLE,
        TOKEN_FILE_VARIABLE,
        TLS_VARIABLE,
        TLS_CA_VARIABLE,
        TLS_CERT_VARIABLE,
        TLS_KEY_VARIABLE,
        ALLOW_INSECURE_VARIABLE,
    }
)
"""The environment variables that a client reads."""

_hidden_token: str | None = None
"""The token that `hide_token` took out of the environment."""

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"", "0", "false", "no", "off"})

_MAX_TOKEN_CHARACTERS: Final = 16_000
"""gRPC refuses calls with more than 16 KiB of metadata."""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The credentials of a client.

    Attributes:
        token: The token; None for none, or for the one in the file. It is never printed.
        token_file: The file that holds the token. It is read for each call, so that a token may be replaced while a
            client runs.
        tls: Whether the connection is encrypted and the server proves who it is.
        ca: The certificates, in PEM, of the authorities that the server's certificate may come from; None for those
            of the system.
        cert: The client's certificate chain in PEM, for a server that asks for one; None for none.
        key: The key of the client's certificate in PEM. It is never printed.
        allow_insecure: Whether the token may be sent to other machines without encryption.
    """

    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    tls: bool = False
    ca: bytes | None = field(default=None, repr=False)
    cert: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    allow_insecure: bool = False

    def __post_init__(self) -> None:
        """Check that the parts belong together.

        Raises:
            FlussTieringError: INVALID_REQUEST if they do not, or if the token cannot be sent.
        """
        if (self.cert is None) != (self.key is None):
            raise _invalid("only one of the client's certificate and its key is given: expected both or none")
        if not self.tls and (self.ca or self.cert):
            raise _invalid("certificates are given for a connection without TLS: expected TLS too, or no certificates")
        if self.token is not None and self.token_file is not None:
            raise _invalid("a token and a file with a token are given: expected one of them")
        if self.token is not None:
            _checked_token(self.token, "the token")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return what the environment variables say. A variable that is empty counts as one that is not set.

        Raises:
            FlussTieringError: INVALID_REQUEST if a variable is wrong, or if a file that one names cannot be read.
        """
        given = {name: environment[name] for name in VARIABLES if environment.get(name)}
        if environment is os.environ and _hidden_token is not None:
            given.setdefault(TOKEN_VARIABLE, _hidden_token)
        ca, cert, key = (_pem(given.get(name), name) for name in (TLS_CA_VARIABLE, TLS_CERT_VARIABLE, TLS_KEY_VARIABLE))
        if ca is not None:
            _check_authorities(given[TLS_CA_VARIABLE], ca)
        if cert is not None and key is not None:
            _check_pair(given[TLS_CERT_VARIABLE], given[TLS_KEY_VARIABLE])
        token_file = given.get(TOKEN_FILE_VARIABLE)
        return cls(
            token=given.get(TOKEN_VARIABLE),
            token_file=None if token_file is None else Path(token_file),
            # Who names certificates wants TLS.
            tls=_flag(given, TLS_VARIABLE, default=bool(ca or cert)),
            ca=ca,
            cert=cert,
            key=key,
            allow_insecure=_flag(given, ALLOW_INSECURE_VARIABLE, default=False),
        )

    @property
    def proves_identity(self) -> bool:
        """Whether the client proves who it is."""
        return self.token is not None or self.token_file is not None or self.cert is not None

    def for_executors(self, token: str) -> ClientSecurity:
        """Return the credentials that executors use: a token of their own, and no key of this client.

        Args:
            token: The token; empty for none.
        """
        return ClientSecurity(token=token or None, tls=self.tls, ca=self.ca, allow_insecure=self.allow_insecure)

    def with_own_certificate(self, environment: Mapping[str, str] = os.environ) -> ClientSecurity:
        """Return the same credentials with the certificate that the environment of this process names, if it does.

        Raises:
            FlussTieringError: INVALID_REQUEST if a file that a variable names cannot be read.
        """
        cert, key = (_pem(environment.get(name) or None, name) for name in (TLS_CERT_VARIABLE, TLS_KEY_VARIABLE))
        return replace(self, cert=cert, key=key) if self.tls and cert else self

    def read_token(self) -> str | None:
        """Return the token, from its file if there is one; None if the client has none.

        Raises:
            FlussTieringError: INVALID_REQUEST if the file cannot be read or holds no token.
        """
        if self.token_file is None:
            return self.token
        try:
            # Some editors begin a file with a mark of its encoding.
            text = self.token_file.read_text("utf-8-sig").strip()
        except (OSError, ValueError) as error:
            raise _invalid(
                f"the token cannot be read from {self.token_file}: {getattr(error, 'strerror', None) or error}; "
                "expected a file that holds the token and nothing else"
            ) from error
        return _checked_token(text, f"what {self.token_file} holds")


def hide_token() -> None:
    """Take the token out of this process's environment, so that processes which it starts from now on lack it.

    Clients of this process go on with it.
    """
    global _hidden_token  # noqa: PLW0603 - one for the process, as its environment
    _hidden_token = os.environ.pop(TOKEN_VARIABLE, None) or _hidden_token


def _checked_token(token: str, what: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise _invalid(f"{what} is not a token: expected printable ASCII characters without spaces, and nothing else")
    if len(token) > _MAX_TOKEN_CHARACTERS:
        raise _invalid(
            f"{what} is not a token: it has {len(token):,} characters, and no call can carry more than "
            f"{_MAX_TOKEN_CHARACTERS:,}"
        )
    return token


def named(variable: str) -> str:
    """Return how users may have given a file: by a variable, or by an option of the command.

    An error about the file begins with it.
    """
    option = variable.removeprefix("FLUSS_TIERING_").lower().replace("_", "-")
    return f"{variable} (--{option})"


def _pem(path: str | None, variable: str) -> bytes | None:
    if path is None:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise _invalid(f"{named(variable)}: {path} cannot be read: {error.strerror or error}") from error
    if b"-----BEGIN " not in content:
        raise _invalid(
            f"{named(variable)}: {path} is not in PEM: expected a text file with lines such as -----BEGIN ...-----"
        )
    return content


def _has_certificates(content: bytes) -> bool:
    # Names in comments are not always ASCII.
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except ssl.SSLError:
        return False
    return True


def _check_authorities(path: str, content: bytes) -> None:
    # gRPC itself would only say that it cannot create a security handshaker.
    if not _has_certificates(content):
        raise _invalid(
            f"{named(TLS_CA_VARIABLE)}: {path} holds no certificate that can be read: expected the certificates of "
            "authorities in PEM, with lines -----BEGIN CERTIFICATE-----, and no key"
        )


def _check_pair(cert: str, key: str) -> None:
    try:
        # Without a password there is nobody to ask for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise _invalid(
            f"{named(TLS_KEY_VARIABLE)}: {key} is not the key of the certificate in {cert}, or one of them cannot be "
            f"read ({getattr(error, 'reason', None) or error}): expected both in PEM, and a key without a password"
        ) from error


def _flag(given: Mapping[str, str], variable: str, *, default: bool) -> bool:
    text = given.get(variable, "").lower()
    if text not in _TRUE | _FALSE:
        raise _invalid(f"{variable} is {text!r}: expected true or false")
    return text in _TRUE or (default and variable not in given)


def _invalid(message: str) -> FlussTieringError:
    return FlussTieringError(ErrorCode.INVALID_REQUEST, message)
