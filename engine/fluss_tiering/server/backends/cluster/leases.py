"""KV snapshot leases on a Fluss cluster: snapshots are pinned at the cluster first, then recorded by this server.

Each attempt under a lease id has a lease of its own at the cluster, which pins everything that the lease pins then. So
a late release of an old attempt cannot unpin what a newer attempt pinned, whatever happens to the call on its way.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import AcquiredLease, KvSnapshotLease, LeaseDrop
from fluss_tiering.server.core.managers import Managers, require_leasable
from fluss_tiering.server.core.threads import Locks, ServerThreads
from fluss_tiering.storage.fluss.rpc.calls.kv import (
    acquire_lease,
    drop_lease,
    kv_snapshot_files,
    release_lease,
)
from fluss_tiering.storage.fluss.rpc.client import AsyncFlussClient
from fluss_tiering.storage.protocol import TableStorage

_LONGER_MS: Final = 60_000
"""A lease at the cluster lasts longer than the recorded one by this, so that recorded snapshots are always pinned."""
_WITHIN_S: Final = 10.0
"""The time limit of a call about a lease. It is short, because callers have other leases to care for and try again."""
_REFUSED_AGAIN_S: Final = 60.0
_NO_ANSWER: Final = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER})
_PROVEN_AT_ONCE: Final = 16
_NAME_CHARS: Final = 80

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Pinned:
    """The buckets that may be pinned at the cluster under one of the cluster's lease ids.

    Attributes:
        lease_id: The id of the lease on this server.
        until: The time on the monotonic clock after which the cluster has dropped its lease.
        tried_again_at: The time on the monotonic clock before which a release that was refused is not tried again.
    """

    lease_id: str
    buckets: frozenset[TableBucket]
    until: float
    tried_again_at: float = 0.0


def cluster_lease_id(lease_id: str, attempt_token: int) -> str:
    """Return the id that the lease of an attempt has at the cluster.

    Fluss names a node in ZooKeeper and a folder by it. A slash would hide the lease from a coordinator that starts
    again, and a long name would be refused. The hash keeps ids apart that are equal after they are shortened.
    """
    readable = re.sub(r"[^A-Za-z0-9_.-]", "-", lease_id)[:_NAME_CHARS].strip(".")
    digest = hashlib.sha256(lease_id.encode()).hexdigest()[:16]
    return f"{readable}-{digest}-{attempt_token}"


class ClusterLeases:
    """A `LeaseService` whose leases pin snapshots of a cluster. It is used on the event loop only."""

    def __init__(
        self, client: AsyncFlussClient, threads: ServerThreads, storage: TableStorage, managers: Managers
    ) -> None:
        self._client = client
        self._threads = threads
        self._storage = storage
        self._leases = managers.leases
        self._locks = Locks()
        self._pinned: dict[str, _Pinned] = {}
        self._proving = asyncio.Semaphore(_PROVEN_AT_ONCE)

    async def load(self) -> None:
        """Load the leases that were recorded before this server started, which still pin snapshots at the cluster."""
        for lease in await self._threads.control(self._leases.leases):
            self._note(lease.lease_id, _name(lease), lease.snapshots, self._leases.left_ms(lease))

    async def acquire(
        self, lease_id: str, duration_ms: int, snapshots: Mapping[TableBucket, int], *, allow_empty: bool
    ) -> AcquiredLease:
        """Pin snapshots at the cluster, then check that they exist, because the cluster pins them without a check.

        After an error the recorded lease is unchanged, and `tidy` releases what was pinned.

        Raises:
            FlussTieringError: The errors of `LeaseService.acquire`; UNAVAILABLE if the cluster does not answer;
                UNSUPPORTED_VERSION if the cluster has no leases.
        """
        await self._threads.storage(require_leasable, self._storage, lease_id, snapshots, allow_empty=allow_empty)
        async with self._locks.of(lease_id):
            # An expired lease may no longer be pinned, so a new attempt does not continue it.
            await self._threads.control(self._leases.drop_expired, [lease_id])
            attempt, pinned = await self._threads.control(self._leases.reserve, lease_id, snapshots)
            unavailable: dict[TableBucket, int] = {}
            if pinned:
                name = cluster_lease_id(lease_id, attempt.attempt_token)
                # This is noted before the call, because a call that fails may have pinned the snapshots.
                self._note(lease_id, name, pinned, duration_ms)
                refused = await self._pin(name, duration_ms, pinned)
                unavailable = {**refused, **await self._missing(snapshots)}
            available = {bucket: id_ for bucket, id_ in snapshots.items() if bucket not in unavailable}
            return await self._threads.control(
                self._leases.acquire, lease_id, duration_ms, available, unavailable, attempt
            )

    async def renew(self, durations_ms: Sequence[tuple[str, int]]) -> list[int | FlussTieringError]:
        """Renew leases at the cluster, then the recorded ones, each on its own."""
        return list(await asyncio.gather(*(self._renew(lease_id, each) for lease_id, each in durations_ms)))

    async def release(self, lease_id: str, buckets: Iterable[TableBucket], attempt_token: int | None) -> bool:
        """Release buckets at the cluster, and only then in the recorded lease.

        Raises:
            FlussTieringError: UNAVAILABLE if the cluster does not answer. The recorded lease is unchanged then, and the
                caller tries again.
        """
        buckets = frozenset(buckets)
        async with self._locks.of(lease_id):
            lease = await self._threads.control(self._leases.present, lease_id, attempt_token)
            if lease is not None and not buckets.isdisjoint(lease.snapshots):
                await self._unpin(_name(lease), lease.snapshots.keys() - buckets, buckets & lease.snapshots.keys())
            return await self._threads.control(self._leases.release, lease_id, buckets, attempt_token)

    async def drop(self, lease_id: str, attempt_token: int | None) -> LeaseDrop:
        """Drop a lease at the cluster, and only then the recorded one. Raises the errors of `release`."""
        async with self._locks.of(lease_id):
            lease = await self._threads.control(self._leases.present, lease_id, attempt_token)
            if lease is not None:
                await self._unpin(_name(lease), frozenset(), frozenset(lease.snapshots))
            return await self._threads.control(self._leases.drop, lease_id, attempt_token)

    async def tidy(self) -> None:
        """Release at the cluster what no recorded lease pins, until the cluster confirms it or its lease expires.

        These are buckets of older attempts, of calls that failed, of snapshots that do not exist, of expired leases and
        of dropped tables.

        A release that the cluster refuses is tried again later, and keeps no other from being tried.

        Raises:
            FlussTieringError: UNAVAILABLE if the cluster does not answer. The next call tries again.
        """
        for name, pinned in list(self._pinned.items()):
            if pinned.until < time.monotonic():
                self._pinned.pop(name, None)
            elif pinned.tried_again_at <= time.monotonic() and pinned.buckets - await self._recorded(
                name, pinned.lease_id
            ):
                # The lock waits for a call that is about to record the lease.
                async with self._locks.of(pinned.lease_id):
                    await self._try_to_tidy(name, pinned)

    async def _try_to_tidy(self, name: str, pinned: _Pinned) -> None:
        try:
            await self._tidy(name)
        except FlussTieringError as error:
            if error.code in _NO_ANSWER:
                raise
            pinned.tried_again_at = time.monotonic() + _REFUSED_AGAIN_S
            logger.error(
                "release of snapshots at the cluster refused",
                lease_id=pinned.lease_id,
                code=error.code.value,
                error=error.message,
            )

    async def _tidy(self, name: str) -> None:
        pinned = self._pinned.get(name)
        if pinned is None:
            return
        kept = await self._recorded(name, pinned.lease_id)
        released = pinned.buckets - kept
        if released:
            await self._unpin(name, kept, released)
            logger.info("snapshots released at the cluster", lease_id=pinned.lease_id, snapshots=len(released))

    async def _renew(self, lease_id: str, duration_ms: int) -> int | FlussTieringError:
        async with self._locks.of(lease_id):
            lease = await self._threads.control(self._leases.present, lease_id)
            if lease is not None:
                self._note(lease_id, _name(lease), lease.snapshots, duration_ms)
                try:
                    await self._pin(_name(lease), duration_ms, lease.snapshots)
                except FlussTieringError as error:
                    return error
            # The manager refuses unknown, expired and damaged leases.
            (renewed,) = await self._threads.control(self._leases.renew, [(lease_id, duration_ms)])
            return renewed

    async def _pin(self, name: str, duration_ms: int, snapshots: Mapping[TableBucket, int]) -> dict[TableBucket, int]:
        call = acquire_lease(name, duration_ms + _LONGER_MS, snapshots)
        try:
            return await self._client.call(call, within=_WITHIN_S)
        except FlussTieringError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                del self._pinned[name]  # the call was not sent
            raise

    async def _missing(self, snapshots: Mapping[TableBucket, int]) -> dict[TableBucket, int]:
        proofs = await asyncio.gather(*(self._exists(bucket, id_) for bucket, id_ in snapshots.items()))
        return {bucket: id_ for (bucket, id_), exists in zip(snapshots.items(), proofs, strict=True) if not exists}

    async def _exists(self, bucket: TableBucket, snapshot_id: int) -> bool:
        async with self._proving:
            try:
                await self._client.call(kv_snapshot_files(bucket, snapshot_id), within=_WITHIN_S)
            except FlussTieringError as error:
                if error.code is not ErrorCode.KV_SNAPSHOT_NOT_EXIST:
                    raise
                return False
            return True

    async def _recorded(self, name: str, lease_id: str) -> frozenset[TableBucket]:
        leases = await self._threads.control(self._leases.leases, lease_id)
        return frozenset(bucket for lease in leases if _name(lease) == name for bucket in lease.snapshots)

    async def _unpin(self, name: str, kept: Iterable[TableBucket], released: frozenset[TableBucket]) -> None:
        """Release buckets at the cluster, or drop the cluster's lease if none is kept."""
        kept = frozenset(kept)
        await self._client.call(release_lease(name, released) if kept else drop_lease(name), within=_WITHIN_S)
        pinned = self._pinned.get(name)
        if kept and pinned is not None:
            pinned.buckets -= released
        else:
            self._pinned.pop(name, None)

    def _note(self, lease_id: str, name: str, buckets: Iterable[TableBucket], duration_ms: int) -> None:
        """Note buckets that may be pinned from now on, beside those that could not be released yet."""
        until = time.monotonic() + (duration_ms + _LONGER_MS) / 1000
        pinned = self._pinned.setdefault(name, _Pinned(lease_id, frozenset(), until))
        pinned.buckets |= frozenset(buckets)
        pinned.until = max(pinned.until, until)


def _name(lease: KvSnapshotLease) -> str:
    return cluster_lease_id(lease.lease_id, lease.attempt_token)
