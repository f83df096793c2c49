"""The leases in memory, and which KV snapshots they pin."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import KvSnapshotLease

Snapshot: TypeAlias = tuple[TableBucket, int]
"""A KV snapshot: its bucket and its id."""


class PinnedSnapshots:
    """The pins of all leases, found by snapshot and by table without a search through the leases.

    An acquire holds the snapshots that it is about to pin, while it finds out whether they exist. Collecting claims
    snapshots before it deletes them. A snapshot is never both: so none is deleted between the look and the pin.
    """

    def __init__(self) -> None:
        self._size = 0
        self._pins: Counter[Snapshot] = Counter()
        self._held: Counter[Snapshot] = Counter()
        self._collected: set[Snapshot] = set()
        self._by_table: dict[int, dict[str, set[TableBucket]]] = {}

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self._pins)

    def __len__(self) -> int:
        """Return the number of pins. A snapshot counts once for each lease that pins it."""
        return self._size

    @property
    def table_ids(self) -> Collection[int]:
        """The ids of the tables that have pinned snapshots."""
        return self._by_table.keys()

    def add(self, lease_id: str, snapshots: Mapping[TableBucket, int]) -> None:
        """Pin snapshots that a lease did not pin before."""
        for bucket, snapshot_id in snapshots.items():
            self._size += 1
            self._pins[bucket, snapshot_id] += 1
            self._by_table.setdefault(bucket.table_id, {}).setdefault(lease_id, set()).add(bucket)

    def remove(self, lease_id: str, snapshots: Mapping[TableBucket, int]) -> None:
        """Unpin snapshots that a lease pinned."""
        for bucket, snapshot_id in snapshots.items():
            self._size -= 1
            _take(self._pins, (bucket, snapshot_id))
            leases = self._by_table[bucket.table_id]
            leases[lease_id].discard(bucket)
            if not leases[lease_id]:
                del leases[lease_id]
            if not leases:
                del self._by_table[bucket.table_id]

    def of_table(self, table_id: int) -> dict[str, frozenset[TableBucket]]:
        """Return the buckets of a table that are pinned, by lease id."""
        return {lease_id: frozenset(buckets) for lease_id, buckets in self._by_table.get(table_id, {}).items()}

    def tables_of(self, lease_id: str) -> list[int]:
        """Return the ids of the tables that a lease pins."""
        return [table_id for table_id, leases in self._by_table.items() if lease_id in leases]

    def any_of(self, table_id: int, lease_id: str) -> TableBucket | None:
        """Return one of the buckets of a table that a lease pins; None if it pins none."""
        return next(iter(self._by_table.get(table_id, {}).get(lease_id, ())), None)

    def hold(self, snapshots: Mapping[TableBucket, int]) -> dict[TableBucket, int]:
        """Keep snapshots from being collected until `let_go`, and return those that are not being collected already."""
        held = {bucket: id_ for bucket, id_ in snapshots.items() if (bucket, id_) not in self._collected}
        self._held.update(held.items())
        return held

    def let_go(self, snapshots: Mapping[TableBucket, int]) -> None:
        """End what `hold` began, for the snapshots that it returned."""
        for snapshot in snapshots.items():
            _take(self._held, snapshot)

    def claim_for_collection(self, snapshots: Iterable[Snapshot]) -> list[Snapshot]:
        """Claim the snapshots that may be deleted: no lease pins them, and nobody is about to. Return them."""
        free = [each for each in snapshots if each not in self._pins and each not in self._held]
        self._collected.update(free)
        return free

    def collected(self, snapshots: Iterable[Snapshot]) -> None:
        """End what `claim_for_collection` began: the snapshots were deleted, or could not be."""
        self._collected.difference_update(snapshots)


def _take(counter: Counter[Snapshot], snapshot: Snapshot) -> None:
    counter[snapshot] -= 1
    if not counter[snapshot]:
        del counter[snapshot]


_NONE: Final[Mapping[TableBucket, int]] = MappingProxyType({})


class LeaseBook:
    """The leases that are in the store, by id. A change does work for what it changes, not for the whole lease.

    Args:
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
