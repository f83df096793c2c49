"""Repair: files with wrong bounds or wrong physical types are mended while rounds and readers go on.

No row changes. Bounds are mended in the metadata alone. A file with wrong physical types is written again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.repair.check import WrongFile
from fluss_tiering.lake.iceberg.repair.live_files import Entry, live_entries, replace_files, rewrite_bounds
from fluss_tiering.lake.iceberg.repair.retype import FileRewriter
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import FileContent
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import nothing_tiered
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.table_options import LAKE_COMMIT_BRANCH
from fluss_tiering.spark.file_jobs import for_each, wrong_files
from fluss_tiering.spark.maintenance.conflicts import ConflictTries

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair of a lake table.

    Attributes:
        path: The table.
        seconds: How long the repair took, in seconds.
        checked_files: How many data files and delete files were looked at.
        wrong_files: What was found.
        rebound_files: How many files got other bounds, in the metadata.
        rewritten_files: How many files were written again with other physical types.
        conflicts: How often others changed the same files, so that the repair began again.
        error: The reason of a failure; None if the repair worked.
    """

    path: TablePath
    seconds: float = 0.0
    checked_files: int = 0
    wrong_files: tuple[WrongFile, ...] = ()
    rebound_files: int = 0
    rewritten_files: int = 0
    conflicts: int = 0
    error: str | None = None


def repair_table(spark: SparkSession, table: TableInfo) -> Repair:
    """Repair a lake table. A failure is part of the result, so that other tables are still repaired."""
    began = time.perf_counter()
    try:
        with IcebergCatalogs(spark).naming_unreadable_metadata(table):
            done = _Repairer(spark, table).run()
    except FlussTieringError as error:
        done = Repair(table.path, error=error.message)
    return replace(done, seconds=time.perf_counter() - began)


class _Repairer:
    """Repairs one table, once."""

    def __init__(self, spark: SparkSession, table: TableInfo) -> None:
        self._spark = spark
        self._table = table
        self._tries = ConflictTries(table.lake_path, "repair", _ATTEMPTS, "try again while no compaction is under way")

    def run(self) -> Repair:
        """Repair the table and return what was done.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read; LAKE_SNAPSHOT_NOT_EXIST if nothing was tiered yet;
                LAKE_CONFLICT if others changed the same files in each attempt; UNKNOWN if a file cannot be read;
                INVALID_REQUEST if a file has to be written again while the table has deletes by position.
        """
        found, checked, rewritten = self._tries.run(self._rewrite)
        rebound = self._tries.run(self._rebound) if any(each.right_bounds for each in found) else 0
        return Repair(
            self._table.path,
            checked_files=checked,
            wrong_files=tuple(found),
            rebound_files=rebound,
            rewritten_files=rewritten,
            conflicts=self._tries.conflicts,
        )

    def _rewrite(self) -> tuple[list[WrongFile], int, int]:
        """Replace the files with wrong types. Return what is wrong, and how many files were checked and replaced."""
        lake, entries = self._open()
        settings = lake.file_writer()
        found = wrong_files(self._spark, settings, entries)
        badly_typed = [each.location for each in found if each.wrong_types]
        if badly_typed:
            self._check_deletes(entries)
            files = for_each(self._spark, badly_typed, FileRewriter(settings))
            replace_files(lake.java_table, lake.base(), files)
        return found, len(entries), len(badly_typed)

    def _rebound(self) -> int:
        """Mend the bounds of the files that the table has now, and return their number."""
        lake, entries = self._open()
        found = wrong_files(self._spark, lake.file_writer(), entries)
        if not lake.commits_to_main:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"Iceberg mends the bounds of files in main only, and rounds of {self._table.path} commit to another "
                f"branch: publish the table, reset {LAKE_COMMIT_BRANCH.key}, and repair it before the next round",
            )
        return rewrite_bounds(lake.java_table, found)

    def _open(self) -> tuple[IcebergTable, list[Entry]]:
        lake = IcebergCatalogs(self._spark).find_table(self._table)
        if lake is None:
            raise nothing_tiered(self._table)
        return lake, live_entries(lake.java_table)

    def _check_deletes(self, entries: list[Entry]) -> None:
        """Refuse to write files again to which deletes by position may apply, since these name the old file."""
        if any(entry.file.content is FileContent.POSITION_DELETES for entry in entries):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the lake table {self._table.lake_path} has files with wrong physical types and deletes by position, "
                "which name these files: run `fluss-tiering compact`, which writes the files again, and then repair it",
            )
