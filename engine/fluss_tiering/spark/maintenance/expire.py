"""Expiry of old lake snapshots, and of the files that only these snapshots refer to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from pyspark.sql import SparkSession

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.actions import expire
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.expiry import expirable_snapshots
from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.library import JavaTable, ask
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import nothing_tiered
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.plural import counted

_SNAPSHOTS_AT_ONCE: Final = 100
"""How many snapshots one commit expires, if the expiry may have to end early. Each commit reads manifests of all
snapshots that are left, to find the files that only its own snapshots need."""
_CLEAN: Final = "run fluss-tiering clean, which removes them once they are old enough"


@dataclass(frozen=True, slots=True)
class Expiry:
    """The result of an expiry of a lake table's snapshots.

    Attributes:
        seconds: How long the expiry took, in seconds.
        expired: How many snapshots were removed.
        kept: How many snapshots are left.
        needed: How many of these are old enough, but are needed by recovery or by Fluss's readers.
        deleted_files: How many files were deleted: data files, delete files, manifests and manifest lists that only
            expired snapshots referred to.
        error: The reason of a failure; None if the expiry worked.
    """

    path: TablePath
    seconds: float = 0.0
    expired: int = 0
    kept: int = 0
    needed: int = 0
    deleted_files: int = 0
    error: str | None = None


def expire_snapshots(
    client: TieringClient,
    spark: SparkSession,
    table: TableInfo,
    *,
    older_than: timedelta | None = None,
    retain_last: int | None = None,
) -> Expiry:
    """Expire the snapshots that `expirable_snapshots` allows. A failure is part of the result.

    Args:
        older_than: How old a snapshot must be; None for what the lake table's properties say.
        retain_last: How many of the newest snapshots are kept at any age; None for what the lake table's properties
            say.
    """
    began = time.perf_counter()
    older_than_ms = None if older_than is None else int((time.time() - older_than.total_seconds()) * 1000)
    try:
        done = expire_planned(client, spark, table, older_than_ms, retain_last)
    except FlussTieringError as error:
        done = Expiry(table.path, error=error.message)
    return replace(done, seconds=time.perf_counter() - began)


def expire_planned(
    client: TieringClient,
    spark: SparkSession,
    table: TableInfo,
    older_than_ms: int | None = None,
    retain_last: int | None = None,
    *,
    may_go_on: Callable[[], bool] | None = None,
) -> Expiry:
    """Expire the snapshots that `expirable_snapshots` allows, with the same arguments.

    Args:
        older_than_ms: As for `expirable_snapshots`.
        retain_last: As for `expirable_snapshots`.
        may_go_on: Is asked between commits of some snapshots each, the oldest first, and ends the expiry with False;
            None for one commit of all snapshots.

    Raises:
        FlussTieringError: The errors of `expirable_snapshots`; LAKE_SNAPSHOT_NOT_EXIST if nothing was tiered yet.
    """
    # This is read before the lake table is opened: a snapshot that is registered in between is newer.
    known = client.lake_snapshot(table.path)
    catalogs = IcebergCatalogs(spark)
    lake = catalogs.find_table(table)
    if lake is None:
        raise nothing_tiered(table)
    found = expirable_snapshots(
        lake,
        None if known is None else known.snapshot_id,
        older_than_ms=older_than_ms,
        retain_last=retain_last,
    )
    expired = deleted = 0
    at_once = len(found.free) if may_go_on is None else _SNAPSHOTS_AT_ONCE
    while expired < len(found.free) and (expired == 0 or may_go_on is None or may_go_on()):
        part = found.free[expired : expired + at_once]
        try:
            with lake_errors(f"expire snapshots of the lake table {table.lake_path}"):
                # The snapshots are named by their ids, so that commits of others in the meantime change nothing.
                deleted += expire(spark, lake.java_table, part)
        except FlussTieringError as error:
            raise _broken_off(lake.java_table, error, part, expired) from None
        expired += len(part)
    return Expiry(
        table.path,
        expired=expired,
        kept=found.all_snapshots - expired,
        needed=found.needed,
        deleted_files=deleted,
    )


def _broken_off(table: JavaTable, error: FlussTieringError, part: Sequence[int], others: int) -> FlussTieringError:
    """Return the error of an expiry with what had been done. Iceberg expires snapshots before it looks for their files.

    Args:
        error: Why the expiry failed.
        part: The snapshots whose expiry failed.
        others: How many others were expired.
    """
    gone = 0
    with suppress(FlussTieringError), lake_errors("read the snapshots"):
        gone = len(part) - len(ask(table, "present", part))
    if gone + others == 0:
        return error
    what = f"{counted(gone + others, 'snapshot')} {'was' if gone + others == 1 else 'were'} expired before that"
    # The table does not name the files of these snapshots any more.
    files = f", but their files may still be there: {_CLEAN}" if gone else ""
    return FlussTieringError(error.code, f"{error.message}; {what}{files}")
