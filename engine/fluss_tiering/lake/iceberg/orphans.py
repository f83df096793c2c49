"""Files in a lake table's data folder that no snapshot refers to, and which of them may be deleted.

What is referred to is found by Iceberg's own `remove_orphan_files` as a dry run: data files, delete files, manifests
and statistics of all snapshots in the table's metadata. It refuses a grace period below a day, and so does this.

On top of that no file is touched whose round may still commit it. A round's files carry its tiering epoch in their
names. The lake's fence refuses the commit of a round once a later one, or the round itself, has committed: so the files
of an epoch are decided when the newest commit in the lake is of that epoch or a later one. Those of a round that is
running, or whose commit was sent and never answered, have a later epoch than that, and are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.catalog import DEFAULT_CATALOG_NAME
from fluss_tiering.lake.iceberg.java import lake_errors, root_message
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.names import epoch_of_file
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo

DEFAULT_GRACE: Final = timedelta(days=3)
"""Iceberg's own for orphan files."""
MIN_GRACE: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no snapshot refers to.

    Attributes:
        kept: why it must stay all the same; None for a file that may be deleted.
    """

    location: str
    kept: str | None = None


def find_orphans(spark: SparkSession, table: TableInfo, lake: IcebergTable, grace: timedelta) -> list[Orphan]:
    """The files in the data folder of a lake table that are older than `grace` and that no snapshot refers to.

    Raises:
        FlussTieringError: INVALID_REQUEST for a grace below a day; STORAGE; LAKE_TABLE_MISMATCH.
    """
    if grace < MIN_GRACE:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"a grace period of {grace} is too short: expected a day or more, since the files of a commit "
            "that is under way look like orphans",
        )
    # The files are listed after the newest commit was read: what is committed in between has a later epoch.
    newest = lake.newest_commit()
    decided = -1 if newest is None else newest.commit.tiering_epoch
    return [
        Orphan(location, _reason_to_keep(location, decided)) for location in _unreferenced(spark, table, lake, grace)
    ]


def _reason_to_keep(location: str, decided_epoch: int) -> str | None:
    epoch = epoch_of_file(location)
    if epoch is None or epoch <= decided_epoch:
        return None
    return f"the round of epoch {epoch} may still commit it: it is decided when that round or a later one has committed"


def _unreferenced(spark: SparkSession, table: TableInfo, lake: IcebergTable, grace: timedelta) -> list[str]:
    catalog = table.lake_catalog_properties.get("name", DEFAULT_CATALOG_NAME)
    older_than = datetime.now(UTC) - grace
    location = lake.data_location()
    doing = f"list the files of the lake table {table.path}"
    statement = (
        f"CALL {_quoted(catalog)}.system.remove_orphan_files(table => :table, location => :location, "
        "older_than => :older_than, dry_run => true, prefix_listing => true)"
    )
    arguments = {"table": str(table.path), "location": location, "older_than": older_than}
    try:
        with lake_errors(doing):
            try:
                rows = spark.sql(statement, args=arguments).collect()
            except Py4JJavaError as error:
                # Nothing was ever written; another file that is missing is damage.
                if root_message(error) != f"File {location} does not exist":
                    raise
                return []
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise FlussTieringError(ErrorCode.STORAGE, f"could not {doing}: {reason}") from None
    return sorted(row.orphan_file_location for row in rows)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
