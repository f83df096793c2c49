"""Finds and deletes orphans: files in a lake table's data folder that no snapshot refers to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.orphans import Orphan, check_grace, find_orphans
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The result of a clean-up of a table's files.

    Attributes:
        orphans: The files that no snapshot refers to.
        deleted: The locations of the orphans that were deleted.
        not_deleted: The locations of the orphans that could not be deleted.
        tiered: Whether the table has a lake table.
        error: The reason why the table could not be examined; None if it could.
    """

    path: TablePath
    orphans: Sequence[Orphan] = ()
    deleted: frozenset[str] = frozenset()
    not_deleted: frozenset[str] = frozenset()
    tiered: bool = True
    error: str | None = None


def clean_table(spark: SparkSession, table: TableInfo, *, grace: timedelta, delete: bool) -> TableFiles:
    """List the orphans of a lake table, and perhaps delete those that may be deleted.

    A table that cannot be examined is reported in the result, so that other tables are still cleaned.

    Args:
        grace: How old an orphan must be before it may be deleted.
        delete: Whether to delete orphans.

    Raises:
        FlussTieringError: INVALID_REQUEST if the grace period is too short.
    """
    check_grace(grace)
    try:
        catalogs = IcebergCatalogs(spark)
        lake = catalogs.find_table(table)
        if lake is None:
            return TableFiles(table.path, tiered=False)
        orphans = find_orphans(spark, table, lake, grace)
    except FlussTieringError as error:
        return TableFiles(table.path, error=error.message)
    if not delete:
        return TableFiles(table.path, orphans)
    free = [each.location for each in orphans if each.kept is None]
    not_deleted = frozenset(lake.delete_locations(free))
    return TableFiles(table.path, orphans, frozenset(free) - not_deleted, not_deleted)
