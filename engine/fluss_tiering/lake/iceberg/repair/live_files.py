"""The live files of a lake table, as its manifests list them, and the commits that mend what these say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fluss_tiering.lake.iceberg.content_file import described_metrics
from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.library import JavaTable, ask, call
from fluss_tiering.lake.iceberg.repair.check import Bounds, ListedFile, WrongFile
from fluss_tiering.lake.iceberg.repair.retype import NewFile
from fluss_tiering.lake.protocol import FileContent


@dataclass(frozen=True, slots=True)
class Entry:
    """A live file in a manifest.

    Attributes:
        file: The file with its bounds.
        snapshot_id: The snapshot that added the file.
        sequence_number: The data sequence number, by which deletes apply.
        file_sequence_number: The sequence number of the snapshot that added the file.
    """

    file: ListedFile
    snapshot_id: int
    sequence_number: int
    file_sequence_number: int


def live_entries(table: JavaTable) -> list[Entry]:
    """Return the live files of a table's current snapshot; none if there is no snapshot.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    with lake_errors(f"read the manifests of the lake table {table.name()}"):
        found = ask(table, "listedFiles")
    return [
        Entry(
            ListedFile(location, _bounds(lower), _bounds(upper), FileContent[content], form, size, rows),
            *numbers,
        )
        for location, content, form, size, rows, lower, upper, *numbers in found
    ]


def _bounds(texts: dict[str, str]) -> Bounds:
    return {int(field): bytes.fromhex(text) for field, text in texts.items()}


def rewrite_bounds(table: JavaTable, wrong: Sequence[WrongFile]) -> int:
    """Commit the right bounds of files, and return how many files got them.

    Errors are those of the JVM: a `ValidationException` or `CommitFailedException` if somebody else has replaced one of
    the manifests since they were read. Nothing is changed then.
    """
    right = {
        each.location: {
            field: [None if bound is None else bound.hex().upper() for bound in both]
            for field, both in each.right_bounds.items()
        }
        for each in wrong
        if each.right_bounds
    }
    return int(ask(table, "rewriteBounds", right))


def replace_files(table: JavaTable, base: int | None, files: Sequence[NewFile]) -> None:
    """Commit new files in place of those that they replace, or change nothing. Errors are those of the JVM.

    The commit fails if somebody else has deleted rows of the old files by position since the base, and the new files
    are then deleted.

    Args:
        table: The table.
        base: The snapshot that has the old files.
        files: The new files.
    """
    changes = {
        each.replaced: {
            "file-path": each.location,
            "file-size-in-bytes": each.size_bytes,
            **described_metrics(each.metrics),
        }
        for each in files
    }
    call(table, "replaceFiles", {"base": base, "files": changes})
