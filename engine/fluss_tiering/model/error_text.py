"""Preparing error texts before they are sent, kept or logged: secrets are masked first, then the text is cut."""

from __future__ import annotations

import re
from typing import Final

_MASK: Final = "***"

# Names that hold secrets in the settings of Hadoop, Iceberg, JDBC, SASL and clouds. The first group is the name, the
# second is the text between name and value, and the third is the value, which may be quoted.
_ASSIGNMENT: Final = re.compile(
    r"""(?ix)
    ( (?<![\w.-]) [\w.-]*? (?: passw(?:or)?d | passphrase | pwd | secret | token | credentials? | signature
                     | (?:api|access|account|private|encryption)[_.-]?key ) [\w.-]{0,64} | \b sig )
    ( ["']? \s* [=:] \s* )
    ( \[ [^\]]* \]? | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^\s,;&"'<>)}\]]+ )
    """
)
# The server's attempt tokens are plain numbers, and people need them to see which attempt was fenced.
_NOT_SECRET: Final = re.compile(r"(?i)attempt[_.-]?token$")
_URL_PASSWORD: Final = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,31}://[^\s:/@?#]{0,256}):[^\s/@]{1,1024}@")
_AUTHORIZATION: Final = re.compile(r"(?i)\b(bearer|basic|digest|negotiate)\s+[A-Za-z0-9+/=._~-]{8,}")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_AWS_KEY_ID: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")

_MAX_SCANNED_CHARS: Final = 1 << 16


def mask_secrets(text: str) -> str:
    """Mask the passwords, tokens and keys in `name=value` pairs, URLs, HTTP headers and PEM blocks of a text.

    The first 64 Ki characters are scanned; the rest is dropped rather than left unmasked.
    """
    text = text[:_MAX_SCANNED_CHARS]
    text = _PRIVATE_KEY.sub(_MASK, text)
    text = _AUTHORIZATION.sub(rf"\1 {_MASK}", text)
    text = _URL_PASSWORD.sub(rf"\1:{_MASK}@", text)
    text = _AWS_KEY_ID.sub(_MASK, text)
    return _ASSIGNMENT.sub(_mask_assignment, text)


def clean_error(text: str, max_chars: int) -> str:
    """Mask the secrets of a text and cut it to `max_chars` characters. A text that was cut ends with "…"."""
    masked = mask_secrets(text)
    return masked if len(masked) <= max_chars else masked[: max_chars - 1] + "…"


def _mask_assignment(match: re.Match[str]) -> str:
    name, between, value = match.groups()
    if _NOT_SECRET.search(name) or _MASK in value:
        return match.group()
    return f"{name}{between}{_MASK}"
