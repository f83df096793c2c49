"""How the model of Iceberg commits: row deltas in a transaction, and the errors of the JVM as py4j raises them.

Row deltas are validated against the newest snapshot when they are staged, and again inside the compare-and-swap of the
commit. Messages may be lost: the driver sees an error although the commit happened, or before it happens.
"""

# ruff: noqa: N802 - the methods are named by Iceberg and by Java

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JJavaError

from fluss_tiering.lake.files import FileContent, LakeFile
from fluss_tiering.lake.iceberg.java import is_conflict, is_iceberg
from simulation.lake_files import LakeFiles
from simulation.lake_snapshots import LakeContent, LakeSnapshotNode, ancestors
from simulation.scheduler import current_process

if TYPE_CHECKING:
    from simulation.lake import Handle, ModelLake


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


class JavaException:
    """An exception of the JVM. Methods that it does not have fail as those of py4j."""

    _target_id = "o0"

    def __init__(self, name: str, message: str) -> None:
        self._name = name
        self._message = message

    def getClass(self) -> SimpleNamespace:
        name = self._name
        return SimpleNamespace(getName=lambda: f"org.apache.iceberg.exceptions.{name}", getSimpleName=lambda: name)

    def getMessage(self) -> str:
        return self._message

    def getCause(self) -> None:
        return None

    def __getattr__(self, name: str) -> object:
        def call(*_arguments: object) -> object:
            raise Py4JError(f"{self._name} has no method {name}")

        return call


def java_error(name: str, message: str) -> Py4JJavaError:
    """Return the error that py4j raises when Iceberg throws an exception."""
    return Py4JJavaError(message, JavaException(name, message))
