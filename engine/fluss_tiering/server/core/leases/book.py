"""The leases in memory, with the snapshots that each pins."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import KvSnapshotLease
from fluss_tiering.server.core.leases.pins import PinnedSnapshots

_NONE: Final[Mapping[TableBucket, int]] = MappingProxyType({})


class LeaseBook:
    """The leases that are in the store, by id. A change does work for what it changes, not for the whole lease.

    Args:
        leases: The stored leases.
        now: The present time, in milliseconds since the epoch. A lease that was acquired behind it counts as acquired
            now: a server whose clock was ahead stored it, and it would pin its snapshots until then.

    Attributes:
        pins: The pins of all leases.
    """

    def __init__(self, leases: Iterable[KvSnapshotLease], now: int) -> None:
        # The snapshots of a lease are a dictionary that is changed in place. Whoever else gets a lease gets a copy.
        self._leases: dict[str, KvSnapshotLease] = {}
        self._snapshots: dict[str, dict[TableBucket, int]] = {}
        self.pins = PinnedSnapshots()
        for each in leases:
            self.put(_without_future(each, now), each.snapshots)

    def __contains__(self, lease_id: object) -> bool:
        return lease_id in self._leases

    def __iter__(self) -> Iterator[str]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, lease_id: str) -> KvSnapshotLease | None:
        """Return a lease without its snapshots; None if there is none."""
        return self._leases.get(lease_id)

    def leases(self) -> Sequence[KvSnapshotLease]:
        """Return all leases without their snapshots."""
        return list(self._leases.values())

    def snapshots(self, lease_id: str) -> Mapping[TableBucket, int]:
        """Return the snapshots that a lease pins, by bucket. Later changes of the lease change the mapping."""
        return self._snapshots.get(lease_id, _NONE)

    def copy(self, lease_id: str) -> KvSnapshotLease:
        """Return a lease with its snapshots. The caller may keep it."""
        return replace(self._leases[lease_id], snapshots=dict(self._snapshots[lease_id]))

    def page(self, after: str, max_leases: int, max_snapshots: int) -> Sequence[KvSnapshotLease]:
        """Return the leases that follow a lease id in the order of ids: see `KvSnapshotLeaseManager.page`."""
        found: list[KvSnapshotLease] = []
        snapshots = 0
        for lease_id in heapq.nsmallest(max_leases, (each for each in self._leases if each > after)):
            if snapshots >= max_snapshots:
                break
            found.append(self.copy(lease_id))
            snapshots += len(found[-1].snapshots)
        return found

    def require_unmixed(self, lease_id: str, snapshots: Collection[TableBucket]) -> None:
        """Check that a lease that pins these buckets too does not take a table for partitioned and for unpartitioned.

        Raises:
            FlussTieringError: INVALID_REQUEST if it would.
        """
        pinned = (
            (table_id, self.pins.any_of(table_id, lease_id)) for table_id in {each.table_id for each in snapshots}
        )
        unpartitioned = {table_id: each.partition_id is None for table_id, each in pinned if each is not None}
        for bucket in snapshots:
            is_unpartitioned = bucket.partition_id is None
            if unpartitioned.setdefault(bucket.table_id, is_unpartitioned) is not is_unpartitioned:
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"lease {lease_id} mixes buckets with and without a partition of table {bucket.table_id}: "
                    "a table is either partitioned or not",
                )

    def put(self, lease: KvSnapshotLease, changed: Mapping[TableBucket, int]) -> None:
        """Make a lease the present one of its id, and let it pin what changed instead of what it pinned there before.

        Args:
            lease: The lease. Its snapshots are ignored.
            changed: The snapshots to pin, by bucket.
        """
        pinned = self._snapshots.setdefault(lease.lease_id, {})
        self.pins.remove(lease.lease_id, {bucket: pinned[bucket] for bucket in changed if bucket in pinned})
        self.pins.add(lease.lease_id, changed)
        pinned.update(changed)
        self._leases[lease.lease_id] = replace(lease, snapshots={})

    def update(self, leases: Mapping[str, KvSnapshotLease]) -> None:
        """Make leases the present ones of their ids, which are known. What they pin stays."""
        self._leases.update(leases)

    def unpin(self, lease_id: str, snapshots: Mapping[TableBucket, int]) -> None:
        """Let a lease pin these snapshots no longer, which it pins."""
        self.pins.remove(lease_id, snapshots)
        for bucket in snapshots:
            del self._snapshots[lease_id][bucket]

    def remove(self, lease_id: str) -> None:
        """Remove a lease and its pins. Nothing happens if there is none."""
        self._leases.pop(lease_id, None)
        self.pins.remove(lease_id, self._snapshots.pop(lease_id, {}))


def _without_future(lease: KvSnapshotLease, now: int) -> KvSnapshotLease:
    ahead = max(0, lease.acquired_time - now)
    return replace(lease, acquired_time=lease.acquired_time - ahead, expiration_time=lease.expiration_time - ahead)
