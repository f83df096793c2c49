"""A model of Iceberg, and of what our Java library does with it, for the real `IcebergTable` and `IcebergCommitter`.

`test_model_lake` compares it with Iceberg.

Row deltas are validated against the newest snapshot when they are staged, and again inside the compare-and-swap of the
commit. Messages may be lost: the driver sees an error although the commit happened, or before it happens.
"""

# ruff: noqa: N802 - the methods are named by Iceberg

from __future__ import annotations

import base64
import json
import pickle
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError

from fluss_tiering.lake.iceberg.java import is_conflict, is_iceberg
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import FileContent, LakeFile, LiveDataFile
from fluss_tiering.model.table import SYSTEM_COLUMNS, TableInfo
from simulation.compaction import Rewrite, plan_rewrite
from simulation.java import java_error
from simulation.lake_files import FileRows, LakeFiles
from simulation.scheduler import Scheduler, current_process


@dataclass(slots=True)
class LakeSnapshotNode:
    """A snapshot of a lake table.

    Attributes:
        files: The live files.
        replaces: Whether it is a compaction, which changes no row.
        removed: The data files that it removes.
        vectors: The data files for which it adds deletion vectors.
    """

    snapshot_id: int
    parent: LakeSnapshotNode | None
    summary: dict[str, str]
    files: LakeFiles
    adds_data: bool = False
    adds_deletes: bool = False
    replaces: bool = False
    removed: frozenset[str] = frozenset()
    vectors: frozenset[str] = frozenset()


@dataclass(slots=True)
class LakeContent:
    """A lake table in the catalog.

    Attributes:
        head: The newest snapshot of the branch that rounds commit to.
        main: The newest snapshot of main, if that is another branch.
        has_branch: Whether it is another one.
    """

    name: str
    format_version: int
    head: LakeSnapshotNode | None = None
    main: LakeSnapshotNode | None = None
    has_branch: bool = False
    nodes: dict[int, LakeSnapshotNode] = field(default_factory=dict)

    @property
    def files(self) -> LakeFiles:
        """The live files of the newest snapshot."""
        return LakeFiles() if self.head is None else self.head.files

    @property
    def published(self) -> LakeSnapshotNode | None:
        """The newest snapshot of main."""
        return self.main if self.has_branch else self.head

    def rows(self, bucket: int) -> dict[int, list[int]]:
        """Return the rows of a bucket as readers see them, as key -> values. More than one is a doubled row."""
        return self.files.bucket(bucket).rows()

    def put(self, node: LakeSnapshotNode) -> None:
        """Make a snapshot the newest one."""
        self.head = self.nodes[node.snapshot_id] = node


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
        found = {
            "name": self.name(),
            "formatVersion": self._content.format_version,
            "properties": {},
            "specs": [{"spec-id": 0, "fields": [{"field-id": 1000, "name": "bucket"}]}],
            "sortOrder": {"fields": []},
            "schema": {"fields": [{"id": number, "name": name} for number, name in enumerate(SYSTEM_COLUMNS, 1)]},
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


class Delta:
    """Iceberg's `RowDelta`."""

    def __init__(self, transaction: Transaction, snapshot_id: int) -> None:
        self._transaction = transaction
        self._from: int | None = None
        self._checks_data = self._checks_deletes = self._checks_removed = False
        self._must_exist: frozenset[str] = frozenset()
        self.snapshot_id = snapshot_id
        self.files: list[LakeFile] = []
        self.removed: list[LakeFile] = []
        self.summary: dict[str, str] = {}

    def validateFromSnapshot(self, snapshot_id: int) -> None:
        self._from = snapshot_id

    def validateNoConflictingDataFiles(self) -> None:
        self._checks_data = True

    def validateNoConflictingDeleteFiles(self) -> None:
        self._checks_deletes = True

    def validateDataFilesExist(self, locations: Sequence[str]) -> None:
        self._must_exist |= frozenset(locations)

    def validateDeletedFiles(self) -> None:
        self._checks_removed = True

    def removeDeletes(self, file: LakeFile) -> None:
        self.removed.append(file)

    def addRows(self, file: LakeFile) -> None:
        self.files.append(file)

    def addDeletes(self, file: LakeFile) -> None:
        self.files.append(file)

    def set(self, key: str, value: str) -> None:
        self.summary[key] = value

    def commit(self) -> None:
        self.validate(self._transaction.start, self._transaction.deltas)
        self._transaction.deltas.append(self)

    def count(self, content: FileContent) -> int:
        return sum(file.content is content for file in self.files)

    def data_files_of_vectors(self) -> Iterator[str]:
        """Yield the data files for which this adds deletion vectors."""
        for file in self.files:
            if file.vector is not None:
                yield from file.referenced

    def validate(self, head: LakeSnapshotNode | None, staged: Sequence[Delta]) -> None:
        """Raise ValidationException if somebody has done since the base what this does not agree with."""
        if any(delta.snapshot_id == self._from for delta in staged):
            return
        for node in self._since_base(head):
            if not node.replaces and (
                (self._checks_data and node.adds_data) or (self._checks_deletes and node.adds_deletes)
            ):
                raise java_error("ValidationException", f"Found conflicting files in snapshot {node.snapshot_id}")
            if missing := self._must_exist & node.removed:
                raise self._rewritten(f"Cannot commit, missing data files: {sorted(missing)}")
            if added := node.vectors.intersection(self.data_files_of_vectors()):
                raise self._rewritten(f"Found concurrently added DV for {sorted(added)}")
        files = LakeFiles() if head is None else head.files
        gone = [file.location for file in self.removed if not files.has_deletes(file)]
        if gone and self._checks_removed:
            raise self._rewritten(f"Missing required files to delete: {gone}")

    def _since_base(self, head: LakeSnapshotNode | None) -> Iterator[LakeSnapshotNode]:
        for node in ancestors(head):
            if node.snapshot_id == self._from:
                return
            yield node
        if self._from is not None:
            raise java_error("ValidationException", f"Cannot determine history from snapshot {self._from}")

    def _rewritten(self, message: str) -> Py4JJavaError:
        self._transaction.lake.counters["conflicts with compactions"] += 1
        return java_error("ValidationException", message)


class Transaction:
    """Iceberg's `Transaction`."""

    def __init__(self, lake: ModelLake, content: LakeContent, handle: Handle) -> None:
        self.lake = lake
        self._content = content
        self._handle = handle
        self.start = handle.head
        self.deltas: list[Delta] = []

    def newRowDelta(self) -> Delta:
        return Delta(self, self.lake.new_id())

    def commitTransaction(self) -> None:
        lake, chance = self.lake, self.lake.chance
        if lake.happens(0.06):
            # Paused between the server's check and the lake's: only the fence is left to stop it.
            current_process().pause(lake.scheduler.now + chance.randrange(1_000, 900_000))
        lake.scheduler.sleep(chance.randrange(1, 60))
        if lake.happens(0.01):
            raise java_error("ServiceUnavailableException", "503")
        while True:
            is_late = lake.happens(0.06)
            if is_late and lake.happens(0.7):
                lake.compact(self._content.name)
            head = self._content.head
            try:
                self._validate(head)
            except Py4JJavaError:
                lake.counters["fenced commits"] += 1
                raise
            if is_late:
                # The request is under way, and whoever sent it hears nothing of what becomes of it.
                self._send_late(head, list(self.deltas))
                lake.scheduler.sleep(chance.choice((5, 1_000, 30_000)))
                if self._has_landed(head):
                    break
                # Iceberg waits longer with each try.
                lake.scheduler.sleep(chance.choice((100, 1_000, 60_000)))
                continue
            # Between looking at the head and the swap somebody else may move it.
            if lake.happens(0.02):
                lake.compact(self._content.name)
            lake.scheduler.sleep(chance.randrange(1, 20))
            if lake.swap(self._content, head, self.deltas):
                break
        if lake.happens(0.04):
            lake.counters["drivers killed before they registered"] += 1
            lake.scheduler.kill(current_process())
        if lake.happens(0.03):
            lake.counters["unknown commits"] += 1
            lake.scheduler.sleep(chance.randrange(1, 60_000))
            self._has_landed(head)
        self._handle.head = self._content.head

    def _has_landed(self, head: LakeSnapshotNode | None) -> bool:
        """Return whether a commit on top of a snapshot has landed, or never will, as `SettledTableOperations` does."""
        self.lake.scheduler.sleep(self.lake.chance.randrange(1, 30))
        if self.lake.happens(0.2):
            raise java_error("CommitStateUnknownException", "the catalog does not answer")
        if self.deltas[-1].snapshot_id in self._content.nodes:
            return True
        if not self._never_will(head):
            raise java_error("CommitStateUnknownException", "the connection was lost")
        return False

    def _never_will(self, head: LakeSnapshotNode | None) -> bool:
        return self._content.head is not head

    def _validate(self, head: LakeSnapshotNode | None) -> None:
        if head is not self.start:
            for number, delta in enumerate(self.deltas):
                delta.validate(head, self.deltas[:number])

    def _send_late(self, head: LakeSnapshotNode | None, deltas: Sequence[Delta]) -> None:
        self.lake.counters["late commits"] += 1
        delay_ms = self.lake.chance.choice((500, 20_000, 200_000))
        self.lake.scheduler.after(delay_ms, lambda: self._land_late(head, deltas))

    def _land_late(self, head: LakeSnapshotNode | None, deltas: Sequence[Delta]) -> None:
        try:
            self._validate(head)
        except Py4JJavaError:
            return
        self.lake.swap(self._content, head, deltas)


class RoundCommit:
    """The library's `RoundCommit`."""

    def __init__(self, handle: Handle, request: bytes) -> None:
        header, *lines = zlib.decompress(request).decode().splitlines()
        self._round = json.loads(header)
        self._files = (pickle.loads(base64.b64decode(line)) for line in lines)
        self._transaction = handle.newTransaction()
        self._error: Py4JJavaError | None = None
        try:
            self._stage()
        except Py4JJavaError as error:
            self._error = error

    def _stage(self) -> None:
        base, pieces = self._round["base"], self._round["pieces"]
        for number, piece in enumerate(pieces):
            delta = self._transaction.newRowDelta()
            if base is not None:
                delta.validateFromSnapshot(base)
            delta.validateNoConflictingDataFiles()
            delta.validateNoConflictingDeleteFiles()
            if number == 0 and self._round["touched"]:
                delta.validateDataFilesExist(self._round["touched"])
            for kind, give in (
                ("deletes", delta.addDeletes),
                ("replaced", delta.removeDeletes),
                ("rows", delta.addRows),
            ):
                for _ in range(piece[kind]):
                    give(next(self._files))
            if piece["replaced"]:
                delta.validateDeletedFiles()
            for key, value in self._round["summary" if number == len(pieces) - 1 else "mark"].items():
                delta.set(key, value)
            delta.commit()
            base = delta.snapshot_id

    def commit(self) -> str:
        if self._error is not None:
            refused = is_iceberg(self._error, "ValidationException")
            return json.dumps({"failed": "conflict" if refused else "unprepared"})
        try:
            self._transaction.commitTransaction()
        except Py4JJavaError as error:
            self._error = error
            return json.dumps({"failed": "conflict" if is_conflict(error) else "unknown"})
        return json.dumps({"snapshot": self._transaction.deltas[-1].snapshot_id})

    def failure(self) -> object:
        assert self._error is not None
        return self._error.java_exception


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

    def find_table(self, table: TableInfo) -> SimIcebergTable:
        self._lake.scheduler.sleep(self._lake.chance.randrange(1, 50))
        handle: Any = Handle(self._lake, self._lake.content(str(table.path)))
        described = handle.describe()
        return SimIcebergTable(table, handle, described, described["specs"][0])


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
            yield LiveDataFile(location, (number,), len(file.rows), deletes, equality)


def ancestors(node: LakeSnapshotNode | None) -> Iterator[LakeSnapshotNode]:
    """Yield a snapshot and all earlier ones."""
    while node is not None:
        yield node
        node = node.parent


def comes_from(node: LakeSnapshotNode | None, earlier: LakeSnapshotNode) -> bool:
    """Return whether a snapshot is another one, or was built on it."""
    return any(each is earlier for each in ancestors(node))
