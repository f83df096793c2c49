"""What the routes accept. Anything else is answered with 422, before anything is asked, done or recorded."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Form, Query
from pydantic import AfterValidator

_LONGEST: Final = 2000
_LARGEST: Final = 2**63 - 1
"""The largest number that the protocol of the tiering server carries."""


def _without_controls(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected a text without control characters")
    return text


Text = Annotated[str, Query(max_length=_LONGEST), AfterValidator(_without_controls)]
# FastAPI of Airflow 3.1 takes an empty field for a text; later ones take it for none.
Field = Annotated[str, Form(min_length=1, max_length=_LONGEST), AfterValidator(_without_controls)]
Token = Annotated[str, Form(max_length=_LONGEST), AfterValidator(_without_controls)]
Attempt = Annotated[int, Form(ge=0, le=_LARGEST)]
Number = Annotated[int, Query(ge=-_LARGEST, le=_LARGEST)]
