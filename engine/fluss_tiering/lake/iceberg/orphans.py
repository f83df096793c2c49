"""Files in a lake table's data folder that no snapshot refers to, and which of them may be deleted.

What is referred to is found by Iceberg's own `remove_orphan_files` as a dry run: data files, delete files, manifests
and statistics of all snapshots in the table's metadata. It refuses a grace period below a day, and so does this.

On top of that no file is touched whose round may still commit it. A round's files carry its tiering epoch in their
names. The lake's fence refuses the commit of a round once a later one, or the round itself, has committed: so the files
of an epoch are decided when the newest commit in the lake is of that epoch or a later one. Those of a round that is
running, or whose commit was sent and never answered, have a later epoch than that, and are kept.

Nor is any file touched where another lake table may have its own: a table that was renamed stays in the folder that the
next one of its old name then shares, and a data folder may be configured for several tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.java import lake_errors, root_message
from fluss_tiering.lake.iceberg.procedures import Argument, call_procedure
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.names import epoch_of_file
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo

DEFAULT_GRACE: Final = timedelta(days=3)
"""Iceberg's own for orphan files."""
MIN_GRACE: Final = timedelta(days=1)
_FIRST_METADATA: Final = re.compile(r"/00000-[^/]*\.metadata\.json$")
"""As Iceberg's catalogs name the metadata file with which they make a table."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no snapshot refers to.

    Attributes:
        kept: why it must stay all the same; None for a file that may be deleted.
    """

    location: str
    kept: str | None = None


def check_grace(grace: timedelta) -> None:
    """Raises INVALID_REQUEST for a grace period below a day."""
    if grace < MIN_GRACE:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"a grace period of {grace} is too short: expected a day or more, since the files of a commit "
            "that is under way look like orphans",
        )


def find_orphans(spark: SparkSession, table: TableInfo, lake: IcebergTable, grace: timedelta) -> list[Orphan]:
    """The files in the data folder of a lake table that are older than `grace` and that no snapshot refers to.

    Raises:
        FlussTieringError: STORAGE; LAKE_TABLE_MISMATCH.
    """
    # The files are listed after the newest commit was read: what is committed in between has a later epoch.
    newest = lake.newest_commit()
    decided = -1 if newest is None else newest.commit.tiering_epoch
    older_than = datetime.now(UTC) - grace
    locations = _unreferenced(spark, table, lake.data_location(), older_than)
    shared = _shared(spark, table, lake, older_than) if locations else None
    return [Orphan(location, shared or _reason_to_keep(location, decided)) for location in locations]


def _shared(spark: SparkSession, table: TableInfo, lake: IcebergTable, older_than: datetime) -> str | None:
    """Why another lake table may have files in the data folder; None where none can."""
    if not lake.data_location().startswith(f"{lake.location()}/"):
        return f"it lies outside of the lake table's own folder {lake.location()}, where other tables may write"
    # What is older than a file of another table: the first metadata that this other table had.
    old = _unreferenced(spark, table, lake.metadata_location(), older_than)
    foreign = [each for each in old if _FIRST_METADATA.search(each) and not lake.is_own_metadata(each)]
    if not foreign:
        return None
    return (
        "another lake table was made in this folder and keeps its files here if it was only renamed: "
        f"delete its first metadata {foreign[0]} where it is dropped for good"
    )


def _reason_to_keep(location: str, decided_epoch: int) -> str | None:
    epoch = epoch_of_file(location)
    if epoch is None or epoch <= decided_epoch:
        return None
    return f"the round of epoch {epoch} may still commit it: it is decided when that round or a later one has committed"


def _unreferenced(spark: SparkSession, table: TableInfo, location: str, older_than: datetime) -> list[str]:
    """The files of a folder that are older and that no snapshot of the table refers to."""
    arguments: dict[str, Argument] = {
        "location": location,
        "older_than": older_than,
        "dry_run": True,
        "prefix_listing": True,
    }
    with lake_errors(f"list the files of the lake table {table.path}"):
        try:
            rows = call_procedure(spark, table, "remove_orphan_files", **arguments)
        except Py4JJavaError as error:
            # Nothing was ever written; another file that is missing is damage.
            if root_message(error) != f"File {location} does not exist":
                raise
            return []
    return sorted(row.orphan_file_location for row in rows)
