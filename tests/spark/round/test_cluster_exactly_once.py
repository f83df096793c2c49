"""Exactly once on a real Fluss cluster, whatever happens to the driver: killed at a step of its commit, or stopped.

One driver tiers a log table and a primary-key table. This process tiers them next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from driver_support import (
    COMMITTED,
    KILLED_AT,
    SHARPEST,
    commit_count,
    driver_arguments,
    kill,
    kill_a_driver,
    let_go,
    start_faulty,
    wait_for_driver,
)
from spark_support import Tiering, named, served

from fluss_support import FlussCluster
from fluss_tiering.client import lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import AcquiredLease, TieringState
from fluss_tiering.spark.application import EXIT_INTERRUPTED, EXIT_TABLE_FAILED
from fluss_tiering.storage.fluss.rpc.calls.lake import lake_snapshot
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from waiting import wait_until

FIRST = named(range(10), "first")
SECOND = named(range(5, 15), "second")
LATER = named(range(12, 20), "later")


@dataclass(frozen=True)
class TwoTables:
    """A table of each kind, and the lease for their rounds, as Airflow acquires it."""

    logged: TableInfo
    keyed: TableInfo
    lease: AcquiredLease

    @property
    def each(self) -> tuple[TableInfo, TableInfo]:
        return self.logged, self.keyed


@contextmanager
def two_tables(cluster: Tiering, purpose: str) -> Iterator[TwoTables]:
    """Create the tables with rows. The primary-key table has a KV snapshot."""
    options = {"num_buckets": 2, "freshness": "1s"}
    logged, keyed = cluster.table(primary_key=False, **options), cluster.table(**options)
    for table in (logged, keyed):
        cluster.write(table, FIRST)
    wait_until(lambda: all(each.latest_kv_snapshot for each in cluster.client.list_buckets([keyed.path])[keyed.path]))
    for table in (logged, keyed):
        cluster.write(table, SECOND)
    yield TwoTables(logged, keyed, lease_latest_snapshots(cluster.client, purpose, [logged.path, keyed.path], 600_000))
    for table in (logged, keyed):
        cluster.client.drop_table(table.path, drop_untiered=True)


def known(fluss: FlussClient, table: TableInfo) -> LakeSnapshot | None:
    """Return what the cluster itself knows about the table's newest lake snapshot."""
    try:
        return fluss.call(lake_snapshot(table.path))
    except FlussTieringError as error:
        if error.code is not ErrorCode.LAKE_SNAPSHOT_NOT_EXIST:
            raise
        return None


def write_later(cluster: Tiering, tables: TwoTables) -> None:
    for table in tables.each:
        cluster.write(table, LATER)
    cluster.delete(tables.keyed, [0, 12])


def assert_every_row_once(cluster: Tiering, fluss: FlussClient, tables: TwoTables) -> None:
    """Check that the lake holds each row, also those of `write_later`, and that the cluster knows this."""
    assert cluster.lake_rows(tables.logged) == sorted([*FIRST.items(), *SECOND.items(), *LATER.items()])
    places = sorted((row["__bucket"], row["__offset"]) for row in cluster.lake(tables.logged))
    ends = {bucket.bucket: end for bucket, end in cluster.log_ends(tables.logged).items()}
    assert places == [(bucket, offset) for bucket in sorted(ends) for offset in range(ends[bucket])]
    expected = {**FIRST, **SECOND, **LATER}
    assert cluster.lake_rows(tables.keyed) == sorted((key, expected[key]) for key in expected.keys() - {0, 12})
    for table in tables.each:
        files = cluster.files(table)
        assert len(files) == len(set(files))
        newest = cluster.snapshots(table)[-1].snapshot_id
        assert known(fluss, table) == LakeSnapshot(table.table_id, newest, cluster.log_ends(table))


@pytest.mark.long
@pytest.mark.system
@pytest.mark.parametrize(("when", "step"), KILLED_AT)
def test_a_driver_killed_at_any_step_of_the_commit_leaves_every_row_once(
    cluster: Tiering, fluss: FlussClient, tmp_path: Path, when: str, step: str
) -> None:
    with two_tables(cluster, f"killed {when} {step}") as tables:
        kill_a_driver(cluster, tables.lease, tables.each, (when, step), tmp_path / "killed")
        for table in tables.each:
            assert commit_count(cluster, table) == (1 if (when, step) in COMMITTED else 0)
            assert (known(fluss, table) is not None) == ((when, step) == ("after", "register"))
        write_later(cluster, tables)

        lease = tables.lease
        results = cluster.tier_all(*tables.each, lease_id=lease.lease_id, attempt_token=lease.attempt_token)

        assert [result.error for result in results] == [None, None]
        assert_every_row_once(cluster, fluss, tables)
        for table in tables.each:
            # What was committed is registered, never committed again.
            assert commit_count(cluster, table) == (2 if (when, step) in COMMITTED else 1)
            assert [each.state for each in cluster.rounds(table)] == [TieringState.TIERED, TieringState.FAILED]


@pytest.mark.system
@pytest.mark.long
def test_the_tables_of_a_killed_driver_are_tiered_by_another_one_once_it_was_missed(
    fluss_cluster: FlussCluster, spark, fluss: FlussClient, tmp_path: Path
) -> None:  # S4, S22
    # Longer than drivers are silent.
    settings = {"FLUSS_TIERING_HEARTBEAT_TIMEOUT": "45s", "FLUSS_TIERING_HEARTBEAT_CHECK_INTERVAL": "1s"}
    with (
        served(fluss_cluster.bootstrap, tmp_path / "server", spark, **settings) as cluster,
        two_tables(cluster, "killed and missed") as tables,
    ):
        kill_a_driver(cluster, tables.lease, tables.each, SHARPEST, tmp_path / "killed")
        write_later(cluster, tables)

        results = cluster.tier_all(*tables.each, claim_timeout_s=120)

        assert [result.error for result in results] == [None, None]
        assert_every_row_once(cluster, fluss, tables)
        for table in tables.each:
            newest, missed = cluster.rounds(table)
            assert newest.state is TieringState.TIERED
            assert missed.error.startswith("heartbeat timed out")


# S5, S22, L18
@pytest.mark.long
@pytest.mark.system
def test_a_stopped_driver_whose_successor_finished_changes_nothing(
    cluster: Tiering, fluss: FlussClient, tmp_path: Path
) -> None:
    def what_is_there() -> list[object]:
        return [
            (known(fluss, table), cluster.snapshots(table), cluster.files(table), cluster.rounds(table))
            for table in tables.each
        ]

    with two_tables(cluster, "stopped") as tables:
        lease, marker = tables.lease, tmp_path / "stopped"
        stopped = start_faulty("stop", "after", "prepare", marker, *driver_arguments(cluster, lease, *tables.each))
        try:
            wait_for_driver(stopped, marker.exists)
            write_later(cluster, tables)
            results = cluster.tier_all(*tables.each, lease_id=lease.lease_id, attempt_token=lease.attempt_token)
            assert [result.error for result in results] == [None, None]
            before = what_is_there()
            code, output = let_go(stopped)
        finally:
            kill(stopped)

        # The lake refuses each commit, or the driver hears before that its rounds were superseded.
        assert code in (EXIT_TABLE_FAILED, EXIT_INTERRUPTED), output
        for table in tables.each:
            refused = "lake table changed by somebody else" in output and str(table.path) in output
            assert refused or f"of table {table.path} is not its present one" in output
        assert what_is_there() == before
        assert_every_row_once(cluster, fluss, tables)
        for table in tables.each:
            assert set(cluster.files(table)) == set(cluster.files_on_disk(table))
