"""KV snapshot leases: a lease keeps KV snapshots from being collected. It locks nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import structlog

from fluss_tiering.model.clock import Clock, iso_time
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import AcquiredLease, KvSnapshotLease, LeaseDrop
from fluss_tiering.server.core.leases.attempts import LeaseAttempts
from fluss_tiering.server.core.leases.book import LeaseBook, PinnedSnapshots
from fluss_tiering.server.core.leases.checks import DamagedLeases, LeaseLimits
from fluss_tiering.server.core.store.records import LeaseAttempt
from fluss_tiering.server.core.store.store import SqlTieringStore

_NAMED: Final = 100
"""How many snapshots that do not exist one line of the log names."""

logger = structlog.get_logger(__name__)


class KvSnapshotLeaseManager:
    """The leases of a server.

    It is used in the control thread only. Every change is written to the store before it is made in memory. A change
    writes and looks at what it changes, not at the whole lease.
    """

    def __init__(
        self, clock: Clock, store: SqlTieringStore, attempts: LeaseAttempts, limits: LeaseLimits | None = None
    ) -> None:
        self._clock = clock
        self._store = store
        self._attempts = attempts
        self._limits = limits or LeaseLimits()
        stored = store.leases()
        self._book = LeaseBook(stored.sound, clock.now_ms())
        self._damaged = DamagedLeases(stored.damaged)
        if (reason := self.collection_stopped_reason) is not None:
            logger.error("leases cannot be loaded", reason=reason)

    @property
    def collection_stopped_reason(self) -> str | None:
        """The reason why no KV snapshot may be collected, with the remedy; None if snapshots may be collected."""
        return self._damaged.collection_stopped_reason

    @property
    def lease_count(self) -> int:
        """The number of leases."""
        return len(self._book)

    @property
    def leased_snapshot_count(self) -> int:
        """The number of pinned snapshots. As in Fluss, a snapshot counts once for each lease that pins it."""
        return len(self._book.pins)

    @property
    def pins(self) -> PinnedSnapshots:
        """The pinned snapshots, for those who collect the others."""
        return self._book.pins

    def leases(self, lease_id: str | None = None) -> Sequence[KvSnapshotLease]:
        """Return the lease with this id, if it exists; without an id, all leases in the order of their ids."""
        if lease_id is not None:
            return [self._book.copy(lease_id)] if lease_id in self._book else []
        return [self._book.copy(each) for each in sorted(self._book)]

    def table_ids(self, lease_id: str) -> Collection[int] | None:
        """Return the ids of the tables that a lease pins; None if the lease could not be loaded."""
        return None if lease_id in self._damaged else self._book.pins.tables_of(lease_id)

    def left_ms(self, lease: KvSnapshotLease) -> int:
        """Return how long a lease still lasts, in milliseconds; 0 if it has expired."""
        return max(0, lease.expiration_time - self._clock.now_ms())

    def page(self, after: str, max_leases: int, max_snapshots: int) -> Sequence[KvSnapshotLease]:
        """Return the leases that follow a lease id in the order of ids.

        Args:
            after: The lease id; empty to begin with the first lease.
            max_leases: The largest number of leases.
            max_snapshots: The number of snapshots after which no further lease is returned.
        """
        return self._book.page(after, max_leases, max_snapshots)

    def reserve(
        self, lease_id: str, snapshots: Mapping[TableBucket, int]
    ) -> tuple[LeaseAttempt, Mapping[TableBucket, int]]:
        """Reserve an attempt that `acquire` begins once a cluster has pinned the snapshots.

        Returns:
            The attempt, and all snapshots that the lease then pins.

        Raises:
            FlussTieringError: See `acquire`.
        """
        self.require_acquirable(lease_id, snapshots)
        pinned = {**self._book.snapshots(lease_id), **snapshots}
        return self._attempts.reserve(self._store, lease_id, self._clock.now_ms()), pinned

    def present(self, lease_id: str, attempt_token: int | None = None) -> KvSnapshotLease | None:
        """Return a lease that has not expired; None if there is none or the attempt is stale."""
        lease = self._book.get(lease_id)
        if lease is None or lease.expiration_time < self._clock.now_ms():
            return None
        return None if self._attempts.is_stale(lease_id, attempt_token) else self._book.copy(lease_id)

    def require_acquirable(self, lease_id: str, snapshots: Mapping[TableBucket, int]) -> None:
        """Check whether a lease may pin these snapshots. Raises the errors of `acquire`."""
        self._damaged.refuse(lease_id)
        present = self._book.snapshots(lease_id)
        self._book.require_unmixed(lease_id, snapshots)
        self._limits.check(
            lease_id,
            leases=len(self._book) + (bool(snapshots) and lease_id not in self._book),
            snapshots=self.leased_snapshot_count + sum(bucket not in present for bucket in snapshots),
            lease_ids=self._attempts.count + (self._attempts.newest(lease_id) is None),
        )

    def acquire(
        self,
        lease_id: str,
        duration_ms: int,
        available: Mapping[TableBucket, int],
        unavailable: Mapping[TableBucket, int],
        attempt: LeaseAttempt | None = None,
    ) -> AcquiredLease:
        """Pin the available snapshots, renew the whole lease and begin an attempt.

        A bucket that the lease already pins is pinned at the new snapshot instead. No lease is made if it would pin
        nothing.

        Args:
            lease_id: The lease to create or extend.
            duration_ms: How long the lease lasts from now on, in milliseconds.
            available: The snapshots to pin, by bucket.
            unavailable: The requested snapshots that do not exist, by bucket. They are returned to the caller.
            attempt: The attempt that `reserve` returned; None to begin one now.

        Raises:
            FlussTieringError: INVALID_REQUEST if the lease would mix buckets with and without a partition of a table;
                CORRUPT_DATA if the lease could not be loaded; LIMIT_EXCEEDED if the server would keep too much.
        """
        self.require_acquirable(lease_id, available)
        now = self._clock.now_ms()
        present = self._book.get(lease_id)
        pinned = self._book.snapshots(lease_id)
        changed = {bucket: id_ for bucket, id_ in available.items() if pinned.get(bucket) != id_}
        attempt = attempt or self._attempts.next(lease_id, now)
        lease = KvSnapshotLease(
            lease_id=lease_id,
            acquired_time=present.acquired_time if present else now,
            expiration_time=now + duration_ms,
            attempt_token=attempt.attempt_token,
        )
        pins = bool(pinned or available)
        with self._store.transaction() as transaction:
            self._attempts.write(transaction, attempt)
            if pins:
                transaction.put_lease(replace(lease, snapshots=changed))
        self._attempts.remember(attempt)
        if pins:
            self._book.put(lease, changed)
        _log_acquired(lease, len(self._book.snapshots(lease_id)), unavailable)
        return AcquiredLease(lease_id, attempt.attempt_token, lease.expiration_time if pins else 0, dict(unavailable))

    def renew(self, durations_ms: Iterable[tuple[str, int]]) -> list[int | FlussTieringError]:
        """Renew leases.

        Returns:
            For each lease its new expiration time in milliseconds since the epoch, or the error that says why it was
            not renewed: KV_SNAPSHOT_LEASE_NOT_EXIST if it is unknown or expired, CORRUPT_DATA if it cannot be loaded.
        """
        now = self._clock.now_ms()
        answers: list[int | FlussTieringError] = []
        renewed: dict[str, KvSnapshotLease] = {}
        for lease_id, duration_ms in durations_ms:
            lease = self._book.get(lease_id)
            if lease_id in self._damaged:
                answers.append(self._damaged.error(lease_id))
                continue
            if lease is None or lease.expiration_time < now:
                answers.append(lease_not_exist(lease_id, lease))
                continue
            renewed[lease_id] = replace(lease, expiration_time=now + duration_ms)
            answers.append(now + duration_ms)
        if renewed:
            with self._store.transaction() as transaction:
                transaction.put_lease_expirations({each.lease_id: each.expiration_time for each in renewed.values()})
            self._book.update(renewed)
        return answers

    def allow_for_standstill(self, ms: int) -> None:
        """Give leases more time, because this server stood still and could not renew them.

        The next renewal writes it down. A restart does not know of it.

        Args:
            ms: How long this server stood still, in milliseconds.
        """
        began = self._clock.now_ms() - ms
        self._book.update(
            {
                lease.lease_id: replace(lease, expiration_time=lease.expiration_time + ms)
                for lease in self._book.leases()
                if lease.expiration_time >= began
            }
        )

    def release(self, lease_id: str, buckets: Iterable[TableBucket], attempt_token: int | None) -> bool:
        """Release buckets of a lease, and drop the lease with its last bucket.

        Returns:
            Whether it was done; False if the attempt is stale, and then nothing is changed.
        """
        if self._is_stale("release", lease_id, attempt_token):
            return False
        self._damaged.refuse(lease_id)
        self._release({lease_id: buckets})
        return True

    def drop(self, lease_id: str, attempt_token: int | None) -> LeaseDrop:
        """Drop a lease with everything that it pins, unless the attempt is stale."""
        if self._is_stale("drop", lease_id, attempt_token):
            return LeaseDrop.STALE
        if lease_id not in self._book and lease_id not in self._damaged:
            return LeaseDrop.UNKNOWN
        self._release({lease_id: None})
        return LeaseDrop.DROPPED

    def release_tables(self, table_ids: frozenset[int]) -> None:
        """Release every bucket of tables that were dropped."""
        released: dict[str, list[TableBucket]] = {}
        for table_id in table_ids:
            for lease_id, buckets in self._book.pins.of_table(table_id).items():
                released.setdefault(lease_id, []).extend(buckets)
        self._release(released)

    def drop_expired(self, lease_ids: Iterable[str] | None = None) -> Sequence[str]:
        """Drop the leases that have expired, of these ids or of all, and return their ids."""
        now = self._clock.now_ms()
        found = self._book.leases() if lease_ids is None else (self._book.get(lease_id) for lease_id in lease_ids)
        expired = [lease for lease in found if lease is not None and lease.expiration_time < now]
        for lease in expired:
            logger.warning("lease expired", lease_id=lease.lease_id, expiration_time=lease.expiration_time)
        self._release({lease.lease_id: None for lease in expired})
        return [lease.lease_id for lease in expired]

    def prune_attempts(self) -> None:
        """Forget old attempts: see `LeaseAttempts.prune`."""
        self._attempts.prune(self._store, self._clock.now_ms(), self._book)

    def _release(self, released: Mapping[str, Iterable[TableBucket] | None]) -> None:
        """Release buckets of leases, or whole leases where the value is None.

        Nothing stops being pinned in any other way. A lease is dropped with its last bucket. A bucket that the lease
        does not pin changes nothing.
        """
        changed: dict[str, dict[TableBucket, int] | None] = {}
        for lease_id, buckets in released.items():
            pinned = self._book.snapshots(lease_id)
            if buckets is None:
                changed[lease_id] = None
                continue
            gone = {bucket: pinned[bucket] for bucket in buckets if bucket in pinned}
            if gone:
                changed[lease_id] = None if len(gone) == len(pinned) else gone
        if not changed:
            return
        with self._store.transaction() as transaction:
            for lease_id, gone_of in changed.items():
                if gone_of is None:
                    transaction.delete_lease(lease_id)
                else:
                    transaction.delete_leased_snapshots(lease_id, gone_of.keys())
        for lease_id, gone_of in changed.items():
            if gone_of is None:
                self._book.remove(lease_id)
                self._damaged.discard(lease_id)
                logger.info("lease dropped", lease_id=lease_id)
            else:
                self._book.unpin(lease_id, gone_of)

    def _is_stale(self, verb: str, lease_id: str, attempt_token: int | None) -> bool:
        stale = self._attempts.is_stale(lease_id, attempt_token)
        if stale:
            newest = self._attempts.newest(lease_id)
            logger.warning(
                "release by a stale attempt ignored",
                verb=verb,
                lease_id=lease_id,
                attempt_token=attempt_token,
                newest_attempt_token=newest and newest.attempt_token,
            )
        return stale


def _log_acquired(lease: KvSnapshotLease, snapshots: int, unavailable: Mapping[TableBucket, int]) -> None:
    if unavailable:
        logger.warning(
            "snapshots to lease do not exist",
            lease_id=lease.lease_id,
            count=len(unavailable),
            unavailable=[_named(each) for each in islice(unavailable.items(), _NAMED)],
        )
    logger.info(
        "lease acquired",
        lease_id=lease.lease_id,
        attempt_token=lease.attempt_token,
        snapshots=snapshots,
        expiration_time=lease.expiration_time if snapshots else None,
    )


def lease_not_exist(lease_id: str, lease: KvSnapshotLease | None = None) -> FlussTieringError:
    """Return the error for a lease that does not exist, or that has expired."""
    what = "does not exist" if lease is None else f"expired at {iso_time(lease.expiration_time)}"
    return FlussTieringError(
        ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST,
        f"lease {lease_id} {what}: its snapshots are no longer safe to read; "
        "stop the round and acquire the lease again",
    )


def _named(snapshot: tuple[TableBucket, int]) -> str:
    return f"snapshot {snapshot[1]} of {snapshot[0]}"
