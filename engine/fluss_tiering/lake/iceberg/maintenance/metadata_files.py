"""Metadata files of a lake table that its present metadata does not name any more.

Iceberg writes a metadata file with each commit, and the newest one names those before it, at most as many as
`write.metadata.previous-versions-max` (100) says. Older ones stay in the folder, unless the table was told to delete
them (`write.metadata.delete-after-commit.enabled`). Nothing reads these.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.orphans import unreferenced
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.table import TableInfo

_METADATA: Final = ".metadata.json"


def stale_metadata_files(spark: SparkSession, table: TableInfo, lake: IcebergTable, grace: timedelta) -> list[str]:
    """Return the metadata files of a lake table that are older than `grace` and that its metadata does not name.

    Files of another lake table in the same folder are left out.

    Raises:
        FlussTieringError: STORAGE if the lake cannot be read.
    """
    found = unreferenced(spark, table, lake, lake.metadata_location(), datetime.now(UTC) - grace)
    return [each for each in found if each.endswith(_METADATA) and lake.is_own_metadata(each)]
