"""Compares the lake with the log, row by row: after every commit, and whole tables at the end (S5, S24)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluss_tiering.lake.iceberg.metadata.summary import from_summary
from fluss_tiering.lake.protocol import LakeCommit, ReadOffsets
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.server.core.managers import Managers
from simulation.lake import ModelLake
from simulation.lake_commits import Delta
from simulation.lake_snapshots import LakeContent, LakeSnapshotNode, ancestors, comes_from
from simulation.storage import Change, ModelStorage


@dataclass(slots=True)
class LakeReference:
    """One table: its log, and the rows that the lake must hold at its committed offsets.

    Attributes:
        logs: The storage's own list of changes by bucket, which outlives the table.
        rows: The rows of the log's prefix, as place of the bucket -> key -> value.
    """

    table_id: int
    logs: dict[int, list[object]]
    offsets: dict[int, int] = field(default_factory=dict)
    rows: dict[int, dict[int, int]] = field(default_factory=dict)
    by_snapshot: dict[int, dict[int, int]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)


class LakeChecks:
    """Knows which rows the lake must hold at any offsets."""

    def __init__(self, lake: ModelLake, read_offsets: ReadOffsets, violated: Callable[[str], None]) -> None:
        self._lake = lake
        self._read_offsets = read_offsets
        self._violated = violated
        self._tables: dict[str, LakeReference] = {}
        self.counters = {"lost rows": 0, "doubled rows": 0, "rows": 0}
        lake.on_commit = self.committed
        lake.on_compact = self.compacted
        lake.on_publish = self.published
        lake.on_delete = self.deleted

    def created(self, table: TableInfo, storage: ModelStorage) -> None:
        """Begin with a table that has an empty log."""
        logs: dict[int, Any] = {
            number: storage.log(TableBucket(table.table_id, number)) for number in range(table.descriptor.num_buckets)
        }
        self._tables[str(table.path)] = LakeReference(table.table_id, logs)

    def committed(self, content: LakeContent, deltas: Sequence[Delta]) -> None:
        """Check a commit: it must change what the log says from the last offsets to its own."""
        table = self._tables[content.name]
        commit = from_summary(deltas[-1].summary)
        assert commit is not None
        if isinstance(commit, LakeCommit):
            ends = commit.log_end_offsets
            table.epochs[deltas[-1].snapshot_id] = commit.tiering_epoch
        else:
            ends = self._read_offsets(commit.offsets_path)
        offsets = {bucket.bucket: offset for bucket, offset in ends.items()}
        table.by_snapshot[deltas[-1].snapshot_id] = offsets
        files = [file.location for delta in deltas for file in delta.files]
        if self._lake.deleted.intersection(files):
            self._violated(f"table {content.name}: snapshot {deltas[-1].snapshot_id} refers to deleted files")
        touched: dict[int, set[int]] = {}
        for location in files:
            written = self._lake.files[location]
            touched.setdefault(written.bucket, set()).update(written.keys, (key for key, _ in written.rows))
        self._check_positions(content, deltas, touched)
        for bucket, old in table.offsets.items():
            if offsets.get(bucket, -1) < old:
                self._violated(
                    f"S5: table {content.name}, bucket {bucket}: the lake goes back from {old} to {offsets.get(bucket)}"
                )
        for bucket, end in offsets.items():
            changes: Any = table.logs[bucket][max(0, table.offsets.get(bucket, 0)) : max(0, end)]
            place = content.place(bucket)
            apply(table.rows.setdefault(place, {}), changes)
            touched.setdefault(place, set()).update(change.key for change in changes)
            self.counters["rows"] += len(changes)
        table.offsets = offsets
        for bucket, keys in touched.items():
            self._compare(content, bucket, table.rows.get(bucket, {}), keys)

    def _check_positions(self, content: LakeContent, deltas: Sequence[Delta], touched: dict[int, set[int]]) -> None:
        """Check that deletes by position are of rows of live data files, which have one deletion vector at most."""
        for file, location in ((f, each) for delta in deltas for f in delta.files for each in f.referenced):
            bucket = content.files.bucket(file.bucket)
            data = bucket.data.get(location)
            vectors = [each for each in bucket.deletes[location] if each.file.vector is not None]
            if data is None:
                self._violated(f"table {content.name}: deletes rows of {location}, which is not in the lake")
                continue
            if len(vectors) > 1:
                self._violated(f"table {content.name}: {location} has {len(vectors)} deletion vectors")
            positions = self._lake.files[file.location].positions[location]
            if not positions <= set(range(len(data.rows))):
                self._violated(f"table {content.name}: deletes {sorted(positions)} of {len(data.rows)} rows")
                continue
            touched.setdefault(file.bucket, set()).update(data.rows[position][0] for position in positions)

    def compacted(self, content: LakeContent, bucket: int) -> None:
        """Check a compaction: it changes no row, whatever files have moved."""
        table = self._tables[content.name]
        expected = table.rows.get(bucket, {})
        self._compare(content, bucket, expected, {*expected, *content.rows(bucket)})

    def published(self, content: LakeContent, before: LakeSnapshotNode | None) -> None:
        """Check that main went forward: that its readers lose nothing that they have seen."""
        if before is not None and not comes_from(content.main, before):
            self._violated(f"table {content.name}: main goes back from {before.snapshot_id}, so that rounds are lost")

    def deleted(self, location: str) -> None:
        """Check a file that a driver has deleted."""
        if location in self._lake.referenced:
            self._violated(f"a file that the lake refers to was deleted: {location}")

    def registered(self, managers: Managers, table_id: int, snapshot_id: int) -> None:
        """Check a lake snapshot that the server registered: it exists and has these offsets."""
        table = next(each for each in self._tables.values() if each.table_id == table_id)
        content = next(each for name, each in self._lake.tables.items() if self._tables[name] is table)
        if all(each.snapshot_id != snapshot_id for each in ancestors(content.published)):
            self._violated(f"table {table_id}: lake snapshot {snapshot_id} is registered and was not published")
        known = managers.lake.known(table_id, snapshot_id)
        offsets = {bucket.bucket: end for bucket, end in known.unpack().log_end_offsets.items()} if known else None
        if offsets != table.by_snapshot.get(snapshot_id):
            self._violated(
                f"table {table_id}: lake snapshot {snapshot_id} is registered with {offsets}, "
                f"its own offsets are {table.by_snapshot.get(snapshot_id)}"
            )

    def is_of_another_round(self, table_id: int, snapshot_id: int, tiering_epoch: int) -> bool:
        """Return whether another round committed a lake snapshot than the one that registers it."""
        table = next(each for each in self._tables.values() if each.table_id == table_id)
        return table.epochs.get(snapshot_id, tiering_epoch) != tiering_epoch

    def is_complete(self, table: TableInfo) -> bool:
        """Return whether the lake holds the whole log, and readers of main see it."""
        reference, content = self._tables[str(table.path)], self._lake.content(str(table.path))
        if content.published is not content.head:
            return False
        return all(reference.offsets.get(bucket, 0) >= len(log) for bucket, log in reference.logs.items())

    def is_registered(self, table: TableInfo, managers: Managers) -> bool:
        """Return whether the server knows our newest snapshot in the lake."""
        newest = managers.lake.newest(table.table_id)
        return (newest and newest.snapshot_id) == self._newest_of_ours(table)

    def check_table(self, table: TableInfo, managers: Managers) -> None:
        """Check at rest that the lake holds the whole log, each row once, and that the server knows this."""
        reference = self._tables[str(table.path)]
        content = self._lake.content(str(table.path))
        ends = {bucket: len(log) for bucket, log in reference.logs.items() if log}
        tiered = {bucket: offset for bucket, offset in reference.offsets.items() if offset > 0}
        if tiered != ends:
            self._violated(f"table {table.path}: the lake ends at {tiered}, the log at {ends}")
        if not self.is_registered(table, managers):
            newest, ours = managers.lake.newest(table.table_id), self._newest_of_ours(table)
            self._violated(f"table {table.path}: the server knows {newest}, the lake's newest is {ours}")
        by_place: dict[int, dict[int, int]] = {}
        for bucket, log in reference.logs.items():
            changes: Any = log[: max(0, reference.offsets.get(bucket, 0))]
            apply(by_place.setdefault(content.place(bucket), {}), changes)
        for place, expected in by_place.items():
            self._compare(content, place, expected, {*expected, *content.rows(place)})

    def _newest_of_ours(self, table: TableInfo) -> int | None:
        head = self._lake.content(str(table.path)).published
        ours = (each.snapshot_id for each in ancestors(head) if from_summary(each.summary) is not None)
        return next(ours, None)

    def _compare(self, content: LakeContent, bucket: int, expected: Mapping[int, int], keys: set[int]) -> None:
        rows = content.rows(bucket)
        lost = doubled = 0
        for key in keys:
            found, wanted = rows.get(key, []), expected.get(key)
            if wanted is not None and wanted not in found:
                lost += 1
            doubled += max(0, len(found) - (wanted is not None and wanted in found))
        self.counters["lost rows"] += lost
        self.counters["doubled rows"] += doubled
        if lost or doubled:
            self._violated(f"table {content.name}, bucket {bucket}: {lost} rows lost, {doubled} doubled")


def apply(rows: dict[int, int], changes: Sequence[Change]) -> None:
    """Return the rows that a reader sees after changes."""
    for change in changes:
        if change.value is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.value
