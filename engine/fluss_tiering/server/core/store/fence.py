"""The fence that keeps a server from writing to a database whose active server is another one."""

from __future__ import annotations

from typing import Protocol

import sqlalchemy as sa


class Fence(Protocol):
    """Keeps a server from writing to the database after another server has become the active one."""

    def enter(self, connection: sa.Connection) -> str:
        """Let the transaction begin, and let no other server become the active one until it ends.

        Returns:
            The name of the transaction.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER if another server is the active one.
        """
        ...

    def committed(self, name: str) -> None:
        """Note that a transaction was committed."""
        ...

    def was_committed(self, name: str) -> bool:
        """Return whether a transaction was committed although the commit got no answer.

        Raises:
            FlussTieringError: UNAVAILABLE if that cannot be found out.
        """
        ...
