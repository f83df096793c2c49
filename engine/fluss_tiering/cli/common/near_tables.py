"""The table that a command was probably to name, if there is none of the name that it was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from fluss_tiering.client import TieringClient
from fluss_tiering.client.misspelled import meant
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath

_NOT_THERE: Final = frozenset({ErrorCode.TABLE_NOT_EXIST, ErrorCode.DATABASE_NOT_EXIST})


@contextmanager
def did_you_mean(given: Mapping[str, Any]) -> Iterator[None]:
    """Add the nearest name to the error of the block that a table does not exist.

    Only names are near that the server lists for the caller.

    Args:
        given: The values of the command's parameters, by their names.
    """
    try:
        yield
    except FlussTieringError as error:
        near = _near(given) if error.code in _NOT_THERE else ""
        if not near:
            raise
        raise FlussTieringError(error.code, f"{error.message}. Did you mean {near}?") from error


def _near(given: Mapping[str, Any]) -> str:
    named = [given.get("table"), *(given.get("tables") or ())]
    paths = [str(each) for each in named if isinstance(each, TablePath)]
    if not paths or "server" not in given:
        return ""
    try:
        with TieringClient(given["server"]) as client:
            known = [str(each.path) for each in client.list_tables()]
    except FlussTieringError:
        # The first error says what is wrong.
        return ""
    near = [meant(each, known) for each in paths if each not in known]
    return " and ".join(dict.fromkeys(filter(None, near)))
