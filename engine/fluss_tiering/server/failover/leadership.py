"""Whether this server may act: the generation in which it leads, until when, and what its database must hold."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final, TypeAlias

import sqlalchemy as sa
import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.core.store.database import Database
from fluss_tiering.server.failover import election

Seen: TypeAlias = tuple[int | None, int | None]
"""What a look at the tokens saw: the last one that was committed, and the newest one that began."""


class TransactionTokens:
    """The tokens of one leadership's transactions, of which the database holds the last committed one.

    One thread at a time writes transactions. Another one renews the leadership meanwhile and may ask about the tokens.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._newest: int | None = None

    def begin(self, token: int) -> None:
        """Note a transaction before the database hears of its token."""
        self._newest = token

    def committed(self, token: int) -> None:
        """Note that a transaction was committed."""
        self._last = token

    def give_up_on_newest(self) -> None:
        """Note that nobody waits any more for the outcome of the newest transaction.

        Its changes are not in memory. So if the database holds its token, the memory is behind.
        """
        self._newest = None

    def must_be(self, found: int) -> bool:
        """Return whether the database holds what it must, as the next transaction found it under its lock."""
        return self._last in (None, found)

    def look(self) -> Seen:
        """Return what is known of the tokens. Call it before the database is asked without a lock."""
        return self._last, self._newest

    def may_be(self, found: int, before: Seen) -> bool:
        """Return whether the database may hold a token that was found without a lock.

        Args:
            before: What `look` returned before the database was asked.
        """
        last, newest = before
        if last is None or newest != self._newest:
            # A transaction that began meanwhile looks itself.
            return True
        # The newest transaction may be committed already, although its answer is still on the way.
        return found in (last, newest)


_SETTLE_ATTEMPTS: Final = 10
_SETTLE_PAUSE_S: Final = 0.5
_SETTLE_LIMIT_S: Final = 4.0
_TOKEN_BITS: Final = 62

logger = structlog.get_logger(__name__)


class Leadership:
    """One server's leadership, which it takes and renews in the leader's row.

    Two guards each keep a server that was suspended from acting afterwards. A deadline on the machine's monotonic clock
    refuses calls at once. And each transaction of the store fails unless it finds the generation in the row
    (`LeadershipFence`).

    Args:
        row: The leader's row.
        lease_s: The time for which the leadership is valid without a renewal, in seconds.
        monotonic: A clock in seconds that never goes back.

    Attributes:
        generation: The generation in which this server leads; None if it does not lead.
        tokens: The tokens of the transactions that this server committed since it took over.
    """

    def __init__(self, row: election.Election, lease_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._row = row
        self._lease_s = lease_s
        self._monotonic = monotonic
        self._deadline = float("-inf")
        self._given_up: str | None = None
        self._in_row: int | None = None
        self.generation: int | None = None
        self.tokens = TransactionTokens()

    @property
    def is_valid(self) -> bool:
        """Whether this server certainly leads."""
        return self.generation is not None and self.remaining_s > 0

    @property
    def remaining_s(self) -> float:
        """The time until the leadership lapses if it is not renewed, in seconds; 0 if it has lapsed."""
        return max(0.0, self._deadline - self._monotonic())

    @property
    def was_given_up(self) -> bool:
        """Whether this server gave up the leadership, which it may take again."""
        return self._given_up is not None

    def acquire(self) -> bool:
        """Take over if nobody leads, and return whether this server leads. Raises STORAGE or UNAVAILABLE."""
        asked = self._monotonic()
        self.generation = self._row.acquire()
        if self.generation is None:
            return False
        self._given_up = None
        self._in_row = self.generation
        self.tokens = TransactionTokens()
        self._deadline = asked + self._lease_s
        return True

    def renew(self) -> None:
        """Stay the leader for one more lease.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER if this server does not lead, or if the database lost what this
                server wrote, so that it gave up the leadership; STORAGE or UNAVAILABLE if the database cannot be used.
        """
        generation = self.generation
        if generation is None:
            raise self._not_leading()
        # Counted from before the call, because the time of the row is counted from after it began.
        asked = self._monotonic()
        tokens, before = self.tokens, self.tokens.look()
        last = self._row.renew(generation)
        if last is None:
            self.generation = None
            raise self._not_leading()
        if not tokens.may_be(last, before):
            raise self.memory_is_wrong()
        self._deadline = asked + self._lease_s

    def resign(self) -> None:
        """End the leadership in the row, so that a server may take over at once. Raises STORAGE or UNAVAILABLE."""
        self.generation = None
        generation, self._in_row = self._in_row, None
        if generation is not None:
            self._row.resign(generation)

    def give_up(self, reason: str) -> None:
        """Stop leading at once, without a call to the database. The row stays as it is until its time is over.

        Args:
            reason: What clients are told.
        """
        self.generation = None
        self._given_up = reason

    def require(self, generation: int | None = None) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER unless this server certainly leads.

        Args:
            generation: The generation in which it must lead; None for any.
        """
        if self.is_valid and generation in (None, self.generation):
            return
        if self.generation is None or generation not in (None, self.generation):
            raise self._not_leading()
        raise self.lapsed()

    def memory_is_wrong(self) -> FlussTieringError:
        """Give up, because the database does not hold what this server has in memory. Return the error that says so."""
        reason = (
            "this server loads its state anew, because its database does not hold what the server wrote last: it "
            "failed over to a copy that was behind, was restored, or committed a change without an answer"
        )
        logger.error(reason)
        self.give_up(reason)
        return self._not_leading()

    def lapsed(self) -> FlussTieringError:
        """Return the error that the leadership was not renewed in time."""
        return FlussTieringError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this server could not renew its leadership for {self._lease_s:g} s, so another server may have taken "
            "over: try again",
        )

    def _not_leading(self) -> FlussTieringError:
        if self._given_up is None:
            return _superseded()
        return FlussTieringError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self._given_up}: try again")


class LeadershipFence:
    """Lets only transactions of the present leader into the store. It is the store's `Fence`.

    Each transaction writes a token of its own. By the token that the next one finds, the fence knows whether the last
    one was committed, although the commit got no answer; and whether the database lost transactions that were
    committed, because it failed over to a copy that was behind or was restored. What the managers hold in memory is
    wrong in both cases, so that this server gives up the leadership and loads everything anew. While nothing is
    written, each renewal of the leadership looks at the token. A transaction's number would not tell: after a failover
    of the database, another transaction may have it.
    """

    def __init__(self, leadership: Leadership, database: Database) -> None:
        self._leadership = leadership
        self._database = database
        self._tokens = leadership.tokens

    def enter(self, connection: sa.Connection) -> str:
        """Let a transaction pass if this server leads, and keep others from taking over until it ends.

        Returns:
            The name of the transaction.

        Raises:
            FlussTieringError: NOT_LEADER_OR_FOLLOWER if another server leads, or if this one has to load its state
                anew.
        """
        token = secrets.randbits(_TOKEN_BITS)
        self._tokens.begin(token)
        generation, last = election.enter(connection, token)
        if self._leadership.generation is None or generation != self._leadership.generation:
            self._leadership.generation = None
            self._leadership.require()
        if not self._tokens.must_be(last):
            raise self._leadership.memory_is_wrong()
        return str(token)

    def committed(self, name: str) -> None:
        """Note that a transaction was committed."""
        self._tokens.committed(int(name))

    def was_committed(self, name: str) -> bool:
        """Return whether a transaction was committed although its commit got no answer.

        Raises:
            FlussTieringError: UNAVAILABLE if the database cannot be asked in time, and the next transaction or renewal
                finds it out; NOT_LEADER_OR_FOLLOWER if the database lost earlier transactions too.
        """
        for attempt in range(_SETTLE_ATTEMPTS):
            if attempt:
                time.sleep(_SETTLE_PAUSE_S)
            if not self._leadership.is_valid:
                # The next active server reads what is in the database, so that the outcome no longer matters here.
                break
            try:
                with self._database.time_limit(_SETTLE_LIMIT_S), self._database.engine.connect() as connection:
                    last = election.last_token(connection)
            except sa.exc.DBAPIError as error:
                logger.warning("the outcome of a transaction is not known yet", error=str(error))
                continue
            if last != int(name) and not self._tokens.must_be(last):
                raise self._leadership.memory_is_wrong()
            return last == int(name)
        self._tokens.give_up_on_newest()
        raise FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"the connection to the server's database {self._database.name} was lost during a commit, and whether the "
            "change was made is not known: check that first, then try again",
        )


def _superseded() -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "this server is no longer the active one, because another server took over: nothing was changed; "
        "try again, and the active server answers",
    )
