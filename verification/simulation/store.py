"""Stores that outlive the simulated server: one in memory, and one that adds faults to another store.

Faults happen in transactions. The server dies before a transaction is durable, or after this and before anybody is
told; or the disk is full, and nothing is changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.model.tiering import KvSnapshotLease, TieringRound, TieringState, TieringStatus
from fluss_tiering.server.core.store.records import CommittedLakeSnapshot, LeaseAttempt, RoundsPage
from fluss_tiering.server.core.store.rows import StoredLeases
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.server.core.store.transaction import SqlTransaction


class ServerCrash(BaseException):
    """The server dies here. No error handler may catch this."""


class MemoryStore:
    """What `SqlTieringStore` does, in dictionaries."""

    def __init__(self) -> None:
        self._leases: dict[str, KvSnapshotLease] = {}
        self._attempts: dict[str, LeaseAttempt] = {}
        self._attempt_token = 0
        self._coordinator_epoch = 0
        self._statuses: dict[int, TieringStatus] = {}
        self._rounds: dict[int, dict[int, TieringRound]] = {}
        self._snapshots: dict[int, list[CommittedLakeSnapshot]] = {}

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        transaction = MemoryTransaction(self)
        yield transaction
        for write in transaction.writes:
            write()

    def leases(self) -> StoredLeases:
        return StoredLeases(list(self._leases.values()), {})

    def attempts(self) -> Sequence[LeaseAttempt]:
        return list(self._attempts.values())

    def attempt_token(self) -> int:
        return self._attempt_token

    def coordinator_epoch(self) -> int:
        return self._coordinator_epoch

    def statuses(self) -> Sequence[TieringStatus]:
        return list(self._statuses.values())

    def running_rounds(self) -> Sequence[TieringRound]:
        return [each for each in self._all_rounds() if each.state is TieringState.TIERING]

    def round(self, table_id: int, tiering_epoch: int) -> TieringRound | None:
        return self._rounds.get(table_id, {}).get(tiering_epoch)

    def rounds_page(
        self, *, path: TablePath | None, lease_id: str | None, limit: int, after: int | None, max_tables: int
    ) -> RoundsPage:
        fitting: dict[int, list[TieringRound]] = {}
        for each in self._all_rounds():
            listed = each.lease_id == lease_id if lease_id is not None else each.table_id in self._statuses
            if listed and path in (None, each.path) and each.table_id > (-1 if after is None else after):
                fitting.setdefault(each.table_id, []).append(each)
        table_ids = sorted(fitting)[:max_tables]
        found = [
            each
            for table_id in table_ids
            for each in sorted(fitting[table_id], key=lambda tiering_round: -tiering_round.tiering_epoch)[:limit]
        ]
        return RoundsPage(found, table_ids[-1] if len(table_ids) == max_tables else None)

    def dropped_tables(self) -> Mapping[int, int]:
        return {
            table_id: max(each.end_time or each.start_time for each in rounds.values())
            for table_id, rounds in self._rounds.items()
            if rounds and table_id not in self._statuses
        }

    def lake_snapshots(self) -> Sequence[CommittedLakeSnapshot]:
        return [snapshots[-1] for snapshots in self._snapshots.values() if snapshots]

    def lake_snapshot(self, table_id: int, snapshot_id: int) -> CommittedLakeSnapshot | None:
        snapshots = self._snapshots.get(table_id, ())
        return next((each for each in snapshots if each.snapshot_id == snapshot_id), None)

    def lake_offsets_paths(self, table_id: int) -> Sequence[str]:
        return [each.offsets_path for each in self._snapshots.get(table_id, ())]

    def close(self) -> None:
        return

    def _all_rounds(self) -> Iterator[TieringRound]:
        for rounds in self._rounds.values():
            yield from rounds.values()


class MemoryTransaction:
    """A transaction, whose writes are kept until the block ends."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.writes: list[Callable[[], object]] = []

    def put_lease(self, lease: KvSnapshotLease) -> None:
        self.writes.append(lambda: self._put_lease(lease))

    def delete_leased_snapshots(self, lease_id: str, buckets: Iterable[TableBucket]) -> None:
        gone = frozenset(buckets)
        self.writes.append(lambda: self._release(lease_id, gone))

    def put_lease_expirations(self, expiration_times: Mapping[str, int]) -> None:
        for lease_id, time in expiration_times.items():
            self.writes.append(lambda lease_id=lease_id, time=time: self._renew(lease_id, time))

    def delete_lease(self, lease_id: str) -> None:
        self.writes.append(lambda: self._store._leases.pop(lease_id, None))

    def put_attempt(self, attempt: LeaseAttempt) -> None:
        self.writes.append(lambda: self._store._attempts.update({attempt.lease_id: attempt}))

    def delete_attempts(self, lease_ids: Iterable[str]) -> None:
        for lease_id in lease_ids:
            self.writes.append(lambda gone=lease_id: self._store._attempts.pop(gone, None))

    def put_coordinator_epoch(self, coordinator_epoch: int) -> None:
        self.writes.append(lambda: setattr(self._store, "_coordinator_epoch", coordinator_epoch))

    def put_attempt_token(self, attempt_token: int) -> None:
        self.writes.append(lambda: setattr(self._store, "_attempt_token", attempt_token))

    def put_statuses(self, statuses: Sequence[TieringStatus]) -> None:
        self.writes.append(lambda: self._store._statuses.update({each.table_id: each for each in statuses}))

    def put_rounds(self, rounds: Sequence[TieringRound]) -> None:
        for each in rounds:
            self.writes.append(
                lambda each=each: self._store._rounds.setdefault(each.table_id, {}).update({each.tiering_epoch: each})
            )

    def prune_rounds(self, table_ids: Collection[int], keep: int) -> None:
        for table_id in table_ids:
            self.writes.append(lambda table_id=table_id: self._prune_rounds(table_id, keep))

    def put_lake_snapshot(self, committed: CommittedLakeSnapshot) -> None:
        self.writes.append(lambda: self._store._snapshots.setdefault(committed.table_id, []).append(committed))

    def prune_lake_snapshots(self, table_id: int, keep: int) -> None:
        self.writes.append(lambda: self._store._snapshots.get(table_id, []).__delitem__(slice(0, -keep)))

    def delete_table(self, table_id: int) -> None:
        for part in (self._store._statuses, self._store._snapshots):
            self.writes.append(lambda part=part: part.pop(table_id, None))
        self.writes.append(lambda: self._keep_outcomes(table_id))

    def delete_rounds(self, table_ids: Collection[int]) -> None:
        for table_id in table_ids:
            self.writes.append(lambda table_id=table_id: self._store._rounds.pop(table_id, None))

    def _put_lease(self, lease: KvSnapshotLease) -> None:
        present = self._store._leases.get(lease.lease_id)
        snapshots = {**(present.snapshots if present else {}), **lease.snapshots}
        self._store._leases[lease.lease_id] = replace(lease, snapshots=snapshots)

    def _release(self, lease_id: str, buckets: Collection[TableBucket]) -> None:
        lease = self._store._leases[lease_id]
        kept = {bucket: id_ for bucket, id_ in lease.snapshots.items() if bucket not in buckets}
        self._store._leases[lease_id] = replace(lease, snapshots=kept)

    def _renew(self, lease_id: str, expiration_time: int) -> None:
        self._store._leases[lease_id] = replace(self._store._leases[lease_id], expiration_time=expiration_time)

    def _prune_rounds(self, table_id: int, keep: int) -> None:
        rounds = self._store._rounds.get(table_id, {})
        for epoch in sorted(rounds)[:-keep]:
            del rounds[epoch]

    def _keep_outcomes(self, table_id: int) -> None:
        rounds = self._store._rounds.get(table_id, {})
        newest = {rounds[epoch].lease_id: epoch for epoch in sorted(rounds)}
        for epoch in rounds.keys() - set(newest.values()):
            del rounds[epoch]


class FaultyStore:
    """A store that sometimes fails, and says what became durable.

    Attributes:
        faults: How often faults happen, as a factor; 0 for never.
    """

    def __init__(self, inner: SqlTieringStore, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance
        self.faults = 1.0
        self.on_durable: Callable[[Sequence[tuple[str, tuple[Any, ...]]]], None] = lambda writes: None
        self.counters = {"full disks": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        draw = self._chance.random() / self.faults if self.faults else 1.0
        with self._inner.transaction() as transaction:
            recorded = RecordingTransaction(transaction)
            yield recorded
            if draw < 0.001:
                raise ServerCrash
            if draw < 0.003:
                self.counters["full disks"] += 1
                raise FlussTieringError(ErrorCode.STORAGE, "the server's database failed: the disk is full")
        self.on_durable(recorded.writes)
        if draw > 0.999 and self.faults:
            raise ServerCrash


class RecordingTransaction:
    """A transaction that lists its writes by name."""

    def __init__(self, inner: SqlTransaction) -> None:
        self._inner = inner
        self.writes: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        method = getattr(self._inner, name)

        def write(*args: Any) -> None:
            self.writes.append((name, args))
            method(*args)

        return write
