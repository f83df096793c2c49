"""Planted defects: each breaks one promise with a small patch of the real code, or of a part that it trusts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from fluss_tiering.lake.iceberg import commit as iceberg_commit
from fluss_tiering.lake.iceberg import table as iceberg_table
from fluss_tiering.lake.iceberg.placement import Placement
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.server.core.leases.attempts import LeaseAttempts
from fluss_tiering.server.core.leases.manager import KvSnapshotLeaseManager
from fluss_tiering.server.core.managers import Managers
from fluss_tiering.server.core.tiering.heartbeat import HeartbeatReports
from fluss_tiering.server.core.tiering.manager import LakeTieringManager
from fluss_tiering.spark.round import round as spark_round
from fluss_tiering.spark.round.deletes import PlannedDeletes
from fluss_tiering.spark.round.pieces import PieceWork
from fluss_tiering.spark.round.shared_stage import SharedStages
from fluss_tiering.spark.table_run import TableRun
from simulation import lake as simulation_lake
from simulation.key_index import SimPlaceIndex
from simulation.lake_commits import Delta, Transaction
from simulation.position_deletes import FoundRows, PositionDeletes
from simulation.store import MemoryStore

Defect = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Planted:
    """A defect, and a pattern for the violation that finds it."""

    switch_on: Defect
    shown_by: str


def _patched(target: object, name: str, value: object) -> Defect:
    return lambda: mock.patch.object(target, name, value)


def _wrapped(target: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Defect:
    return lambda: mock.patch.object(target, name, wrap(getattr(target, name)))


@contextmanager
def _no_fence() -> Iterator[None]:
    with (
        mock.patch.object(Delta, "validateNoConflictingDataFiles"),
        mock.patch.object(Delta, "validateNoConflictingDeleteFiles"),
    ):
        yield


@contextmanager
def _token_ignored() -> Iterator[None]:
    with (
        mock.patch.object(LeaseAttempts, "is_stale", return_value=False),
        mock.patch.object(LeaseAttempts, "require_current", lambda self, lease_id, token: token),
    ):
        yield


@contextmanager
def _acknowledged_first() -> Iterator[None]:
    """Lose the last transaction when the server dies, as if it was still in the background."""
    before: dict[str, Any] = {}
    begin, load = MemoryStore.transaction, MemoryStore.attempt_token

    def transaction(self: MemoryStore) -> AbstractContextManager[Any]:
        before.update({name: copy.deepcopy(value) for name, value in vars(self).items()})
        return begin(self)

    def attempt_token(self: MemoryStore) -> int:
        vars(self).update(before)
        return load(self)

    with (
        mock.patch.object(MemoryStore, "transaction", transaction),
        mock.patch.object(MemoryStore, "attempt_token", attempt_token),
    ):
        yield


def _own_offsets(client: Any, lake: Any, table: Any, claim: Any, _is_offsets_file: Any) -> LakeSnapshot | None:
    """Register what `recover` finds, but with the present ends of the log."""
    known = client.lake_snapshot(table.path)
    found = lake.unregistered_commit(None if known is None else known.snapshot_id)
    if found is None:
        return known
    offsets = {info.bucket: info.log_end_offset for info in client.list_buckets([table.path])[table.path]}
    commit = found.commit
    client.commit_lake_snapshot(
        table, claim.tiering_epoch, found.snapshot_id, offsets, commit.offsets_path, commit.commit_id
    )
    return LakeSnapshot(table.table_id, found.snapshot_id, offsets)


def _released_first(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, table: Any, claim: Any, lease: Any, began: float) -> Any:
        lease.release(self._releaser)
        return original(self, table, claim, lease, began)

    return run


def _collected_first(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(self: Any, storage: Any, *others: Any) -> None:
        for table in storage.tables():
            storage.delete_kv_snapshots(storage.collectable_kv_snapshots(table.path))
        original(self, storage, *others)

    return start


def _expired_renewed(original: Callable[..., Any]) -> Callable[..., Any]:
    def renew(self: Any, durations_ms: Any) -> Any:
        durations = list(durations_ms)
        now = self._clock.now_ms()
        return [
            now + duration if isinstance(answer, FlussTieringError) else answer
            for (_, duration), answer in zip(durations, original(self, durations), strict=True)
        ]

    return renew


@contextmanager
def _expired_early() -> Iterator[None]:
    """Drop expired leases by a clock that is fast."""

    def fast(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any) -> Any:
            clock = self._clock
            self._clock = SimpleNamespace(now_ms=lambda: clock.now_ms() + 30_000)
            try:
                return original(self, *arguments)
            finally:
                self._clock = clock

        return call

    with mock.patch.object(KvSnapshotLeaseManager, "drop_expired", fast(KvSnapshotLeaseManager.drop_expired)):
        yield


def _lower_epochs(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: [replace(each, tiering_epoch=max(0, each.tiering_epoch - 1)) for each in original(self)]


@contextmanager
def _not_read_again() -> Iterator[None]:
    """Commit what was written once more after a conflict, on top of what is in the lake now."""
    commit_round = spark_round.commit_round

    def commit(client: Any, lake: Any, plan: Any, pieces: Any, **names: Any) -> int:
        try:
            return commit_round(client, lake, plan, pieces, **names)
        except FlussTieringError as error:
            if error.code is not ErrorCode.LAKE_CONFLICT:
                raise
            lake.java_table.refresh()
            lake._base = lake.java_table.currentSnapshot().snapshotId()
            return commit_round(client, lake, plan, pieces, **names)

    with (
        mock.patch.object(spark_round, "commit_round", commit),
        mock.patch.object(iceberg_commit.IcebergCommitter, "_delete"),
    ):
        yield


def _in_one_ordinal(original: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: Any, *arguments: Any) -> Any:
        places = original(self, *arguments)
        return {
            number: replace(place, pieces=(tuple(keys for ordinal in place.pieces for keys in ordinal),))
            for number, place in places.items()
        }

    return noted


@contextmanager
def _each_piece_by_itself() -> Iterator[None]:
    """Let each of several pieces of a place delete by itself, and do not look whether they write two vectors."""

    def work_of(self: Any, piece: Any, location: str) -> PieceWork:
        live = self.live.get(self.place(piece.bucket.bucket, piece.partition_values))
        place = self.place(piece.bucket.bucket, piece.partition_values)
        return PieceWork(piece, location, live if live is None else tuple(live), place=place)

    with (
        mock.patch.object(PlannedDeletes, "work_of", work_of),
        mock.patch.object(iceberg_commit, "_require_single_vectors"),
    ):
        yield


def _nothing_moved(original: Callable[..., Any]) -> Callable[..., Any]:
    def rebased(self: Any, lake: Any, *arguments: Any) -> Any:
        found = original(self, lake, *arguments)
        return found and (found[0], {})

    return rebased


def _to_others(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, spark: Any, stages: Any) -> Any:
        original(self, spark, stages)
        given = [each.results for each in stages]
        for each, results in zip(stages, given[1:] + given[:1], strict=True):
            each.results = results
        return stages[0].results

    return run


def _one_round_less(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, content, expected, wanted: original(self, content, expected, wanted.parent or wanted)


def _ours_alone(original: Callable[..., Any]) -> Callable[..., Any]:
    def read(summary: Any) -> LakeCommit | None:
        commit = original(summary)
        return commit if isinstance(commit, LakeCommit) else None

    return read


DEFECTS: Final[dict[str, Planted]] = {
    "the lake's commit has no fence": Planted(_no_fence, "rows lost|goes back"),
    "the fence is checked before the commit alone": Planted(
        _patched(Transaction, "_validate", lambda self, head: None), "rows lost|goes back|not in the lake"
    ),
    "the epoch is not checked at prepare and commit": Planted(
        _patched(LakeTieringManager, "require_round", lambda self, table_id, epoch: None), "S5"
    ),
    "a round is registered before it is published": Planted(
        _patched(iceberg_table.IcebergTable, "commits_to_main", True), "was not published"
    ),
    "main moves from wherever it is": Planted(
        _patched(simulation_lake, "is_at", lambda content, expected: True), "goes back"
    ),
    "a publication leaves out the newest round": Planted(
        _wrapped(simulation_lake.ModelLake, "move_main", _one_round_less), "counted that do not wait"
    ),
    "rows are looked for among the files of their bucket alone": Planted(
        _patched(Placement, "place", lambda self, bucket, values: (bucket, values)), "doubled"
    ),
    "the attempt token is ignored": Planted(_token_ignored, "L22"),
    "a found snapshot is registered with one's own offsets": Planted(
        _patched(spark_round, "recover", _own_offsets), "its own offsets|rows lost|was not published"
    ),
    "a found snapshot is not registered": Planted(
        _patched(spark_round, "recover", lambda client, lake, table, *_: client.lake_snapshot(table.path)),
        "rows lost|goes back",
    ),
    "the lease is released before the round's end": Planted(_wrapped(TableRun, "_round", _released_first), "L13"),
    "epochs go back at a restart": Planted(_wrapped(MemoryStore, "statuses", _lower_epochs), "S3"),
    "a change is acknowledged before it is durable": Planted(_acknowledged_first, "S3|S24|L3|L22"),
    "snapshots are collected before leases are loaded": Planted(
        _wrapped(Managers, "__init__", _collected_first), "L11"
    ),
    "an expired lease is renewed": Planted(_wrapped(KvSnapshotLeaseManager, "renew", _expired_renewed), "L5"),
    "a lease is dropped before it expires": Planted(_expired_early, "L3|L9"),
    "silent rounds go on": Planted(_patched(LakeTieringManager, "end_overdue_rounds", lambda self: None), "S4"),
    "a repeated finish is not recognised": Planted(
        _patched(HeartbeatReports, "_ended_as", lambda self, entry, outcome: False), "S9"
    ),
    "a commit that is under way is taken for lost": Planted(
        _patched(Transaction, "_never_will", lambda self, head: True), "deleted"
    ),
    "files of an unknown outcome are deleted": Planted(
        _patched(iceberg_commit, "is_conflict", lambda error: True), "deleted"
    ),
    "an index ahead of the lake is believed": Planted(
        _patched(SimPlaceIndex, "is_live", lambda self, location: True), "not in the lake|doubled"
    ),
    "an index behind the lake is believed": Planted(
        _patched(SimPlaceIndex, "unknown_files", lambda self, runs: set()), "doubled"
    ),
    "deletes are not merged with the present ones": Planted(
        _patched(FoundRows, "present", lambda self, location, files: frozenset()), "doubled"
    ),
    "rows of rewritten files are deleted": Planted(
        _patched(Delta, "validateDataFilesExist", lambda self, locations: None), "not in the lake|doubled"
    ),
    "deletes leave out the earlier pieces of a place": Planted(
        _patched(PositionDeletes, "earlier_rows", lambda self, runs: ()), "doubled"
    ),
    "all pieces of a place have one ordinal": Planted(_wrapped(PlannedDeletes, "noted", _in_one_ordinal), "doubled"),
    "each piece of a place deletes by itself": Planted(_each_piece_by_itself, "deletion vectors|doubled"),
    "a conflict is committed without reading again": Planted(_not_read_again, "not in the lake|doubled|goes back"),
    "a shared job gives its results to other rounds": Planted(
        _wrapped(SharedStages, "_run", _to_others), "not in the lake|doubled|rows lost|none of ours"
    ),
    "commits of Flink are not registered": Planted(
        _wrapped(iceberg_table, "from_summary", _ours_alone), "doubled|goes back|the server knows"
    ),
    "deletes that are written anew are looked up in the old files": Planted(
        _wrapped(PlannedDeletes, "rebased", _nothing_moved), "not in the lake|doubled|STORAGE"
    ),
}
