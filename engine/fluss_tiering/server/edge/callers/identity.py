"""Who makes a call, and the tables that the call may be about. The call carries this while it is answered."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fluss_tiering.model.table import TablePath
from fluss_tiering.server.edge.callers.roles import ALL_TABLES, Grant, Role, TablePattern


@dataclass(frozen=True, slots=True)
class ExecutorScope:
    """What executors may read.

    Attributes:
        tiering_epoch: The epoch of the round whose executors they are; None for those of a query.
    """

    table_id: int
    tiering_epoch: int | None


UNCHECKED: Final = ExecutorScope(-1, None)
"""What executors may read whose token nobody has checked."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who calls.

    Attributes:
        name: The name, as the audit log shows it, for example `token/airflow`.
        grants: The roles.
        executor_of: What they may read if these are executors, who have no roles; None for everybody else.
        known_by: The names by which the server's files give the roles: the id of a token, or names in the access file.
    """

    name: str
    grants: tuple[Grant, ...]
    executor_of: ExecutorScope | None = None
    known_by: tuple[str, ...] = ()

    def has(self, role: Role) -> bool:
        """Return whether the identity has a role, or one that includes it, for at least one table."""
        return any(role in each.role.included for each in self.grants)

    def has_for_all(self, role: Role) -> bool:
        """Return whether the identity has a role, or one that includes it, for all tables."""
        return any(role in each.role.included and each.tables.text == ALL_TABLES for each in self.grants)


ANYBODY: Final = Identity("anonymous", (Grant(Role.ADMIN, TablePattern(ALL_TABLES)),))
"""The caller of a server that asks nobody who they are."""


class TableScope:
    """The paths of tables for which somebody has a role. Any thread may use it.

    Args:
        patterns: The patterns of the tables. A table that one of them matches is in the scope.
    """

    def __init__(self, patterns: Iterable[TablePattern]) -> None:
        self._pattern = re.compile("|".join(f"(?:{each.regular_expression})" for each in patterns) or r"(?!)")

    def __contains__(self, path: object) -> bool:
        return self._pattern.fullmatch(str(path)) is not None


@lru_cache(maxsize=1024)
def scope_of(grants: tuple[Grant, ...], role: Role) -> TableScope | None:
    """Return the tables for which grants give a role, or one that includes it; None if they do for all tables."""
    patterns = [each.tables for each in grants if role in each.role.included]
    return None if any(each.text == ALL_TABLES for each in patterns) else TableScope(patterns)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call.

    Attributes:
        identity: Who it is.
        role: The role that the call takes; None for executors, who have none.
    """

    identity: Identity
    role: Role | None

    @property
    def tables(self) -> TableScope | None:
        """The tables that the call may be about; None for all tables."""
        return None if self.role is None else scope_of(self.identity.grants, self.role)

    def sees(self, path: TablePath) -> bool:
        """Return whether the call may be about a table."""
        tables = self.tables
        return tables is None or path in tables

    def has(self, role: Role, path: TablePath) -> bool:
        """Return whether the caller has a role, or one that includes it, for a table."""
        tables = scope_of(self.identity.grants, role)
        return tables is None or path in tables


_CALLER: ContextVar[Caller] = ContextVar("fluss_tiering_caller")


def set_caller(found: Caller) -> None:
    """Note who makes the call that this task answers."""
    _CALLER.set(found)


def caller() -> Caller:
    """Return who makes the call that this task answers.

    Raises:
        LookupError: Nobody was noted, which is a defect. Such a call must not be answered.
    """
    return _CALLER.get()
