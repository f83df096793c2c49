"""Whether this server may act: the generation it leads in, and until when."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

import sqlalchemy as sa
import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.failover import election
from fluss_tiering.server.store.database import Database

_SETTLE_ATTEMPTS: Final = 10
_SETTLE_PAUSE_S: Final = 0.5

logger = structlog.get_logger(__name__)


class LeaderRow(Protocol):
    """What leadership needs of an `Election`."""

    def acquire(self) -> int | None:
        """The new generation, or None while another one leads."""
        ...

    def renew(self, generation: int) -> bool:
        """False when another one took over."""
        ...

    def resign(self, generation: int) -> None:
        """Makes way for the next one."""
        ...


class Leadership:
    """One server's leadership, taken from and renewed in the leader's row.

    Two guards, either of which keeps a server that stood still from acting afterwards: a deadline on the machine's
    monotonic clock, which refuses calls at once, and the generation, which each transaction of the store finds in the
    row or fails (`LeadershipFence`).
    """

    def __init__(self, row: LeaderRow, lease_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._row = row
        self._lease_s = lease_s
        self._monotonic = monotonic
        self._deadline = float("-inf")
        self.generation: int | None = None

    @property
    def is_valid(self) -> bool:
        """Whether this server leads for sure."""
        return self.generation is not None and self._monotonic() < self._deadline

    def acquire(self) -> bool:
        """Takes over when nobody leads. Raises STORAGE, UNAVAILABLE."""
        asked = self._monotonic()
        self.generation = self._row.acquire()
        if self.generation is None:
            return False
        self._deadline = asked + self._lease_s
        return True

    def renew(self) -> None:
        """Stays the leader for one lease more.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER when another server took over; STORAGE, UNAVAILABLE.
        """
        if self.generation is None:
            raise _superseded()
        # From before the question: the row's own time runs from after it.
        asked = self._monotonic()
        if not self._row.renew(self.generation):
            self.generation = None
            raise _superseded()
        self._deadline = asked + self._lease_s

    def resign(self) -> None:
        """Makes way for the next one at once. Raises STORAGE, UNAVAILABLE."""
        generation, self.generation = self.generation, None
        if generation is not None:
            self._row.resign(generation)

    def require(self) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER unless this server leads for sure."""
        if self.is_valid:
            return
        if self.generation is None:
            raise _superseded()
        raise FlussTieringError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this server could not renew its leadership for {self._lease_s:g} s, so that another one may have taken "
            "over: try again, here or there",
        )


class LeadershipFence:
    """Lets only transactions of the present leader into the store (`store.Fence`)."""

    def __init__(self, leadership: Leadership, database: Database) -> None:
        self._leadership = leadership
        self._database = database
        self._unsettled: str | None = None

    def enter(self, connection: sa.Connection) -> str:
        """Passes the transaction when this server leads, and keeps others from taking over until it ends.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER.
        """
        if self._unsettled is not None and self._settle(connection, self._unsettled):
            # The managers went on without what it wrote; only loading them anew helps.
            self._leadership.generation = None
        self._unsettled = None
        generation, name = election.enter(connection)
        if self._leadership.generation is None or generation != self._leadership.generation:
            self._leadership.generation = None
            raise _superseded()
        return name

    def was_committed(self, name: str) -> bool:
        """Whether a transaction was committed whose commit got no answer.

        Raises:
            FlussTieringError: UNAVAILABLE when the database cannot be asked in time; the next transaction asks again.
        """
        for attempt in range(_SETTLE_ATTEMPTS):
            if attempt:
                time.sleep(_SETTLE_PAUSE_S)
            try:
                with self._database.engine.connect() as connection:
                    return self._settle(connection, name)
            except (sa.exc.DBAPIError, FlussTieringError) as error:
                logger.warning("the outcome of a transaction is not known yet", error=str(error))
        self._unsettled = name
        raise FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"the connection to the server's database {self._database.name} was lost in a commit, and whether it was "
            "made cannot be told: look at what it was to change, then try again",
        )

    def _settle(self, connection: sa.Connection, name: str) -> bool:
        status = election.transaction_status(connection, name)
        if status == "in progress":
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "the transaction has not ended: try again")
        return status == "committed"


def _superseded() -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "this server is not the active one (any more), another one took over: nothing was changed; "
        "try again, the active one answers",
    )
