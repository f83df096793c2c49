"""Compaction: small files and files with deletes are rewritten while rounds and readers go on.

A rewrite changes files but no rows, so the fence of a round's commit does not see it as a conflict. A rewrite gives
its files the sequence number of the snapshot that it started from. The equality deletes of a round that commits in the
meantime therefore apply to the new files as they would have applied to the old ones. Another rewrite, or a DELETE by
somebody else, can remove files that a rewrite works on. The rewrite is then planned again.

Fluss's readers stay with the lake snapshot that they know. They see the rewritten files in the snapshot of the next
round.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.file_counts import FileCounts, file_counts, manifest_sizes
from fluss_tiering.lake.iceberg.java import is_conflict, java_error_text, lake_errors
from fluss_tiering.lake.iceberg.maintenance.position_deletes import rewrite_position_deletes
from fluss_tiering.lake.iceberg.maintenance.rewrites import Rewritten, rewrite_manifests
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.iceberg.validation import has_times
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import nothing_tiered
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.spark.maintenance.plan import fewer_manifests
from fluss_tiering.spark.maintenance.rewriting import rewrite_data_files
from fluss_tiering.spark.maintenance_options import DEFAULT_DELETE_FILES, DEFAULT_MIN_INPUT_FILES

_OF_SPARK: Final = {
    "remove-dangling-deletes": "true",
    # This is Iceberg's default. With it a round's equality deletes apply to files that are rewritten meanwhile.
    "use-starting-sequence-number": "true",
}
_ATTEMPTS: Final = 3
"""How often each step is tried while others change the same files. Iceberg itself repeats a late commit."""
_REMEDY: Final = (
    "try again while fewer rounds of the table run, and while no other compaction, DELETE or UPDATE does. With "
    "table.datalake.auto-compaction, `fluss-tiering tier --drain --follow` compacts between rounds"
)
_DESCRIPTION: Final = re.compile(r"Generic(?:Data|Delete)File\{.*?file_path=([^,}]*).*\}")
"""Iceberg's description of a file, which is long."""

R = TypeVar("R")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction of a lake table.

    Attributes:
        seconds: How long the compaction took, in seconds.
        before: The table's files at the beginning; None if they could not be read.
        after: The table's files at the end, including those that rounds added in the meantime.
        rewritten_files: How many data files were replaced.
        rewritten_bytes: The size of the replaced files.
        added_files: How many data files replaced them.
        conflicts: How often others changed the same files, so that the rewrite was planned again.
        error: The reason of a failure; None if the compaction worked.
    """

    path: TablePath
    seconds: float = 0.0
    before: FileCounts | None = None
    after: FileCounts | None = None
    rewritten_files: int = 0
    rewritten_bytes: int = 0
    added_files: int = 0
    conflicts: int = 0
    error: str | None = None


def compact_table(
    spark: SparkSession,
    table: TableInfo,
    *,
    min_input_files: int = DEFAULT_MIN_INPUT_FILES,
    delete_files: int = DEFAULT_DELETE_FILES,
) -> Compaction:
    """Compact a lake table. A failure is part of the result, so that other tables are still compacted.

    Args:
        min_input_files: How many small files of a bucket are needed to merge them.
        delete_files: How many delete files must apply to a data file, so that it is rewritten at any size.
    """
    began = time.perf_counter()
    try:
        done = _Compactor(spark, table, min_input_files, delete_files).run()
    except FlussTieringError as error:
        done = Compaction(table.path, error=error.message)
    return replace(done, seconds=time.perf_counter() - began)


class _Compactor:
    """Compacts one table, once."""

    def __init__(self, spark: SparkSession, table: TableInfo, min_input_files: int, delete_files: int) -> None:
        self._spark = spark
        self._table = table
        self._catalogs = IcebergCatalogs(spark)
        self._options = {
            "min-input-files": str(min_input_files),
            "delete-file-threshold": str(delete_files),
        }
        self._conflicts = 0

    def run(self) -> Compaction:
        """Compact the table and return what was done.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be reached; LAKE_SNAPSHOT_NOT_EXIST if nothing was tiered yet;
                LAKE_CONFLICT if others changed the same files in each attempt; LAKE_TABLE_MISMATCH if the lake table
                has another layout;
                INVALID_REQUEST if the table has a TIME column and files that only Spark could rewrite.
        """
        lake = self._open()
        before = file_counts(lake.java_table)
        if lake.base() is None:
            return Compaction(self._table.path, before=before, after=before)
        rewritten = self._try(self._rewrite)
        if file_counts(self._open().java_table).position_deletes and not has_times(self._table):
            self._try(self._rewrite_position_deletes)
        # Iceberg merges the manifests of main only.
        if lake.commits_to_main and fewer_manifests(manifest_sizes(self._open().java_table)):
            self._try(self._merge_manifests)
        return Compaction(
            self._table.path,
            before=before,
            after=file_counts(self._open().java_table),
            rewritten_files=rewritten.files,
            rewritten_bytes=rewritten.bytes,
            added_files=rewritten.new_files,
            conflicts=self._conflicts,
        )

    def _rewrite(self) -> Rewritten:
        return rewrite_data_files(
            self._spark, self._table, self._open(), None, options=self._options, of_spark=_OF_SPARK
        )

    def _rewrite_position_deletes(self) -> None:
        rewrite_position_deletes(self._spark, self._open().java_table)

    def _merge_manifests(self) -> None:
        rewrite_manifests(self._spark, self._open().java_table)

    def _open(self) -> IcebergTable:
        """Return the lake table as it is now."""
        lake = self._catalogs.find_table(self._table)
        if lake is None:
            raise nothing_tiered(self._table)
        return lake

    def _try(self, step: Callable[[], R]) -> R:
        """Do a step, again if rounds, compactions or DELETEs of others changed the same files meanwhile.

        Raises:
            FlussTieringError: LAKE_CONFLICT if they did in each attempt; the errors of `lake_errors`.
        """
        retrying = Retrying(
            retry=retry_if_exception(is_conflict),
            wait=wait_random_exponential(multiplier=0.5, max=10),
            stop=stop_after_attempt(_ATTEMPTS),
            before_sleep=self._count_conflict,
            reraise=True,
        )
        doing = f"compact the lake table {self._table.lake_path}"
        with lake_errors(doing):
            try:
                return retrying(step)
            except Py4JError as error:
                if not is_conflict(error):
                    raise
                raise FlussTieringError(
                    ErrorCode.LAKE_CONFLICT,
                    f"could not {doing}: rounds or others changed the same files in each of {_ATTEMPTS} attempts; "
                    f"{_REMEDY} ({_reason(error)})",
                ) from None

    def _count_conflict(self, attempt: RetryCallState) -> None:
        self._conflicts += 1
        failure = None if attempt.outcome is None else attempt.outcome.exception()
        logger.warning(
            "rounds or others changed %s while it was tried to compact it, attempt %d of %d begins: %s",
            self._table.lake_path,
            attempt.attempt_number + 1,
            _ATTEMPTS,
            _reason(failure) if isinstance(failure, Py4JError) else failure,
        )


def _reason(error: Py4JError) -> str:
    return _DESCRIPTION.sub(r"\1", java_error_text(error))
