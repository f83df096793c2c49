"""The number of files of a lake table, as its newest snapshot counts them."""

from __future__ import annotations

from dataclasses import dataclass

from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.library import JavaTable, ask


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The files of one snapshot.

    Attributes:
        data_files: The number of data files.
        delete_files: The number of files with equality deletes or position deletes.
        position_deletes: The number of rows that are deleted by position.
        file_bytes: The size of all data files and delete files.
        equality_deletes: The number of keys in files with equality deletes.
    """

    data_files: int
    delete_files: int
    position_deletes: int
    file_bytes: int
    equality_deletes: int


def file_counts(table: JavaTable) -> FileCounts:
    """Return the counts of a table's current snapshot. A count that its summary lacks is 0, as all are without one.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    with lake_errors(f"read the lake table {table.name()}"):
        summary = ask(table, "currentSummary")
    return FileCounts(
        data_files=int(summary.get("total-data-files", 0)),
        delete_files=int(summary.get("total-delete-files", 0)),
        position_deletes=int(summary.get("total-position-deletes", 0)),
        file_bytes=int(summary.get("total-files-size", 0)),
        equality_deletes=int(summary.get("total-equality-deletes", 0)),
    )


def manifest_sizes(table: JavaTable) -> list[int]:
    """Return the sizes in bytes of the manifests of a table's current snapshot; none if there is no snapshot.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    with lake_errors(f"read the lake table {table.name()}"):
        return list(ask(table, "manifestSizes"))
