"""Names that somebody wrote in place of one of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_SIMILARITY: Final = 0.8
"""How much of two names must agree. `tls_certs` is near to `tls_cert`, and `pool` is near to none of ours."""


def meant(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that another one was probably meant to be; None if it is near to none.

    Case, underscores, hyphens and dots do not count.
    """
    by_letters = {_letters(each): each for each in known}
    near = get_close_matches(_letters(name), by_letters, n=1, cutoff=_SIMILARITY)
    return by_letters[near[0]] if near else None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
