"""How many files a lake table has, as its newest snapshot counts them."""

from __future__ import annotations

from dataclasses import dataclass

from py4j.java_gateway import JavaObject

from fluss_tiering.lake.iceberg.java import lake_errors


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The files of one snapshot.

    Attributes:
        delete_files: files with equality or position deletes.
        position_deletes: rows that they delete by position, which only others do.
        file_bytes: of data and delete files.
    """

    data_files: int
    delete_files: int
    position_deletes: int
    file_bytes: int


def file_counts(table: JavaObject) -> FileCounts:
    """Of a table's current snapshot, which must be there; what its summary lacks counts as none. Raises STORAGE."""
    with lake_errors(f"read the lake table {table.name()}"):
        summary = table.currentSnapshot().summary()
        return FileCounts(
            data_files=int(summary.get("total-data-files") or 0),
            delete_files=int(summary.get("total-delete-files") or 0),
            position_deletes=int(summary.get("total-position-deletes") or 0),
            file_bytes=int(summary.get("total-files-size") or 0),
        )


def manifest_sizes(table: JavaObject) -> list[int]:
    """The sizes in bytes of the manifests of a table's current snapshot, which must be there. Raises STORAGE."""
    with lake_errors(f"read the lake table {table.name()}"):
        return [int(manifest.length()) for manifest in table.currentSnapshot().allManifests(table.io())]
