"""Lake snapshots, which say how much of a table's log is in the lake, and what their maintenance reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.model.table_options import LAKE_ENABLED

COMMIT_USER: Final = "__fluss_lake_tiering"
"""The value of `commit-user` by which Fluss marks the summary of a snapshot that tiering made."""

OLDER_TABLE_REMEDY: Final = (
    "restore the lake of the same time, or drop the table and its lake table and write the rows again, as "
    "docs/how-to/restore.md says"
)
"""What to do about a table that was restored from an older backup than its lake."""


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """A lake snapshot that is registered with the storage.

    Attributes:
        table_id: The table's id.
        snapshot_id: The id of the snapshot in the lake.
        log_end_offsets: The offset up to which each bucket's log is in the lake (exclusive). A bucket without an entry
            has nothing in the lake.
    """

    table_id: int
    snapshot_id: int
    log_end_offsets: Mapping[TableBucket, int] = field(default_factory=dict)


def is_switched_on(table: TableInfo) -> bool:
    """Return whether the table's options say that it is tiered. A value that is neither true nor false does not.

    `is_set` refuses such a value, and its error would stand in place of the one that asks.
    """
    return table.descriptor.properties.get(LAKE_ENABLED.key, LAKE_ENABLED.default).strip().lower() == "true"


def not_tiered(path: TablePath) -> FlussTieringError:
    """Return the error that says that an existing table is not tiered."""
    return FlussTieringError(
        ErrorCode.INVALID_TIERING_STATE,
        f"table {path} is not tiered: create or alter it with the option {LAKE_ENABLED.key}=true",
    )


def nothing_tiered(table: TableInfo) -> FlussTieringError:
    """Return the error of what needs the lake table of a table, if nothing of the table is in the lake."""
    path = table.path
    if is_switched_on(table):
        first = f"run `fluss-tiering tier {path}` first, which also says how to bring a missing lake table back"
    else:
        option = f"{LAKE_ENABLED.key}=true"
        first = f"its tiering is switched off: run `fluss-tiering tables alter {path} --set {option}` first"
    return FlussTieringError(
        ErrorCode.LAKE_SNAPSHOT_NOT_EXIST,
        "nothing of the table is in the lake: no round has tiered it yet, or its lake table was dropped or renamed; "
        f"{first}",
    )


def skipped_text(table: TableInfo) -> str:
    """Return why a command leaves out a table that nobody named: nothing of it is in the lake."""
    return f"skipped: {nothing_tiered(table).message}"


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What one maintenance of a lake table has done.

    Attributes:
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
