"""KV snapshot leases: a lease keeps KV snapshots from being collected. It locks nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from fluss_tiering.model.clock import Clock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import AcquiredLease, KvSnapshotLease, LeaseDrop
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.leases.attempts import LeaseAttempts
from fluss_tiering.server.leases.damaged import DamagedLeases
from fluss_tiering.server.store.protocol import TieringStore
from fluss_tiering.server.store.records import LeaseAttempt
from fluss_tiering.server.times import iso_time

logger = structlog.get_logger(__name__)


class KvSnapshotLeaseManager:
    """The leases of a server.

    It is used in the control thread only. Every change is written to the store before it is made in memory.
    """

    def __init__(self, clock: Clock, store: TieringStore, attempts: LeaseAttempts) -> None:
        self._clock = clock
        self._store = store
        self._attempts = attempts
        self._leases = {lease.lease_id: lease for lease in store.leases()}
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
        return sum(len(lease.snapshots) for lease in list(self._leases.values()))

    def leases(self, lease_id: str | None = None) -> Sequence[KvSnapshotLease]:
        """Return the lease with this id, if it exists; without an id, all leases in the order of their ids."""
        if lease_id is not None:
            return [self._leases[lease_id]] if lease_id in self._leases else []
        return sorted(self._leases.values(), key=lambda lease: lease.lease_id)

    def protected(self) -> frozenset[tuple[TableBucket, int]]:
        """Return the snapshots that must not be collected, as (bucket, snapshot id)."""
        return frozenset(pinned for lease in self._leases.values() for pinned in lease.snapshots.items())

    def reserve(
        self, lease_id: str, snapshots: Mapping[TableBucket, int]
    ) -> tuple[LeaseAttempt, Mapping[TableBucket, int]]:
        """Reserve an attempt that `acquire` begins once a cluster has pinned the snapshots.

        Returns:
            The attempt, and all snapshots that the lease then pins.

        Raises:
            FlussTieringError: See `acquire`.
        """
        self._damaged.refuse(lease_id)
        pinned = self._with(lease_id, snapshots)
        return self._attempts.reserve(lease_id, self._clock.now_ms()), pinned

    def present(self, lease_id: str, attempt_token: int | None = None) -> KvSnapshotLease | None:
        """Return a lease that has not expired; None if there is none or the attempt is stale."""
        lease = self._leases.get(lease_id)
        if lease is None or lease.expiration_time < self._clock.now_ms():
            return None
        return None if self._attempts.is_stale(lease_id, attempt_token) else lease

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
                CORRUPT_DATA if the lease could not be loaded.
        """
        self._damaged.refuse(lease_id)
        now = self._clock.now_ms()
        present = self._leases.get(lease_id)
        snapshots = self._with(lease_id, available)
        attempt = attempt or self._attempts.next(lease_id, now)
        lease = KvSnapshotLease(
            lease_id=lease_id,
            acquired_time=present.acquired_time if present else now,
            expiration_time=now + duration_ms,
            attempt_token=attempt.attempt_token,
            snapshots=snapshots,
        )
        with self._store.transaction() as transaction:
            self._attempts.write(transaction, attempt)
            if snapshots:
                transaction.put_lease(lease)
        self._attempts.remember(attempt)
        if snapshots:
            self._leases[lease_id] = lease
        _log_acquired(lease, unavailable)
        return AcquiredLease(
            lease_id, attempt.attempt_token, lease.expiration_time if snapshots else 0, dict(unavailable)
        )

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
        self._release({lease_id: frozenset(buckets)})
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
        self._release(
            {
                lease.lease_id: frozenset(bucket for bucket in lease.snapshots if bucket.table_id in table_ids)
                for lease in self._leases.values()
            }
        )

    def drop_expired(self) -> Sequence[str]:
        """Drop the leases that have expired, and return their ids."""
        now = self._clock.now_ms()
        expired = [lease.lease_id for lease in self._leases.values() if lease.expiration_time < now]
        for lease_id in expired:
            logger.warning("lease expired", lease_id=lease_id, expiration_time=self._leases[lease_id].expiration_time)
        self._release(dict.fromkeys(expired))
        self._attempts.prune(self._store, now, self._leases.keys())
        return expired

    def _with(self, lease_id: str, snapshots: Mapping[TableBucket, int]) -> dict[TableBucket, int]:
        """Return what the lease pins together with these snapshots."""
        present = self._leases.get(lease_id)
        pinned = {**(present.snapshots if present else {}), **snapshots}
        _check_partitions(lease_id, pinned)
        return pinned

    def _release(self, released: Mapping[str, frozenset[TableBucket] | None]) -> None:
        """Release buckets of leases, or whole leases where the value is None.

        Nothing stops being pinned in any other way. A lease is dropped with its last bucket. A bucket that the lease
        does not pin changes nothing.
        """
        changed: dict[str, KvSnapshotLease | None] = {}
        for lease_id, buckets in released.items():
            lease = self._leases.get(lease_id)
            if buckets is None:
                changed[lease_id] = None
            elif lease is not None and not buckets.isdisjoint(lease.snapshots):
                kept = {bucket: id_ for bucket, id_ in lease.snapshots.items() if bucket not in buckets}
                changed[lease_id] = replace(lease, snapshots=kept) if kept else None
        self._write(changed)

    def _write(self, changed: Mapping[str, KvSnapshotLease | None]) -> None:
        """Write changed leases to the store, then change them in memory. None drops a lease."""
        if not changed:
            return
        with self._store.transaction() as transaction:
            for lease_id, lease in changed.items():
                if lease is None:
                    transaction.delete_lease(lease_id)
                else:
                    transaction.put_lease(lease)
        for lease_id, lease in changed.items():
            if lease is None:
                self._leases.pop(lease_id, None)
                self._damaged.discard(lease_id)
                logger.info("lease dropped", lease_id=lease_id)
            else:
                self._leases[lease_id] = lease

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


def _check_partitions(lease_id: str, snapshots: Mapping[TableBucket, int]) -> None:
    kinds: dict[int, bool] = {}
    for bucket in snapshots:
        if kinds.setdefault(bucket.table_id, bucket.partition_id is None) is not (bucket.partition_id is None):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"lease {lease_id} mixes buckets with and without a partition of table {bucket.table_id}: "
                "a table is either partitioned or not",
            )


def _log_acquired(lease: KvSnapshotLease, unavailable: Mapping[TableBucket, int]) -> None:
    if unavailable:
        logger.warning(
            "snapshots to lease do not exist",
            lease_id=lease.lease_id,
            unavailable=[_named(each) for each in unavailable.items()],
        )
    logger.info(
        "lease acquired",
        lease_id=lease.lease_id,
        attempt_token=lease.attempt_token,
        snapshots=len(lease.snapshots),
        expiration_time=lease.expiration_time if lease.snapshots else None,
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
