"""The commit to Iceberg, which `RoundCommit` of the Java library does, with the fence that is described there."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError

from fluss_tiering.lake.files import FileContent, LakeFile
from fluss_tiering.lake.iceberg.content_file import ContentFiles
from fluss_tiering.lake.iceberg.java import JAVA_ERRORS, UNKNOWN_OUTCOME, java_error_text
from fluss_tiering.lake.iceberg.library import JavaTable, ask, call, delete_locations
from fluss_tiering.lake.iceberg.metadata.summary import COMMIT_ID, to_summary
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_MAX_DATA_FILES: Final = 10_000
"""The greatest number of data files in a row delta, or in a manifest that is appended after it. Iceberg holds all files
of a row delta in memory, which takes about 6 kB each."""
_LEVEL: Final = 1
"""The level of the compression, the fastest."""
Removed = Sequence[tuple[int, tuple[str, ...]]]
"""Buckets, each with the values of its partition, of which everything that the base holds is removed."""


class IcebergCommitter:
    """Commits files on top of one base. It is used only once.

    Args:
        name: Its name in the catalog, for messages.
        base: The snapshot from which the round was planned; None for a table without snapshots.
        content: Describes the files to Iceberg.
    """

    def __init__(self, table: JavaTable, name: str, base: int | None, content: ContentFiles) -> None:
        self._table = table
        self._name = name
        self._base = base
        self._content = content

    def commit(
        self,
        pieces: Sequence[Sequence[LakeFile]],
        commit: LakeCommit,
        removed: Removed = (),
        *,
        keep: bool = False,
    ) -> int:
        """Commit the files of all pieces at once, and return the id of the snapshot that completes the commit.

        Args:
            pieces: The files of each piece in order, with at least one file. Deletes by position apply to data files
                of the base and of the pieces before theirs. Of a data file there is at most one deletion vector.
            commit: The description of the commit.
            removed: What is removed of the base.
            keep: Whether the files of a conflict are kept for another commit.

        Raises:
            FlussTieringError: LAKE_CONFLICT if somebody else has added files since the base, or has rewritten files
                that this commit removes or whose rows it deletes by position, and the files of this commit are deleted
                unless they are to be kept; STORAGE if the lake failed, and the files are deleted if nothing was sent,
                and kept if the outcome is unknown.
        """
        files = [file for piece in pieces for file in piece]
        try:
            _require_single_vectors(pieces)
            staged = self._stage(pieces, commit, removed)
        except Exception as error:
            self._delete(files)
            if isinstance(error, JAVA_ERRORS):
                raise self._unprepared(java_error_text(error)) from None
            raise
        try:
            outcome = ask(staged, "commit")
            failure = "" if "snapshot" in outcome else _text(staged)
        except JAVA_ERRORS as error:
            outcome, failure = {"failed": "unknown"}, java_error_text(error)
        if "snapshot" in outcome:
            return int(outcome["snapshot"])
        if is_conflict(outcome):
            self._delete(() if keep else files)
            raise self._conflict(failure)
        if outcome["failed"] == "unprepared":
            self._delete(files)
            raise self._unprepared(failure)
        raise FlussTieringError(
            ErrorCode.STORAGE, f"{failure}: could not commit to the lake table {self._name}; {UNKNOWN_OUTCOME}"
        )

    def _stage(self, pieces: Sequence[Sequence[LakeFile]], commit: LakeCommit, removed: Removed = ()) -> JavaObject:
        """Return the `RoundCommit`, which has staged a row delta for each piece that has files."""
        return call(
            self._table, "stageRound", b"".join(self._request([each for each in pieces if each], commit, removed))
        )

    def _request(self, pieces: Sequence[Sequence[LakeFile]], commit: LakeCommit, removed: Removed) -> Iterator[bytes]:
        """Yield the compressed request, a line for each file. As a whole, the lines of very many files are large."""
        divided = [_Divided(piece) for piece in pieces]
        everything = [file for piece in pieces for file in piece]
        round_ = {
            "base": self._base,
            "spec": self._content.spec_id,
            "removed": removed,
            "touched": [location for file in everything for location in file.referenced],
            "positionFiles": any(
                file.content is FileContent.POSITION_DELETES and file.vector is None for file in everything
            ),
            "filesOfManifest": _MAX_DATA_FILES,
            "summary": to_summary(commit),
            "mark": {COMMIT_ID: commit.commit_id},
            "pieces": [each.counts() for each in divided],
        }
        compressor = zlib.compressobj(_LEVEL)
        yield compressor.compress(json.dumps(round_).encode() + b"\n")
        for each in divided:
            for file in (*each.deletes, *each.replaced, *each.rows, *each.appended):
                yield compressor.compress(self._content.to_json(file).encode() + b"\n")
        yield compressor.flush()

    def _delete(self, files: Iterable[LakeFile]) -> None:
        """Delete files of a commit that did not land."""
        delete_locations(self._table, locations_of(files))

    def _conflict(self, failure: str) -> FlussTieringError:
        expected = "no snapshot" if self._base is None else f"snapshot {self._base}"
        return FlussTieringError(
            ErrorCode.LAKE_CONFLICT,
            f"lake table changed by somebody else during the round: {self._name}: expected nothing after {expected}; "
            f"nothing was committed, the next round starts from what is there now ({failure})",
        )

    def _unprepared(self, failure: str) -> FlussTieringError:
        return FlussTieringError(
            ErrorCode.STORAGE, f"{failure}: could not prepare the commit to the lake table {self._name}"
        )


class _Divided:
    """A piece: the files of its row delta, and the data files that are appended after it.

    Deletes by position apply to data files of their own row delta, but to no later ones.
    """

    def __init__(self, piece: Sequence[LakeFile]) -> None:
        self.deletes = [file for file in piece if file.content is not FileContent.DATA]
        self.replaced = [each for file in self.deletes for each in file.replaces]
        self.rows = [file for file in piece if file.content is FileContent.DATA]
        self.appended: list[LakeFile] = []
        if len(self.rows) > _MAX_DATA_FILES:
            touched = {location for file in piece for location in file.referenced}
            self.rows.sort(key=lambda file: file.location not in touched)
            most = max(_MAX_DATA_FILES, sum(file.location in touched for file in self.rows))
            self.rows, self.appended = self.rows[:most], self.rows[most:]

    def counts(self) -> dict[str, int]:
        return {
            **{kind: len(getattr(self, kind)) for kind in ("deletes", "replaced", "rows", "appended")},
            "appendedBytes": sum(file.size_bytes for file in self.appended),
        }


def is_conflict(outcome: dict[str, Any]) -> bool:
    """Return whether a commit certainly did not land, and never will, because of what somebody else has done."""
    return bool(outcome["failed"] == "conflict")


def locations_of(files: Iterable[LakeFile]) -> list[str]:
    """Return the locations of files, each once, since deletion vectors may share Puffin files."""
    return list(dict.fromkeys(file.location for file in files))


def _text(staged: JavaObject) -> str:
    return java_error_text(Py4JJavaError("the commit failed", call(staged, "failure")))


def _require_single_vectors(pieces: Sequence[Sequence[LakeFile]]) -> None:
    vectors = Counter(file.referenced for piece in pieces for file in piece if file.vector is not None)
    for (data_file,), count in vectors.most_common(1):
        if count > 1:
            raise ValueError(f"the commit has two deletion vectors of the data file {data_file}: expected one")
