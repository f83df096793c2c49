"""What maintenance of a lake table reports to the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What one maintenance of a lake table has done.

    Attributes:
        table_id: The id of the table.
        saved_files: How many data files and delete files the newest lake snapshot has fewer because of it.
        rewritten_bytes: The size of the data files that were rewritten, in bytes.
        expired_snapshots: How many lake snapshots were removed.
        deleted_files: How many files were deleted that no snapshot needs any more.
    """

    table_id: int
    saved_files: int = 0
    rewritten_bytes: int = 0
    expired_snapshots: int = 0
    deleted_files: int = 0
