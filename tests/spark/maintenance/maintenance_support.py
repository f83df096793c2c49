"""Helpers for tests of maintenance: compaction and expiry that must not fail, and a commit that is not registered."""

from __future__ import annotations

from datetime import timedelta

import pytest
from spark_support import Tiering, named

import judges
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.maintenance.compact import Compaction, compact_table
from fluss_tiering.spark.maintenance.expire import Expiry, expire_snapshots
from fluss_tiering.spark.retry import RetryingClient

NO_AGE = timedelta()


def compact(tiering: Tiering, table: TableInfo, **options: int) -> Compaction:
    done = compact_table(tiering.spark, table, **{"min_input_files": 2, **options})
    assert done.error is None
    return done


def expire(tiering: Tiering, table: TableInfo, **options) -> Expiry:
    done = expire_snapshots(tiering.client, tiering.spark, table, **{"older_than": NO_AGE, **options})
    assert done.error is None
    return done


def ids(tiering: Tiering, table: TableInfo) -> list[int]:
    """Return the ids of the lake's snapshots, the oldest first."""
    return [row.snapshot_id for row in tiering.snapshots(table)]


def known(tiering: Tiering, table: TableInfo) -> int:
    snapshot = tiering.client.lake_snapshot(table.path)
    assert snapshot is not None
    return snapshot.snapshot_id


def tier_without_registering(tiering: Tiering, table: TableInfo, monkeypatch: pytest.MonkeyPatch, **options) -> int:
    """Run a round that dies between the two commits, and return its lake snapshot."""
    with monkeypatch.context() as patched:

        def die(*args, **kwargs):
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "died between the two commits")

        patched.setattr(RetryingClient, "commit_lake_snapshot", die)
        assert tiering.tier_all(table, **options)[0].failed
    (*_, unregistered) = ids(tiering, table)
    return unregistered


def rounds(tiering: Tiering, table: TableInfo, count: int, keys: range = range(10)) -> None:
    """Run rounds that rewrite every key."""
    for number in range(count):
        tiering.round(table, named(keys, f"round {number}"))


def duckdb_rows(tiering: Tiering, table: TableInfo) -> list[tuple[int, str]]:
    """Return the lake's rows as DuckDB reads them."""
    warehouse = table.lake_catalog_properties["warehouse"]
    location = f"{warehouse}/{table.path.database}/{table.path.table}"
    read = judges.read("duckdb", judges.newest_metadata(location), columns=["id", "name"])
    return sorted((row["id"], row["name"]) for row in read.to_pylist())


def data_files(tiering: Tiering, table: TableInfo) -> list[str]:
    """Return the data files of the lake's present snapshot, as Iceberg's metadata table has them."""
    rows = tiering.spark.sql(f"SELECT file_path FROM {tiering.name(table)}.data_files").collect()
    return sorted(row.file_path for row in rows)


def delete_files(tiering: Tiering, table: TableInfo) -> int:
    """Return the number of delete files of the lake's present snapshot."""
    return tiering.spark.sql(f"SELECT * FROM {tiering.name(table)}.delete_files").count()
