"""What error texts look like before they are sent, kept or logged: secrets masked, then cut (S11)."""

from __future__ import annotations

import re
from typing import Final

_MASK: Final = "***"

# Names that hold secrets in Hadoop, Iceberg, JDBC, SASL and cloud settings. The first group is the name, the second
# what stands between name and value, the third the value, which may be quoted.
_ASSIGNMENT: Final = re.compile(
    r"""(?ix)
    ( (?<![\w.-]) [\w.-]*? (?: passw(?:or)?d | passphrase | pwd | secret | token | credentials? | signature
                     | (?:api|access|account|private|encryption)[_.-]?key ) [\w.-]{0,64} | \b sig )
    ( ["']? \s* [=:] \s* )
    ( \[ [^\]]* \]? | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^\s,;&"'<>)}\]]+ )
    """
)
# The server's own attempt tokens are ordinals, and people need them to see which attempt was fenced.
_NOT_SECRET: Final = re.compile(r"(?i)attempt[_.-]?token$")
_URL_PASSWORD: Final = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,31}://[^\s:/@?#]{0,256}):[^\s/@]{1,1024}@")
_AUTHORIZATION: Final = re.compile(r"(?i)\b(bearer|basic|digest|negotiate)\s+[A-Za-z0-9+/=._~-]{8,}")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_AWS_KEY_ID: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")

_MAX_SCANNED_CHARS: Final = 1 << 16


def mask_secrets(text: str) -> str:
    """The text with passwords, tokens and keys replaced in `name=value` pairs, URLs, HTTP headers and PEM blocks.

    Texts are scanned up to 64 Ki characters; what is beyond is dropped rather than left unmasked.
    """
    text = text[:_MAX_SCANNED_CHARS]
    text = _PRIVATE_KEY.sub(_MASK, text)
    text = _AUTHORIZATION.sub(rf"\1 {_MASK}", text)
    text = _URL_PASSWORD.sub(rf"\1:{_MASK}@", text)
    text = _AWS_KEY_ID.sub(_MASK, text)
    return _ASSIGNMENT.sub(_mask_assignment, text)


def clean_error(text: str, max_chars: int) -> str:
    """The text with secrets masked and then cut to `max_chars` characters, the last of which says that it was cut."""
    masked = mask_secrets(text)
    return masked if len(masked) <= max_chars else masked[: max_chars - 1] + "…"


def _mask_assignment(match: re.Match[str]) -> str:
    name, between, value = match.groups()
    if _NOT_SECRET.search(name) or _MASK in value:
        return match.group()
    return f"{name}{between}{_MASK}"
