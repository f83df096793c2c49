"""A model of Iceberg, and of what our Java library does with it, for the real `IcebergTable` and `IcebergCommitter`.

`test_model_lake` compares it with Iceberg.
"""

# ruff: noqa: N802 - the methods are named by Iceberg

from __future__ import annotations

import base64
import json
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fluss_tiering.lake.files import ANY_BUCKET, FileContent, LakeFile, LiveDataFile
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.table import SYSTEM_COLUMNS, TableInfo
from simulation.compaction import Rewrite, plan_rewrite
from simulation.lake_commits import Delta, RoundCommit, Transaction, java_error
from simulation.lake_files import FileRows
from simulation.lake_snapshots import LakeContent, LakeSnapshotNode, ancestors, comes_from
from simulation.scheduler import Scheduler, current_process


class ModelLake:
    """All lake tables and files. They belong to no process."""

    def __init__(self, scheduler: Scheduler, chance: random.Random) -> None:
        self.scheduler = scheduler
        self.chance = chance
        self.faults = 1.0
        self.tables: dict[str, LakeContent] = {}
        self.files: dict[str, FileRows] = {}
        self.deleted: set[str] = set()
        self.referenced: set[str] = set()
        self.on_commit: Callable[[LakeContent, Sequence[Delta]], None] = lambda content, deltas: None
        self.on_compact: Callable[[LakeContent, int], None] = lambda content, bucket: None
        self.on_publish: Callable[[LakeContent, LakeSnapshotNode | None], None] = lambda content, before: None
        self.on_delete: Callable[[str], None] = lambda location: None
        self.counters = {
            "commits": 0,
            "fenced commits": 0,
            "unknown commits": 0,
            "late commits": 0,
            "drivers killed before they registered": 0,
            "publications": 0,
            "publications overtaken": 0,
            "compactions": 0,
            "compactions refused": 0,
            "conflicts with compactions": 0,
            "deletion vectors": 0,
            "position delete files": 0,
            "deletes by position replaced": 0,
        }

    def content(self, name: str) -> LakeContent:
        if name not in self.tables:
            self.tables[name] = LakeContent(name, self.chance.choice((2, 3)))
        return self.tables[name]

    def happens(self, probability: float) -> bool:
        return self.chance.random() < probability * self.faults

    def compact(self, name: str) -> None:
        """Rewrite some files at once, which makes a new snapshot with the same rows."""
        if (rewrite := self._planned(name)) is not None:
            self.land(name, rewrite)

    def compact_slowly(self, name: str, delay_ms: int) -> None:
        """Read files to be rewritten now, and commit the new ones later, unless they have changed meanwhile."""
        if (rewrite := self._planned(name)) is not None:
            self.scheduler.after(delay_ms, lambda: self.land(name, rewrite))

    def _planned(self, name: str) -> Rewrite | None:
        content = self.tables.get(name)
        if content is None:
            return None
        return plan_rewrite(content.files, name, content.format_version, self.chance, self.new_id)

    def land(self, name: str, rewrite: Rewrite) -> None:
        content = self.tables[name]
        files = rewrite.landed(content.files, self.files)
        if files is None:
            self.counters["compactions refused"] += 1
            return
        self.counters["compactions"] += 1
        self.referenced.add(rewrite.location)
        content.put(
            LakeSnapshotNode(
                self.new_id(),
                content.head,
                {"total-data-files": "1", "added-delete-files" if rewrite.only_deletes else "added-data-files": "1"},
                files,
                replaces=True,
                removed=rewrite.removed,
                vectors=rewrite.vectors,
            )
        )
        self.on_compact(content, rewrite.bucket)

    def new_id(self) -> int:
        return self.chance.getrandbits(62)

    def swap(self, content: LakeContent, expected: LakeSnapshotNode | None, deltas: Sequence[Delta]) -> bool:
        """Make all deltas visible at once if the newest snapshot is the expected one, as a catalog does."""
        if content.head is not expected:
            return False
        self.counters["commits"] += 1
        for delta in deltas:
            node = LakeSnapshotNode(
                delta.snapshot_id,
                content.head,
                {
                    "total-data-files": "1",
                    "added-data-files": str(delta.count(FileContent.DATA)),
                    "added-delete-files": str(len(delta.files) - delta.count(FileContent.DATA)),
                    **delta.summary,
                },
                content.files.after(delta.files, delta.removed, self.files),
                adds_data=delta.count(FileContent.DATA) > 0,
                adds_deletes=delta.count(FileContent.DATA) < len(delta.files),
                vectors=frozenset(delta.data_files_of_vectors()),
            )
            content.put(node)
            self.referenced.update(file.location for file in delta.files)
            self.counters["deletion vectors"] += len(node.vectors)
            self.counters["position delete files"] += sum(bool(each.referenced) for each in delta.files) - len(
                node.vectors
            )
            self.counters["deletes by position replaced"] += len(delta.removed)
        self.on_commit(content, deltas)
        return True

    def move_main(self, content: LakeContent, expected: LakeSnapshotNode | None, wanted: LakeSnapshotNode) -> bool:
        """Let readers of main see a snapshot of the branch, if main is at the expected snapshot."""
        if not is_at(content, expected):
            self.counters["publications overtaken"] += 1
            return False
        self.counters["publications"] += 1
        before, content.main = content.main, wanted
        self.on_publish(content, before)
        return True


def is_at(content: LakeContent, expected: LakeSnapshotNode | None) -> bool:
    """Return whether main is at a snapshot, as a catalog compares it in its swap."""
    return content.main is expected


class Handle:
    """The library's `LakeTable` in one driver. It keeps the metadata that it has loaded until it is refreshed."""

    def __init__(self, lake: ModelLake, content: LakeContent) -> None:
        self._lake = lake
        self._content = content
        self.head = content.head
        self.published = content.published

    def name(self) -> str:
        return self._content.name

    def describe(self) -> dict[str, Any]:
        names = ("k", "v") if self._content.is_clean else SYSTEM_COLUMNS
        found = {
            "name": self.name(),
            "formatVersion": self._content.format_version,
            "properties": {},
            "specs": [{"spec-id": 0, "fields": [{"field-id": 1000, "name": "bucket"}][self._content.is_clean :]}],
            "sortOrder": {"fields": []},
            "schema": {"fields": [{"id": number, "name": name} for number, name in enumerate(names, 1)]},
        }
        return (
            found if self.head is None else {**found, "snapshot": self.head.snapshot_id, "summary": self.head.summary}
        )

    def currentSnapshot(self) -> Node | None:
        return None if self.head is None else Node(self.head)

    def summary(self, snapshot_id: str) -> str | None:
        node = self._content.nodes.get(int(snapshot_id))
        return None if node is None else json.dumps(node.summary)

    def commits(self, question: str) -> str:
        asked, found = json.loads(question), []
        for node in ancestors(self.published if asked["published"] else self.head):
            if node.snapshot_id == asked["known"]:
                return json.dumps({"reached": True, "commits": found})
            if node.summary.get(asked["userKey"]) == asked["user"]:
                found.append([node.snapshot_id, node.summary])
        return json.dumps({"reached": False, "commits": found})

    def isOnlyRewrittenSince(self, snapshot_id: str) -> str:
        for node in ancestors(self.head):
            if node.snapshot_id == int(snapshot_id):
                return "true"
            if not node.replaces:
                break
        return "false"

    @property
    def format_version(self) -> int:
        return self._content.format_version

    def node(self, snapshot_id: int) -> LakeSnapshotNode:
        return self._content.nodes[snapshot_id]

    def refresh(self) -> None:
        self._lake.scheduler.sleep(self._lake.chance.randrange(1, 30))
        if self._lake.happens(0.2):
            raise java_error("RuntimeIOException", "the catalog does not answer")
        self.head, self.published = self._content.head, self._content.published

    def publishedSnapshot(self) -> str | None:
        return None if self.published is None else str(self.published.snapshot_id)

    def publish(self, question: str) -> str:
        """Move main to the newest snapshot of the branch, as the library's `Publication` does."""
        lake, chance = self._lake, self._lake.chance
        answer = {"refused": None, "commits": 0, "rows": 0}
        while True:
            self.refresh()
            wanted, main = self.head, self.published
            if wanted is None:
                return json.dumps({**answer, "refused": "nothing"})
            if comes_from(main, wanted):
                break
            if main is not None and not comes_from(wanted, main):
                return json.dumps({**answer, "refused": "moved", "main": main.snapshot_id})
            if lake.happens(0.1):
                current_process().pause(lake.scheduler.now + chance.randrange(1_000, 900_000))
            lake.scheduler.sleep(chance.randrange(1, 60))
            lake.move_main(self._content, main, wanted)
            if lake.happens(0.1):
                raise java_error("ServiceUnavailableException", "503")
        return json.dumps({**answer, "snapshot": wanted.snapshot_id})

    def newTransaction(self) -> Transaction:
        return Transaction(self._lake, self._content, self)

    def stageRound(self, request: bytes) -> RoundCommit:
        return RoundCommit(self, request)

    def deleteFiles(self, locations: str) -> str:
        for location in json.loads(locations):
            self._lake.deleted.add(location)
            self._lake.on_delete(location)
        return "[]"


class Node:
    """Iceberg's `Snapshot`."""

    def __init__(self, node: LakeSnapshotNode) -> None:
        self._node = node

    def snapshotId(self) -> int:
        return self._node.snapshot_id


@dataclass(frozen=True, slots=True)
class PositionWriter:
    """What the driver sends with the pieces of a round: the lake table, and the snapshot of the round."""

    table: str
    base: int
    format_version: int


class SimIcebergTable(IcebergTable):
    """The real `IcebergTable`, but without Parquet files."""

    def file_writer(self, *, renew: bool = False) -> Any:
        return PositionWriter(str(self._table.path), self._base or 0, self.format_version)

    def piece_location(self, bucket: int, name: str, partition_values: Sequence[str] = ()) -> str:
        return f"memory://{self._table.path}/{bucket}/{name}"


class SimCatalog:
    """A `LakeCatalog` of one driver."""

    def __init__(self, lake: ModelLake) -> None:
        self._lake = lake

    def find_table(self, table: TableInfo, *, follow: bool = False) -> SimIcebergTable:
        self._lake.scheduler.sleep(self._lake.chance.randrange(1, 50))
        content = self._lake.content(str(table.path))
        handle: Any = Handle(self._lake, content)
        described = handle.describe()
        return SimIcebergTable(table, handle, described, described["specs"][0], by_bucket=not content.is_clean)


class NoStatistics:
    """Takes the place of `ContentFiles`, since the model knows files as they are."""

    spec_id = 0

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def to_json(self, file: LakeFile) -> str:
        return base64.b64encode(pickle.dumps(file)).decode()

    def packed(self, file: LakeFile) -> LakeFile:
        return file


def live_data_files(handle: Handle, snapshot_id: int | None, **_where: object) -> Iterator[LiveDataFile]:
    """Yield the data files of a snapshot. The lake table uses this function instead of that of `deletes`."""
    node = None if snapshot_id is None else handle.node(snapshot_id)
    for number, files in node.files.buckets.items() if node else ():
        for location, file in files.data.items():
            deletes = tuple(each.file for each in files.deletes.get(location, ()))
            equality = any(sequence > file.sequence for sequence in files.deleted_keys.values())
            yield LiveDataFile(location, () if number == ANY_BUCKET else (number,), len(file.rows), deletes, equality)
