"""Static tokens. The file of the server holds their hashes, so that whoever reads it cannot use them.

A token is `flt_ID_SECRET`. The secret has 256 random bits, for which one round of SHA-256 is enough: nobody can try
them all, as they could with passwords.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.storage.files import corrupt, give_to_owner_of, read_json, reporting_os_errors, write_json

PREFIX: Final = "flt_"
"""How each token begins, by which programs that search for secrets find tokens that were published."""

PRIVATE: Final = 0o600
"""The mode of files that only their owner may read and write."""

_VERSION: Final = 1
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ID: Final = re.compile(r"[0-9a-f]{12}")
_EXPECTED: Final = f"tokens of version {_VERSION}, as `fluss-tiering token create` writes them"
_REMEDY: Final = "restore the file, or move it away and create new tokens"


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A token, as the server keeps it.

    Attributes:
        id: The part of the token that is no secret.
        name: Whose token it is.
        sha256: The hash of the secret, in hexadecimal.
        created: When it was made.
        expires: From when on it is refused; None if it is valid until it is revoked.
        grants: What its owner may do.
    """

    id: str
    name: str
    sha256: str
    created: datetime
    expires: datetime | None
    grants: tuple[Grant, ...]

    @classmethod
    def create(cls, name: str, grants: Sequence[Grant], now: datetime, expires: datetime | None) -> tuple[Self, str]:
        """Return a new token, and its text, which nobody can find out later.

        Raises:
            FlussTieringError: INVALID_REQUEST if the name is empty or has characters that cannot be printed.
        """
        if not name or not name.isprintable() or name != name.strip():
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the name of the token is {name!r}: expected printable characters, for example airflow",
            )
        token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        return cls(token_id, name, _hash(secret), now, expires, tuple(grants)), f"{PREFIX}{token_id}_{secret}"

    def has_secret(self, secret: str) -> bool:
        """Return whether this is the token's secret."""
        return hmac.compare_digest(_hash(secret), self.sha256)

    def is_valid_at(self, now: datetime) -> bool:
        """Return whether the token has not expired."""
        return self.expires is None or now < self.expires


class TokenFile:
    """The file that keeps tokens.

    Args:
        path: The file. It need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[StaticToken]:
        """Return the tokens in the order in which they were made.

        Raises:
            FlussTieringError: CORRUPT_DATA if the file is not one of tokens; STORAGE if it cannot be read.
        """
        if not self.path.exists():
            return []
        content = read_json(self.path, _REMEDY)
        try:
            return [_from_json(each) for each in _entries(content)]
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, FlussTieringError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
            found = f"holds no tokens ({reason})"
            raise corrupt(self.path, found, _EXPECTED, _REMEDY) from error

    def add(self, token: StaticToken) -> None:
        """Keep a token. Raises the errors of `read`."""
        with self._locked():
            self._write([*self.read(), token])

    def remove(self, token_id: str) -> None:
        """Forget a token, which is refused from now on.

        Raises:
            FlussTieringError: INVALID_REQUEST if there is no token of this id, and the errors of `read`.
        """
        with self._locked():
            tokens = self.read()
            kept = [each for each in tokens if each.id != token_id]
            if len(kept) == len(tokens):
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"{self.path} has no token with the id {token_id!r}: `fluss-tiering token list` shows the ids",
                )
            self._write(kept)

    @property
    def _target(self) -> Path:
        """The file itself. In the place of a link, a new file would leave the tokens of the linked one as they are."""
        return Path(os.path.realpath(self.path))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other commands from changing the file meanwhile."""
        lock = self._target.with_name(self._target.name + ".lock")
        with ExitStack() as stack:
            with reporting_os_errors("lock", lock):
                descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
                held = stack.enter_context(os.fdopen(descriptor, "w"))
                # Whoever may open the file may lock it, and so keep others from revoking tokens.
                os.fchmod(held.fileno(), PRIVATE)
                give_to_owner_of(self._target, held.fileno())
                fcntl.flock(held, fcntl.LOCK_EX)
            yield

    def _write(self, tokens: Sequence[StaticToken]) -> None:
        with reporting_os_errors("write", self._target):
            write_json(self._target, {"version": _VERSION, "tokens": [_to_json(each) for each in tokens]}, PRIVATE)


def public_id(text: str) -> str | None:
    """Return the part of a token that is no secret; None if the text is not that of a static token."""
    parts = split_token(text)
    return parts[0] if parts and _ID.fullmatch(parts[0]) else None


def split_token(text: str) -> tuple[str, str] | None:
    """Return the id and the secret of a token; None if the text is not that of a static token."""
    token_id, _, secret = text.removeprefix(PREFIX).partition("_")
    return (token_id, secret) if text.startswith(PREFIX) and token_id and secret else None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _to_json(token: StaticToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "sha256": token.sha256,
        "created": token.created.isoformat(),
        "expires": None if token.expires is None else token.expires.isoformat(),
        "grants": [{"role": each.role.value, "tables": each.tables.text} for each in token.grants],
    }


def _entries(content: dict[str, Any]) -> list[dict[str, Any]]:
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']!r}")
    entries: list[dict[str, Any]] = content["tokens"]
    return entries


def _from_json(entry: dict[str, Any]) -> StaticToken:
    return StaticToken(
        str(entry["id"]),
        str(entry["name"]),
        _checked_hash(entry["sha256"]),
        _time(entry["created"]),
        None if entry["expires"] is None else _time(entry["expires"]),
        tuple(Grant.parse(each["role"], each["tables"]) for each in entry["grants"]),
    )


def _checked_hash(text: str) -> str:
    if not _SHA256.fullmatch(text):
        raise ValueError(f"sha256 {text[:80]!r} instead of 64 hexadecimal digits")
    return text


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
