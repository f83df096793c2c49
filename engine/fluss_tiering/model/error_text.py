"""Preparing texts from elsewhere before they are sent, kept or logged: secrets are masked, then the text is cut."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MASK: Final = "***"
"""What stands in place of a secret."""

_WORDS: Final = (
    "passw(?:or)?d|passphrase|pwd|secret|token|credential|signature"
    "|(?:access|account|api|decryption|encryption|private|sse)[._-]?key"
)
SECRET_NAMES: Final = f"{_WORDS}|authorization|connection-string"
"""A pattern of the names that hold secrets in the settings of Hadoop, Iceberg, JDBC, SASL and clouds, in any case.

Python and Java read it alike. Texts also speak of an authorization or of a connection without telling a secret.
"""
_NAMES_SECRET: Final = re.compile(SECRET_NAMES, re.IGNORECASE)
# The first group is the name, the second is the text between name and value, and the third is the value, which may be
# quoted.
_ASSIGNMENT: Final = re.compile(
    rf"""(?ix)
    ( (?<![\w.-]) [\w.-]*? (?: {_WORDS} ) [\w.-]{{0,64}} | \b sig )
    ( ["']? \s* [=:] \s* )
    ( \[ [^\]]* \]? | (?: "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | \S ) [^\s,;&"'<>)}}\]]* )
    """
)
# The server's attempt tokens are plain numbers, and people need them to see which attempt was fenced. The names of
# files and of methods come before what is wrong with them.
_NOT_SECRET: Final = re.compile(
    r"(?ix) attempt[_.-]?token$ | [_.-](?:file|path|folder|dir|jsonl?|toml|pem|txt)$ | ^create(?:read|executor)token$"
)
# A number and a slash after the colon are the port of a URL and its path.
_URL_PASSWORD: Final = re.compile(
    r"(?i)(\b[a-z][a-z0-9+.-]{0,31}://[^\s:/@?#]{0,256}):(?!\d{1,5}/)[^\s@]{1,1024}@(?:[^\s@/]{1,256}@)*"
)
_AUTHORIZATION: Final = re.compile(r"(?i)\b(bearer|basic|digest|negotiate)\s+[A-Za-z0-9+/=._~-]{8,}")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_AWS_KEY_ID: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")

_HIDDEN: Final = re.compile(r"(?:^|[?#;]|//)\*\*\*(?:@|$)")
"""What a server puts in the place of a value, of the login of a URI, or of its parameters."""
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, which a terminal would obey. Tabs and ends of lines are not among them."""

_MAX_SCANNED_CHARS: Final = 1 << 16

MAX_HEADER_BYTES: Final = 4096
"""The size to which `header_text` cuts a text, as it travels in a header."""

_PERCENT: Final = ord("%")


def mask_secrets(text: str) -> str:
    """Mask the passwords, tokens and keys in `name=value` pairs, URLs, HTTP headers and PEM blocks of a text.

    The first 64 Ki characters are scanned; the rest is dropped rather than left unmasked.
    """
    text = text[:_MAX_SCANNED_CHARS]
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _AUTHORIZATION.sub(rf"\1 {MASK}", text)
    text = _URL_PASSWORD.sub(rf"\1:{MASK}@", text)
    text = _AWS_KEY_ID.sub(MASK, text)
    return _mask_assignments(text)


def is_hidden(value: str) -> bool:
    """Return whether the server hides a property of a lake catalog, or a part of it, from this caller."""
    return _HIDDEN.search(value) is not None


def harmless(text: str) -> str:
    """Return text from elsewhere without control characters, which could steer a terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def names_secret(key: str) -> bool:
    """Return whether the name of a setting says that its value is a secret."""
    return _NAMES_SECRET.search(key) is not None


def masked_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as they may be shown: without the values whose names tell of a secret, and without passwords."""
    return {key: MASK if names_secret(key) else mask_secrets(value) for key, value in options.items()}


def clean_error(text: str, max_chars: int) -> str:
    """Mask the secrets of a text and cut it to `max_chars` characters. A text that was cut ends with "…"."""
    return sendable(mask_secrets(text), max_chars)


def sendable(text: str, max_chars: int) -> str:
    """Cut a text to `max_chars` characters, and make it one that messages and databases take.

    A lone surrogate, which Python makes of file names that cannot be decoded, becomes "?".
    """
    cut = text if len(text) <= max_chars else text[: max_chars - 1] + "…"
    return cut if cut.isascii() else cut.encode(errors="replace").decode()


def header_text(text: str, max_chars: int) -> str:
    """Clean a text like `clean_error`, and cut it further until it fits into the header of an answer.

    A gRPC status message travels in an HTTP/2 header, in which each byte outside of printable ASCII takes three bytes.
    gRPC refuses headers of more than 8 KiB, and the caller then gets neither the text nor the error code. The limit of
    `MAX_HEADER_BYTES` leaves room for the other headers.
    """
    cleaned = clean_error(text, max_chars)
    if _header_bytes(cleaned) <= MAX_HEADER_BYTES:
        return cleaned
    room = MAX_HEADER_BYTES - _header_bytes("…")
    for end, char in enumerate(cleaned):
        room -= _header_bytes(char)
        if room < 0:
            return cleaned[:end] + "…"
    return cleaned


def _header_bytes(text: str) -> int:
    return sum(1 if 0x20 <= byte <= 0x7E and byte != _PERCENT else 3 for byte in text.encode())


def _mask_assignments(text: str) -> str:
    parts, position = [], 0
    while match := _ASSIGNMENT.search(text, position):
        # What stands in place of a value that is no secret may have an assignment in it.
        is_secret = not _NOT_SECRET.search(match[1])
        end = match.end() if is_secret else match.end(2)
        parts += [text[position : match.end(2)], MASK if is_secret else ""]
        position = end
    return "".join(parts) + text[position:]
