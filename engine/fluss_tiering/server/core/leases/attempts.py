"""Attempts under lease ids: each acquire begins one, and a call with the token of an older attempt does nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import LeaseOutcome, TieringRound
from fluss_tiering.server.core.store.records import LeaseAttempt
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.core.store.transaction import SqlTransaction

_REMEMBERED_MS: Final = 7 * 24 * 60 * 60 * 1000
"""After this time an attempt without a lease is deleted. No task waits in a queue or is retried for so long."""

_SKIPPED: Final = 1000
"""How many tokens are skipped when a server becomes active."""


class LeaseAttempts:
    """The newest attempt of every lease id, also of dropped leases.

    A new token is greater than every earlier one, of any lease and from before any restart. A change is computed
    first, then the caller writes it in its own transaction, and `remember` makes it in memory at last.
    """

    def __init__(self, store: SqlTieringStore, now: int) -> None:
        """Load the attempts.

        Args:
            store: The store that holds them.
            now: The present time, in milliseconds since the epoch. A stored time behind it counts as the present.
        """
        stored = store.attempt_token()
        # The database may have lost tokens that were given out: it failed over to a copy that was behind, or it was
        # restored from a backup.
        self._newest_token = stored + _SKIPPED if stored else 0
        self._given_token = stored
        self._attempts = {
            each.lease_id: replace(each, started_time=min(each.started_time, now)) for each in store.attempts()
        }

    @property
    def count(self) -> int:
        """The number of lease ids whose newest attempt is remembered."""
        return len(self._attempts)

    def newest(self, lease_id: str) -> LeaseAttempt | None:
        """Return the newest attempt under the lease id; None if none ever began, or only long ago."""
        return self._attempts.get(lease_id)

    def to_cancel(self, lease_id: str, attempt_token: int | None, now: int) -> LeaseAttempt | None:
        """Return the newest attempt under the lease id; None if none ever began.

        One that was forgotten begins anew if its token is named: its driver may still run, and is to be told.
        """
        newest = self._attempts.get(lease_id)
        if newest is None and attempt_token is not None and attempt_token <= self._given_token:
            return LeaseAttempt(lease_id, attempt_token, now)
        return newest

    def next(self, lease_id: str, now: int) -> LeaseAttempt:
        """Return the attempt that begins now. The caller writes and remembers it."""
        return LeaseAttempt(lease_id, self._newest_token + 1, now)

    def reserve(self, store: SqlTieringStore, lease_id: str, now: int) -> LeaseAttempt:
        """Return an attempt like `next`, but never give its token out again, even if the attempt is not written.

        The token is written, because a cluster knows the lease of the attempt by it: another server must not give it to
        another attempt, whose lease a late call about this one would then end.
        """
        attempt = self.next(lease_id, now)
        with store.transaction() as transaction:
            transaction.put_attempt_token(attempt.attempt_token)
        self._newest_token = self._given_token = attempt.attempt_token
        return attempt

    def cancelled(self, attempt: LeaseAttempt, reason: str) -> LeaseAttempt:
        """Return the attempt as a cancelled one. The caller writes and remembers it."""
        return replace(attempt, cancelled_reason=reason)

    def write(self, transaction: SqlTransaction, attempt: LeaseAttempt) -> None:
        """Write an attempt and the newest token."""
        transaction.put_attempt(attempt)
        transaction.put_attempt_token(max(attempt.attempt_token, self._given_token))

    def remember(self, attempt: LeaseAttempt) -> None:
        """Make a written attempt the newest one of its lease id."""
        self._attempts[attempt.lease_id] = attempt
        self._newest_token = max(attempt.attempt_token, self._newest_token)
        self._given_token = max(attempt.attempt_token, self._given_token)

    def is_stale(self, lease_id: str, attempt_token: int | None) -> bool:
        """Return whether a newer attempt began under the lease id. A caller without a token is never stale."""
        newest = self._attempts.get(lease_id)
        return newest is not None and attempt_token is not None and attempt_token < newest.attempt_token

    def require_current(self, lease_id: str, attempt_token: int | None) -> int | None:
        """Return the token under which a round runs: the given one, or the newest attempt's if there is one.

        Raises:
            FlussTieringError: STALE_ATTEMPT if a newer attempt began or this one was cancelled; INVALID_REQUEST if the
                token was never given out under the lease id.
        """
        newest = self._attempts.get(lease_id)
        newest_token = self._given_token if newest is None else newest.attempt_token
        if attempt_token is not None and attempt_token > newest_token:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"attempt token {attempt_token} was never given out by this server under lease {lease_id}: "
                "acquire the lease first",
            )
        if newest is None:
            return attempt_token
        if self.is_stale(lease_id, attempt_token):
            raise FlussTieringError(
                ErrorCode.STALE_ATTEMPT,
                f"attempt {attempt_token} of lease {lease_id} was superseded by attempt {newest.attempt_token}: "
                "this driver must stop, the newer one continues",
            )
        if newest.cancelled_reason is not None and attempt_token in (None, newest.attempt_token):
            raise FlussTieringError(
                ErrorCode.STALE_ATTEMPT,
                f"attempt {newest.attempt_token} of lease {lease_id} was cancelled: {newest.cancelled_reason}; "
                "acquire the lease again to begin a new attempt",
            )
        return newest.attempt_token

    def prune(self, store: SqlTieringStore, now: int, in_use: Collection[str]) -> None:
        """Delete attempts that began long ago and whose lease id is not in use."""
        old = [
            attempt.lease_id
            for attempt in self._attempts.values()
            if attempt.started_time < now - _REMEMBERED_MS and attempt.lease_id not in in_use
        ]
        if not old:
            return
        with store.transaction() as transaction:
            transaction.delete_attempts(old)
        for lease_id in old:
            del self._attempts[lease_id]


def outcome_of(newest: LeaseAttempt | None, rounds: Iterable[TieringRound], attempt_token: int | None) -> LeaseOutcome:
    """Return what a client that waits on a lease sees, without the rounds of attempts older than its token.

    Args:
        newest: The newest attempt under the lease id; None if there is none.
        rounds: The newest round of each table under the lease id.
        attempt_token: The token of the client; None if it has none and sees the rounds of all attempts.
    """
    return LeaseOutcome(
        rounds=tuple(each for each in rounds if attempt_token is None or (each.attempt_token or 0) >= attempt_token),
        cancelled_reason=newest.cancelled_reason if newest else None,
        newest_attempt_token=newest.attempt_token if newest else None,
    )
