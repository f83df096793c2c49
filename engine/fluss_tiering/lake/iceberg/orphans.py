"""Orphans, which are files in a lake table's data folder that no snapshot refers to, and which may be deleted.

Iceberg's own action for orphan files, told to delete nothing, finds the files that snapshots refer to: data files,
delete files, manifests and statistics of all snapshots in the table's metadata. Iceberg's procedure
`remove_orphan_files` refuses a grace period of less than a day, and so does this module.

In addition, a file is kept if its round may still commit it. The names of a round's files contain its tiering epoch.
Once a round, or a later one, has committed, the lake's fence refuses another commit of this round. So the files of an
epoch can be deleted when the newest commit in the lake has that epoch or a later one. The files of a round that still
runs, or whose commit was sent and never answered, have a later epoch and are kept.

A file is also kept if it may belong to another lake table. A renamed table keeps its folder, which a new table with its
old name then shares. A data folder may also be configured for several tables.

Files of the key index are orphans if their partition has no rows in the newest snapshot. Those of another lake table
are, too, if no other table can have files in the folder. Nothing is lost with them: a round makes an index again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.actions import unreferenced_files
from fluss_tiering.lake.iceberg.java import lake_errors, root_message
from fluss_tiering.lake.iceberg.library import call
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.key_index import QuietIndex, quiet_indexes
from fluss_tiering.lake.names import epoch_of_file
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.location import Location
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.units import duration_text

DEFAULT_GRACE: Final = timedelta(days=3)
"""Iceberg's own default for orphan files."""
MIN_GRACE: Final = timedelta(days=1)
_FIRST_METADATA: Final = re.compile(r"/00000-[^/]*\.metadata\.json$")
"""The name of a table's first metadata file, as Iceberg's catalogs choose it."""
_METADATA: Final = ".metadata.json"
_TRIES: Final = 3
"""How often the files that snapshots refer to are looked for while others expire snapshots."""
_MISSING: Final = re.compile(r"File (.*) does not exist\.?")
"""What Hadoop's file systems say of a folder that does not exist."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no snapshot refers to.

    Attributes:
        kept: The reason why it must be kept; None if it may be deleted.
    """

    location: str
    kept: str | None = None


def check_grace(grace: timedelta) -> None:
    """Refuse a grace period of less than a day.

    Raises:
        FlussTieringError: INVALID_REQUEST if the grace period is too short.
    """
    if grace < MIN_GRACE:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"an age of {duration_text(grace // timedelta(milliseconds=1))} is too short: expected one day or more, "
            "because the files of a running commit look like orphan files",
        )


def find_orphans(spark: SparkSession, table: TableInfo, lake: IcebergTable, grace: timedelta) -> list[Orphan]:
    """Return the files in a lake table's data folder that are older than `grace` and that no snapshot refers to.

    Files of key indexes that nobody needs any more are among them.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read; LAKE_TABLE_MISMATCH if the lake table belongs to another
            table.
    """
    # The newest commit is read before the files are listed: a commit in between has a later epoch.
    newest = lake.newest_commit()
    decided = -1 if newest is None else newest.commit.tiering_epoch
    older_than = datetime.now(UTC) - grace
    # Iceberg does not know the offsets file that the newest commit names.
    named = None if newest is None else newest.commit.lake_offsets
    found = unreferenced(spark, table, lake, lake.data_location(), older_than)
    locations = [each for each in found if named is None or _path(each) != _path(named)]
    quiet = quiet_indexes(lake.index_store(), older_than) if table.descriptor.primary_key else []
    own = lake.uuid if quiet else ""
    foreign = [each for each in quiet if each.table_uuid != own]
    shared = _shared(spark, table, lake, older_than) if locations or foreign else None
    return [
        *(Orphan(location, shared or _reason_to_keep(location, decided)) for location in locations),
        *(Orphan(location, shared) for location in _locations(lake, foreign)),
        *map(Orphan, _locations(lake, [each for each in quiet if each.table_uuid == own and _is_gone(lake, each)])),
    ]


def _locations(lake: IcebergTable, indexes: Sequence[QuietIndex]) -> list[str]:
    store = lake.index_store()
    return [store.full_name(name) for each in indexes for name in each.names]


def _is_gone(lake: IcebergTable, index: QuietIndex) -> bool:
    """Return whether the partition of an index, which is of this table, has no rows any more."""
    values = index.partition_values
    return values is not None and values != () and not lake.partitions_with_rows({values: index.buckets})


def _shared(spark: SparkSession, table: TableInfo, lake: IcebergTable, older_than: datetime) -> str | None:
    """Return the reason why another lake table may have files in the data folder; None if none can."""
    if not lake.data_location().startswith(f"{lake.location()}/"):
        return f"it lies outside of the lake table's own folder {lake.location()}, where other tables may write"
    # A table's first metadata file is older than all its data files.
    old = unreferenced(spark, table, lake, lake.metadata_location(), older_than)
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


def unreferenced(
    spark: SparkSession, table: TableInfo, lake: IcebergTable, location: str, older_than: datetime
) -> list[str]:
    """Return the files of a folder that are older and that no snapshot of the table refers to.

    Raises:
        FlussTieringError: STORAGE if the folder cannot be listed.
    """
    with lake_errors(f"list the files of the lake table {table.lake_path}"):
        tries_left = _TRIES
        while True:
            before, tries_left = _metadata_file(lake), tries_left - 1
            try:
                return unreferenced_files(spark, lake.java_table, location, int(older_than.timestamp() * 1000))
            except Py4JJavaError as error:
                # The folder does not exist if nothing was ever written. Any other missing file is damage.
                missing = _MISSING.fullmatch(root_message(error))
                if missing is not None and _path(missing[1]) == _path(location):
                    return []
                # An expiry beside it deletes metadata that the action was about to read.
                call(lake.java_table, "refresh")
                if tries_left == 0 or _metadata_file(lake) == before:
                    raise


def stale_metadata_files(spark: SparkSession, table: TableInfo, lake: IcebergTable, grace: timedelta) -> list[str]:
    """Return the metadata files of a lake table that are older than `grace` and that its metadata does not name.

    Iceberg writes a metadata file with each commit, and the newest one names those before it, at most as many as
    `write.metadata.previous-versions-max` (100) says. Older ones stay in the folder, unless the table was told to
    delete them (`write.metadata.delete-after-commit.enabled`). Nothing reads these.

    Files of another lake table in the same folder are left out.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    found = unreferenced(spark, table, lake, lake.metadata_location(), datetime.now(UTC) - grace)
    return [each for each in found if each.endswith(_METADATA) and lake.is_own_metadata(each)]


def _metadata_file(lake: IcebergTable) -> str:
    return str(call(lake.java_table, "metadataFile"))


def _path(location: str) -> str:
    """Return the path of a location. Hadoop lists `file:///a` as `file:/a`, and `hdfs:///a` with the name node."""
    return Location.parse(location).path.rstrip("/")
