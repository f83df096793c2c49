"""Finds, and deletes, what lies in lake tables' data folders without a snapshot that refers to it."""

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
    """What became of a table's files.

    Attributes:
        orphans: the files that no snapshot refers to.
        deleted: locations of those that were deleted.
        not_deleted: of those that should have been.
        error: why the table could not be looked at; None where it could.
    """

    path: TablePath
    orphans: Sequence[Orphan] = ()
    deleted: frozenset[str] = frozenset()
    not_deleted: frozenset[str] = frozenset()
    error: str | None = None


def clean_table(spark: SparkSession, table: TableInfo, *, grace: timedelta, delete: bool) -> TableFiles:
    """Lists the orphans of a lake table, and deletes those that may be when asked to.

    A table that cannot be looked at is part of the answer: it keeps no other from being cleaned.

    Raises:
        FlussTieringError: INVALID_REQUEST for a grace period that is too short.
    """
    check_grace(grace)
    try:
        lake = IcebergCatalogs(spark).find_table(table)
        if lake is None:
            return TableFiles(table.path)
        orphans = find_orphans(spark, table, lake, grace)
    except FlussTieringError as error:
        return TableFiles(table.path, error=error.message)
    if not delete:
        return TableFiles(table.path, orphans)
    free = [each.location for each in orphans if each.kept is None]
    not_deleted = frozenset(lake.delete_locations(free))
    return TableFiles(table.path, orphans, frozenset(free) - not_deleted, not_deleted)
