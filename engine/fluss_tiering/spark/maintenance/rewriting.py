"""Rewrites of data files: by our own tasks where they can read the files, by Iceberg's action for Spark otherwise.

Our tasks take a fraction of the time for many small files. They sort the new files by primary key, and note them in the
key index of a table with deletes by position.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.java import JAVA_ERRORS, is_conflict, java_error_text
from fluss_tiering.lake.iceberg.maintenance.place_groups import PlannedRewrite, planned_rewrite
from fluss_tiering.lake.iceberg.maintenance.rewrites import Part, PartitionValues, Rewritten, rewrite
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.iceberg.validation import refuse_times
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.file_jobs import for_each

_UNREADABLE: Final = re.compile(
    r"ParquetDecodingException|EOFException|FileNotFoundException|NotFoundException|is not a Parquet file"
)
"""What Spark tells of a data file or a delete file that is damaged or missing."""

logger = logging.getLogger(__name__)


def rewrite_data_files(
    spark: SparkSession,
    table: TableInfo,
    lake: IcebergTable,
    partitions: Sequence[PartitionValues] | None,
    *,
    options: Mapping[str, str],
    of_spark: Mapping[str, str],
    tasks: int | None = None,
    part: Part | None = None,
) -> Rewritten:
    """Rewrite data files in one commit. Errors of the commit are those of the JVM.

    Args:
        lake: The lake table, which has a snapshot.
        partitions: The partitions, each once; None for all of them.
        options: The options of Iceberg's planner, which chooses the files.
        of_spark: Further options of a rewrite by Spark.
        tasks: How many tasks write at the same time; None for as many as Spark has cores.
        part: What is rewritten at most; None for all that the planner chooses.

    Raises:
        FlussTieringError: UNKNOWN if a task failed for good; STORAGE if a file cannot be read; INVALID_REQUEST if
            Spark would have to rewrite a table with a TIME column.
    """
    planned = planned_rewrite(lake, partitions, options, None if part is None else part.bytes)
    if planned is not None and (done := _by_tasks(spark, lake, planned, tasks)) is not None:
        return done
    refuse_times(
        table,
        "compact this one with an engine that reads TIME and equality deletes and keeps sequence numbers, see "
        "'Tables with TIME' in the documentation",
    )
    limit = {} if part is None else {"max-files-to-rewrite": str(part.files)}
    try:
        return rewrite(spark, lake.java_table, partitions, {**options, **of_spark, **limit})
    except JAVA_ERRORS as error:
        text = java_error_text(error)
        if is_conflict(error) or not _UNREADABLE.search(text):
            raise
        # Spark does not always say which file it is.
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"{text}: could not rewrite files of the lake table {table.lake_path}; fluss-tiering verify {table.path} "
            "names files that are missing or damaged",
        ) from None


def _by_tasks(spark: SparkSession, lake: IcebergTable, planned: PlannedRewrite, tasks: int | None) -> Rewritten | None:
    """Rewrite files by our own tasks; None if these cannot read them, and nothing was changed."""
    written = for_each(spark, planned.places, planned.rewriter, tasks=tasks)
    new = [file for each in written for file in each.files]
    unknown = next((each.unknown_layout for each in written if each.unknown_layout), None)
    if unknown is not None:
        logger.info("%s, so that Spark rewrites it", unknown)
        lake.delete_files(new)
        return None
    return planned.commit(lake, new)
