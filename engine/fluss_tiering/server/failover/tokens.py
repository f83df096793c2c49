"""The tokens of the transactions of one leadership, by which the server knows what its database must hold."""

from __future__ import annotations

from typing import TypeAlias

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
            found: The token.
            before: What `look` returned before the database was asked.
        """
        last, newest = before
        if last is None or newest != self._newest:
            # A transaction that began meanwhile looks itself.
            return True
        # The newest transaction may be committed already, although its answer is still on the way.
        return found in (last, newest)
