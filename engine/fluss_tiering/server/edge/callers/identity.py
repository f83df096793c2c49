"""The identity of a caller, which the call carries while it is answered."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.roles import ALL_TABLES, Grant, Role, TablePattern
from fluss_tiering.server.edge.callers.scope import scope_of, set_scope


@dataclass(frozen=True, slots=True)
class ExecutorScope:
    """What executors may read.

    Attributes:
        table_id: The id of the table.
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

_CALLER: ContextVar[Identity] = ContextVar("fluss_tiering_caller")


def set_caller(identity: Identity, role: Role | None = None) -> None:
    """Note who makes the call that this task answers, and which tables the call may be about.

    Args:
        identity: Who makes the call.
        role: The role that the call takes; None if the call itself checks which table it is about.
    """
    _CALLER.set(identity)
    set_scope(None if role is None else scope_of(identity.grants, role))


def caller() -> Identity:
    """Return who makes the call that this task answers.

    Raises:
        LookupError: Nobody was noted, which is a defect. Such a call must not be answered.
    """
    return _CALLER.get()


def require_table_of_executor(table_id: int) -> None:
    """Check that the caller may read a table, if it is an executor. It may read the table of its token.

    Raises:
        FlussTieringError: AUTHORIZATION if it is another table.
    """
    scope = caller().executor_of
    if scope is not None and scope.table_id != table_id:
        raise FlussTieringError(
            ErrorCode.AUTHORIZATION,
            f"this token is for table {scope.table_id}, and the call is for table {table_id}",
        )
