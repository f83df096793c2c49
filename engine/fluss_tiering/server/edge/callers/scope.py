"""Which tables a call is about, if the caller has the call's role for some tables only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

from fluss_tiering.model.table import TablePath
from fluss_tiering.server.edge.callers.roles import ALL_TABLES, Grant, Role, TablePattern

_REMEMBERED: Final = 20_000
"""For how many tables a scope remembers whether it shows them."""


class TableScope:
    """The tables that a caller may see in a call. For the caller, no other tables exist. Any thread may use it.

    Args:
        patterns: The patterns of the tables. A table that one of them matches is in the scope.
    """

    def __init__(self, patterns: Iterable[TablePattern]) -> None:
        self._pattern = re.compile("|".join(f"(?:{each.regular_expression})" for each in patterns) or r"(?!)")
        self._known: dict[TablePath, bool] = {}

    def shows(self, path: TablePath) -> bool:
        """Return whether the caller may see a table."""
        known = self._known.get(path)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known = {}
            known = self._known[path] = self._pattern.fullmatch(str(path)) is not None
        return known


@lru_cache(maxsize=1024)
def scope_of(grants: tuple[Grant, ...], role: Role) -> TableScope | None:
    """Return the tables for which grants give a role, or one that includes it; None if they do for all tables."""
    patterns = [each.tables for each in grants if role in each.role.included]
    return None if any(each.text == ALL_TABLES for each in patterns) else TableScope(patterns)


_SCOPE: ContextVar[TableScope | None] = ContextVar("fluss_tiering_scope")


def set_scope(scope: TableScope | None) -> None:
    """Note which tables the call that this task answers may be about; None for all tables."""
    _SCOPE.set(scope)


def present_scope() -> TableScope | None:
    """Return which tables the call that this task or thread answers may be about; None for all tables.

    Raises:
        LookupError: Nobody noted it, which is a defect. Such a call must not be answered.
    """
    return _SCOPE.get()


def is_hidden(path: TablePath) -> bool:
    """Return whether the caller of the present call may not see a table."""
    scope = present_scope()
    return scope is not None and not scope.shows(path)
