"""The commit to Iceberg: one transaction with one row delta for each ordinal.

The fence: each row delta validates that nobody else has added data files or delete files since the round's base.
Iceberg repeats this validation against the newest snapshot inside the catalog's compare-and-swap. A driver that was
paused anywhere before it therefore loses. Rewrites by a compaction are not a conflict, unless they replace a data file
that the commit removes or of which it deletes positions, or a delete file that it replaces. A check in the driver
before the commit would not be a fence, since Iceberg refreshes to the newest snapshot and tries again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from py4j.java_gateway import JavaObject, JVMView
from pyspark.errors import IllegalArgumentException

from fluss_tiering.lake.iceberg.content_file import ContentFiles, RowDeltaMethod
from fluss_tiering.lake.iceberg.deletes import FIRST_WITH_VECTORS
from fluss_tiering.lake.iceberg.java import (
    JAVA_ERRORS,
    UNKNOWN_OUTCOME,
    iceberg_class,
    is_conflict,
    is_iceberg,
    java_error_text,
    lake_errors,
)
from fluss_tiering.lake.iceberg.metadata.leftovers import delete_locations
from fluss_tiering.lake.iceberg.metadata.manifests import ManifestFiles
from fluss_tiering.lake.iceberg.summary import COMMIT_ID, to_summary
from fluss_tiering.lake.protocol import FileContent, LakeCommit, LakeFile
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_ADDED_FILES_SIZE: Final = "added-files-size"
"""The size of a snapshot's new files in its summary (`SnapshotSummary`)."""
_MAX_DATA_FILES: Final = 10_000
"""The greatest number of data files in a row delta, or in a manifest that is appended after it. Iceberg holds all files
of a row delta in memory, which takes about 6 kB each."""

logger = logging.getLogger(__name__)


class IcebergCommitter:
    """Commits files on top of one base. It is used only once.

    Args:
        jvm: The JVM of the Spark session.
        table: Iceberg's table object.
        base: The snapshot from which the round was planned; None for a table without snapshots.
        content: Describes the files to Iceberg.
    """

    def __init__(self, jvm: JVMView, table: JavaObject, base: int | None, content: ContentFiles) -> None:
        self._jvm = jvm
        self._table = table
        self._name = str(table.name())
        self._base = base
        self._content = content
        self._specs = table.specs()
        self._manifests = ManifestFiles(jvm, table)

    def commit(
        self,
        pieces: Sequence[Sequence[LakeFile]],
        commit: LakeCommit,
        removed: Sequence[tuple[int, tuple[str, ...]]] = (),
        *,
        keep: bool = False,
    ) -> int:
        """Commit the files of all pieces at once, and return the id of the snapshot that completes the commit.

        Args:
            pieces: The files of each piece in order, with at least one file. Deletes by position apply to data files
                of the base and of the pieces before theirs. Of a data file there is at most one deletion vector.
            commit: The description of the commit.
            removed: Buckets, each with the values of its partition, of which everything that the base holds is
                removed.
            keep: Whether the files of a conflict are kept for another commit.

        Raises:
            FlussTieringError: LAKE_CONFLICT if somebody else has added files since the base, or has rewritten files
                that this commit removes or whose rows it deletes by position, and the files of this commit are deleted
                unless they are to be kept; STORAGE if the lake failed, and the files are deleted if nothing was sent,
                and kept if the outcome is unknown.
        """
        files = [file for piece in pieces for file in piece]
        try:
            transaction = self._stage(pieces, commit, removed)
        except Exception as error:
            in_java, conflict = isinstance(error, JAVA_ERRORS), False
            try:
                conflict = in_java and (is_iceberg(error, "ValidationException") or self._is_outdated(files))
            finally:
                self._delete(() if conflict and keep else files)
            if not in_java:
                raise
            text = java_error_text(error)
            if conflict:
                raise self._conflict(text) from None
            raise FlussTieringError(
                ErrorCode.STORAGE, f"{text}: could not prepare the commit to the lake table {self._name}"
            ) from None
        # Iceberg gives the snapshot this id in each try.
        landed = int(transaction.table().currentSnapshot().snapshotId())
        try:
            transaction.commitTransaction()
        except JAVA_ERRORS as error:
            # The table's operations have settled what became of the commit: see `metadata.settled`.
            text = java_error_text(error)
            # An illegal argument is Iceberg's own word about what it finds, before it sends anything.
            if is_conflict(error) or (isinstance(error, IllegalArgumentException) and self._is_outdated(files)):
                self._delete(() if keep else files)
                raise self._conflict(text) from None
            raise FlussTieringError(
                ErrorCode.STORAGE, f"{text}: could not commit to the lake table {self._name}; {UNKNOWN_OUTCOME}"
            ) from None
        return landed

    def _stage(
        self,
        pieces: Sequence[Sequence[LakeFile]],
        commit: LakeCommit,
        removed: Sequence[tuple[int, tuple[str, ...]]] = (),
    ) -> JavaObject:
        """Return a transaction with a row delta for each piece that has files. The last update carries the summary.

        Raises:
            ValueError: There are two deletion vectors of one data file, which no engine could read.
        """
        _require_single_vectors(pieces)
        everything = iceberg_class(self._jvm, "expressions.Expressions").alwaysTrue()
        transaction = self._table.newTransaction()
        base = self._base
        if removed and base is not None:
            self._remove(transaction, base, set(removed), commit)
        deltas = [piece for piece in pieces if piece]
        touched = [location for piece in pieces for file in piece for location in file.referenced]
        for number, piece in enumerate(deltas, start=1):
            delta = transaction.newRowDelta()
            if base is not None:
                delta.validateFromSnapshot(base)
            delta.conflictDetectionFilter(everything)
            delta.validateNoConflictingDataFiles()
            delta.validateNoConflictingDeleteFiles()
            if number == 1 and touched:
                # Later row deltas only see what was changed after the base of theirs, which is in this transaction.
                # Data files of the commit itself pass: Iceberg looks for those that were removed.
                self._content.require_live(self._jvm, touched, delta)
            self._add_deletes(delta, [file for file in piece if file.content is not FileContent.DATA])
            data, rest = _divided(piece)
            self._give(data, delta, RowDeltaMethod.ADD_ROWS)
            is_last = number == len(deltas)
            self._complete(delta, commit, is_last=is_last and not rest)
            if rest:
                self._append(transaction, rest, commit, is_last=is_last)
            base = transaction.table().currentSnapshot().snapshotId()
        return transaction

    def _add_deletes(self, delta: JavaObject, files: Sequence[LakeFile]) -> None:
        self._give(files, delta, RowDeltaMethod.ADD_DELETES)
        replaced = [each for file in files for each in file.replaces]
        if replaced:
            self._give(replaced, delta, RowDeltaMethod.REMOVE_DELETES)
            # Without this, two vectors of one data file would be committed, and then no engine reads the table.
            delta.validateDeletedFiles()

    def _give(self, files: Sequence[LakeFile], delta: JavaObject, method: RowDeltaMethod) -> None:
        self._content.give(self._jvm, self._specs, files, delta, method)

    def _complete(self, update: JavaObject, commit: LakeCommit, *, is_last: bool) -> None:
        """Add an update to its transaction. Earlier updates only carry the commit id.

        The commit's offsets are true after the last update.
        """
        for key, value in (to_summary(commit) if is_last else {COMMIT_ID: commit.commit_id}).items():
            update.set(key, value)
        update.commit()

    def _append(self, transaction: JavaObject, files: Sequence[LakeFile], commit: LakeCommit, *, is_last: bool) -> None:
        """Append data files after a row delta, by manifests.

        An append validates nothing: the row delta before it in the transaction is the fence for both. The deletes of
        the row delta do not apply to the files, which come later.
        """
        append = transaction.newFastAppend()
        for start in range(0, len(files), _MAX_DATA_FILES):
            part = files[start : start + _MAX_DATA_FILES]
            append.appendManifest(self._manifests.write(self._content.lists(self._jvm, self._specs, part)))
        # A manifest does not say it.
        append.set(_ADDED_FILES_SIZE, str(sum(file.size_bytes for file in files)))
        self._complete(append, commit, is_last=is_last)

    def _remove(
        self, transaction: JavaObject, base: int, removed: set[tuple[int, tuple[str, ...]]], commit: LakeCommit
    ) -> None:
        """Remove the data files that the base has of these buckets. Its delete files then apply to nothing."""
        # Otherwise Iceberg passes over a file that a compaction has replaced since the base, and its rows would stay.
        removal = transaction.newDelete().validateFilesExist()
        string, integer = (self._jvm.java.lang.Class.forName(f"java.lang.{name}") for name in ("String", "Integer"))
        tasks = self._table.newScan().useSnapshot(base).planFiles()
        try:
            found = tasks.iterator()
            while found.hasNext():
                file = found.next().file()
                partition = file.partition()
                last = partition.size() - 1
                values = tuple(str(partition.get(number, string)) for number in range(last))
                if (partition.get(last, integer), values) in removed:
                    removal.deleteFile(file)
        finally:
            tasks.close()
        self._complete(removal, commit, is_last=False)

    def _delete(self, files: Sequence[LakeFile]) -> None:
        """Delete files of a commit that did not land, and the manifests of them. Iceberg deletes its own ones."""
        delete_locations(self._table, [*locations_of(files), *self._manifests.locations])

    def _conflict(self, failure: str) -> FlussTieringError:
        expected = "no snapshot" if self._base is None else f"snapshot {self._base}"
        return FlussTieringError(
            ErrorCode.LAKE_CONFLICT,
            f"lake table changed by somebody else during the round: {self._name}: expected nothing after {expected}; "
            f"nothing was committed, the next round starts from what is there now ({failure})",
        )

    def _is_outdated(self, files: Sequence[LakeFile]) -> bool:
        """Return whether the table is no longer the one for which the files were made.

        The base was expired, which only happens after somebody else has committed on top of it; the table was set back
        to a snapshot from before the base; or it has another format version, which wants deletion vectors.
        """
        with lake_errors(f"read the history of the lake table {self._name}"):
            self._table.refresh()
            if int(self._table.operations().current().formatVersion()) >= FIRST_WITH_VECTORS and any(
                file.content is FileContent.POSITION_DELETES and file.vector is None for file in files
            ):
                return True
            if self._base is None:
                return False
            current = self._table.currentSnapshot()
            return current is None or not iceberg_class(self._jvm, "util.SnapshotUtil").isAncestorOf(
                self._table, current.snapshotId(), self._base
            )


def locations_of(files: Iterable[LakeFile]) -> list[str]:
    """Return the locations of files, each once, since deletion vectors may share Puffin files."""
    return list(dict.fromkeys(file.location for file in files))


def _divided(piece: Sequence[LakeFile]) -> tuple[list[LakeFile], list[LakeFile]]:
    """Return the data files of a row delta, and those that are appended after it.

    Deletes by position apply to data files of their own row delta, but to no later ones.
    """
    data = [file for file in piece if file.content is FileContent.DATA]
    if len(data) <= _MAX_DATA_FILES:
        return data, []
    touched = {location for file in piece for location in file.referenced}
    data.sort(key=lambda file: file.location not in touched)
    most = max(_MAX_DATA_FILES, sum(file.location in touched for file in data))
    return data[:most], data[most:]


def _require_single_vectors(pieces: Sequence[Sequence[LakeFile]]) -> None:
    vectors = Counter(file.referenced for piece in pieces for file in piece if file.vector is not None)
    for (data_file,), count in vectors.most_common(1):
        if count > 1:
            raise ValueError(f"the commit has two deletion vectors of the data file {data_file}: expected one")
