"""KV snapshot leases: a lease keeps KV snapshots from being collected. It locks nothing."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import structlog

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import AcquiredLease, KvSnapshotLease, LeaseDrop
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.leases.attempts import LeaseAttempts
from fluss_tiering.server.leases.damaged import DamagedLeases
from fluss_tiering.server.leases.limits import LeaseLimits
from fluss_tiering.server.leases.pins import PinnedSnapshots, Snapshot
from fluss_tiering.server.store.protocol import TieringStore
from fluss_tiering.server.store.records import LeaseAttempt
from fluss_tiering.server.times import iso_time

PINS_AT_ONCE: Final = 2_000
"""About how many pins one call should change, so that heartbeats do not wait long for it. See `leases.turns`."""

_NAMED: Final = 100
"""How many snapshots that do not exist one line of the log names."""

logger = structlog.get_logger(__name__)


class KvSnapshotLeaseManager:
    """The leases of a server.

    It is used in the control thread only. Every change is written to the store before it is made in memory. A change
    writes and looks at what it changes, not at the whole lease.
    """

    def __init__(
        self, clock: Clock, store: TieringStore, attempts: LeaseAttempts, limits: LeaseLimits | None = None
    ) -> None:
        self._clock = clock
        self._store = store
        self._attempts = attempts
        self._limits = limits or LeaseLimits()
        # The snapshots of a lease are a dictionary that is changed in place. Whoever else gets a lease gets a copy.
        self._leases: dict[str, KvSnapshotLease] = {}
        self._snapshots: dict[str, dict[TableBucket, int]] = {}
        self._pins = PinnedSnapshots()
        now = clock.now_ms()
        for lease in store.leases():
            self._put(replace(_without_future(lease, now), snapshots={}), lease.snapshots)
        self._damaged = DamagedLeases(store.damaged_leases())
        if (reason := self.collection_stopped_reason) is not None:
            logger.error("leases cannot be loaded", reason=reason)

    @property
    def collection_stopped_reason(self) -> str | None:
        """The reason why no KV snapshot may be collected, with the remedy; None if snapshots may be collected."""
        return self._damaged.collection_stopped_reason

    @property
    def lease_count(self) -> int:
        """The number of leases."""
        return len(self._leases)

    @property
    def leased_snapshot_count(self) -> int:
        """The number of pinned snapshots. As in Fluss, a snapshot counts once for each lease that pins it."""
        return len(self._pins)

    @property
    def pins(self) -> PinnedSnapshots:
        """The pinned snapshots, for those who collect the others."""
        return self._pins

    def leases(self, lease_id: str | None = None) -> Sequence[KvSnapshotLease]:
        """Return the lease with this id, if it exists; without an id, all leases in the order of their ids."""
        if lease_id is not None:
            return [self._copy(lease_id)] if lease_id in self._leases else []
        return [self._copy(each) for each in sorted(self._leases)]

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
        found: list[KvSnapshotLease] = []
        snapshots = 0
        for lease_id in heapq.nsmallest(max_leases, (each for each in self._leases if each > after)):
            if snapshots >= max_snapshots:
                break
            found.append(self._copy(lease_id))
            snapshots += len(found[-1].snapshots)
        return found

    def protected(self) -> frozenset[Snapshot]:
        """Return the snapshots that must not be collected, as (bucket, snapshot id)."""
        return frozenset(self._pins)

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
        pinned = {**self._snapshots.get(lease_id, {}), **snapshots}
        return self._attempts.reserve(self._store, lease_id, self._clock.now_ms()), pinned

    def present(self, lease_id: str, attempt_token: int | None = None) -> KvSnapshotLease | None:
        """Return a lease that has not expired; None if there is none or the attempt is stale."""
        lease = self._leases.get(lease_id)
        if lease is None or lease.expiration_time < self._clock.now_ms():
            return None
        return None if self._attempts.is_stale(lease_id, attempt_token) else self._copy(lease_id)

    def require_acquirable(self, lease_id: str, snapshots: Mapping[TableBucket, int]) -> None:
        """Check whether a lease may pin these snapshots. Raises the errors of `acquire`."""
        self._damaged.refuse(lease_id)
        present = self._snapshots.get(lease_id, {})
        _check_partitions(lease_id, snapshots, self._kinds(lease_id, snapshots))
        self._limits.check(
            lease_id,
            leases=len(self._leases) + (bool(snapshots) and lease_id not in self._leases),
            snapshots=self.leased_snapshot_count + sum(bucket not in present for bucket in snapshots),
            lease_ids=self._attempts.count + (self._attempts.newest(lease_id) is None),
        )

    def pin_ahead(
        self,
        lease_id: str,
        duration_ms: int,
        snapshots: Mapping[TableBucket, int],
        attempt: LeaseAttempt | None = None,
    ) -> None:
        """Pin some of the snapshots of an acquire that has too many for one call. It begins no attempt.

        Buckets that the lease pins already stay as they are until the acquire itself.

        Args:
            lease_id: The lease to create or extend.
            duration_ms: How long a new lease lasts from now on, in milliseconds.
            snapshots: The snapshots to pin, by bucket.
            attempt: The attempt that `reserve` returned; None without a cluster. The cluster knows a lease by the token
                of its attempt. So a new lease gets this token, and a lease of another attempt stays as it is.

        Raises:
            FlussTieringError: See `acquire`.
        """
        self.require_acquirable(lease_id, snapshots)
        now = self._clock.now_ms()
        present = self._snapshots.get(lease_id, {})
        added = {bucket: id_ for bucket, id_ in snapshots.items() if bucket not in present}
        newest = attempt or self._attempts.newest(lease_id)
        if attempt is not None and present and self._leases[lease_id].attempt_token != attempt.attempt_token:
            return
        lease = self._leases.get(lease_id) or KvSnapshotLease(
            lease_id, now, now + duration_ms, newest.attempt_token if newest else 0
        )
        if added:
            with self._store.transaction() as transaction:
                transaction.put_lease(replace(lease, snapshots=added))
            self._put(lease, added)

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
        present = self._leases.get(lease_id)
        pinned = self._snapshots.get(lease_id, {})
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
            self._put(lease, changed)
        _log_acquired(lease, len(self._snapshots.get(lease_id, ())), unavailable)
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
            lease = self._leases.get(lease_id)
            if lease_id in self._damaged:
                answers.append(self._damaged.error(lease_id))
                continue
            if lease is None or lease.expiration_time < now:
                answers.append(_not_exist(lease_id, lease))
                continue
            renewed[lease_id] = replace(lease, expiration_time=now + duration_ms)
            answers.append(now + duration_ms)
        if renewed:
            with self._store.transaction() as transaction:
                transaction.put_lease_expirations({each.lease_id: each.expiration_time for each in renewed.values()})
            self._leases.update(renewed)
        return answers

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

    def token_to_drop(self, lease_id: str, attempt_token: int | None) -> int | None:
        """Return the attempt token of a lease that a caller may drop; None if there is none, or the caller is stale."""
        lease = self._leases.get(lease_id)
        return None if lease is None or self._attempts.is_stale(lease_id, attempt_token) else lease.attempt_token

    def release_some(self, lease_id: str, attempt_token: int, at_once: int, *, expired: bool = False) -> bool:
        """Release some buckets of a lease that is being dropped and has too many for one call.

        Args:
            lease_id: The lease.
            attempt_token: The token of the lease when the drop began. A newer attempt has pins of its own.
            at_once: The number of buckets to release.
            expired: Whether the lease is dropped because it has expired. It may have been renewed meanwhile.

        Returns:
            Whether there were so many. If not, nothing was released, and the lease can be dropped in one call.
        """
        lease = self._leases.get(lease_id)
        if lease is None or lease.attempt_token != attempt_token or len(self._snapshots[lease_id]) <= at_once:
            return False
        if expired and lease.expiration_time >= self._clock.now_ms():
            return False
        self._release({lease_id: list(islice(self._snapshots[lease_id], at_once))})
        return True

    def drop(self, lease_id: str, attempt_token: int | None) -> LeaseDrop:
        """Drop a lease with everything that it pins, unless the attempt is stale."""
        if self._is_stale("drop", lease_id, attempt_token):
            return LeaseDrop.STALE
        if lease_id not in self._leases and lease_id not in self._damaged:
            return LeaseDrop.UNKNOWN
        self._release({lease_id: None})
        return LeaseDrop.DROPPED

    def release_tables(self, table_ids: frozenset[int]) -> None:
        """Release every bucket of tables that were dropped."""
        released: dict[str, list[TableBucket]] = {}
        for table_id in table_ids:
            for lease_id, buckets in self._pins.of_table(table_id).items():
                released.setdefault(lease_id, []).extend(buckets)
        self._release(released)

    def expired(self) -> list[tuple[str, int, int]]:
        """Return the leases that have expired: their ids, attempt tokens, and numbers of pinned snapshots."""
        now = self._clock.now_ms()
        return [
            (lease.lease_id, lease.attempt_token, len(self._snapshots[lease.lease_id]))
            for lease in self._leases.values()
            if lease.expiration_time < now
        ]

    def drop_expired(self, lease_ids: Iterable[str] | None = None) -> Sequence[str]:
        """Drop the leases that have expired, of these ids or of all, and return their ids."""
        now = self._clock.now_ms()
        looked_at = list(self._leases) if lease_ids is None else lease_ids
        found = (self._leases.get(lease_id) for lease_id in looked_at)
        expired = [lease for lease in found if lease is not None and lease.expiration_time < now]
        for lease in expired:
            logger.warning("lease expired", lease_id=lease.lease_id, expiration_time=lease.expiration_time)
        self._release({lease.lease_id: None for lease in expired})
        return [lease.lease_id for lease in expired]

    def prune_attempts(self) -> bool:
        """Forget old attempts, and return whether more are left: see `LeaseAttempts.prune`."""
        return self._attempts.prune(self._store, self._clock.now_ms(), self._leases.keys())

    def _release(self, released: Mapping[str, Iterable[TableBucket] | None]) -> None:
        """Release buckets of leases, or whole leases where the value is None.

        Nothing stops being pinned in any other way. A lease is dropped with its last bucket. A bucket that the lease
        does not pin changes nothing.
        """
        changed: dict[str, dict[TableBucket, int] | None] = {}
        for lease_id, buckets in released.items():
            pinned = self._snapshots.get(lease_id, {})
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
                self._remove(lease_id)
            else:
                self._pins.remove(lease_id, gone_of)
                for bucket in gone_of:
                    del self._snapshots[lease_id][bucket]

    def _remove(self, lease_id: str) -> None:
        self._leases.pop(lease_id, None)
        self._pins.remove(lease_id, self._snapshots.pop(lease_id, {}))
        self._damaged.discard(lease_id)
        logger.info("lease dropped", lease_id=lease_id)

    def _put(self, lease: KvSnapshotLease, changed: Mapping[TableBucket, int]) -> None:
        """Make a written lease the present one, and pin what changed."""
        pinned = self._snapshots.setdefault(lease.lease_id, {})
        self._pins.remove(lease.lease_id, {bucket: pinned[bucket] for bucket in changed if bucket in pinned})
        self._pins.add(lease.lease_id, changed)
        pinned.update(changed)
        self._leases[lease.lease_id] = lease

    def _copy(self, lease_id: str) -> KvSnapshotLease:
        return replace(self._leases[lease_id], snapshots=dict(self._snapshots[lease_id]))

    def _kinds(self, lease_id: str, snapshots: Mapping[TableBucket, int]) -> dict[int, bool]:
        """Return which of the tables of these snapshots the lease pins without a partition, by table id."""
        tables = {bucket.table_id for bucket in snapshots}
        buckets = {table_id: self._pins.any_of(table_id, lease_id) for table_id in tables}
        return {table_id: each.partition_id is None for table_id, each in buckets.items() if each is not None}

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


def _without_future(lease: KvSnapshotLease, now: int) -> KvSnapshotLease:
    """Return a stored lease whose time does not begin in the future, as if it had been acquired now.

    A server whose clock was ahead may have stored it, and it would pin its snapshots until then.
    """
    ahead = max(0, lease.acquired_time - now)
    return replace(lease, acquired_time=lease.acquired_time - ahead, expiration_time=lease.expiration_time - ahead)


def _check_partitions(lease_id: str, snapshots: Iterable[TableBucket], kinds: dict[int, bool]) -> None:
    for bucket in snapshots:
        if kinds.setdefault(bucket.table_id, bucket.partition_id is None) is not (bucket.partition_id is None):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"lease {lease_id} mixes buckets with and without a partition of table {bucket.table_id}: "
                "a table is either partitioned or not",
            )


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


def _not_exist(lease_id: str, lease: KvSnapshotLease | None) -> FlussTieringError:
    what = "does not exist" if lease is None else f"expired at {iso_time(lease.expiration_time)}"
    return FlussTieringError(
        ErrorCode.KV_SNAPSHOT_LEASE_NOT_EXIST,
        f"lease {lease_id} {what}: its snapshots are no longer safe to read; "
        "stop the round and acquire the lease again",
    )


def _named(snapshot: tuple[TableBucket, int]) -> str:
    return f"snapshot {snapshot[1]} of {snapshot[0]}"
