"""Which KV snapshots are pinned, by how many leases, and which are being collected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from fluss_tiering.model.table import TableBucket

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
