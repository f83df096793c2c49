"""What an action tells on the next page. It travels in the address, signed: no other page can put words there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow.configuration import conf
from itsdangerous import BadData, URLSafeTimedSerializer

_SALT: Final = "fluss-lake-tiering-note"
_SECONDS: Final = 60
_MOST_CHARACTERS: Final = 600
"""The length of an address is limited."""


@dataclass(frozen=True, slots=True)
class Note:
    """What an action did.

    Attributes:
        done: Whether it did what was wanted.
        text: The result in a sentence.
    """

    done: bool
    text: str


def write_note(note: Note) -> str:
    """Return the note for an address."""
    return str(_serializer().dumps([note.done, note.text[:_MOST_CHARACTERS]]))


def read_note(written: str) -> Note | None:
    """Return the note of an address; None if there is none, or if it is older than a minute."""
    try:
        done, text = _serializer().loads(written, max_age=_SECONDS)
    except BadData:
        return None
    return Note(done, text)


def _serializer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(conf.get_mandatory_value("api", "secret_key"), salt=_SALT)
