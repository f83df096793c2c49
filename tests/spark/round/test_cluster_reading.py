"""Rounds whose executors read a real Fluss cluster through a listener that demands credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from spark_support import Tiering, replace_stage, served

from fluss_support import USER, FlussCluster
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.round import plan, waves
from fluss_tiering.spark.round.pieces import StageJob
from fluss_tiering.spark.round.plan import LogPiece, SnapshotPiece
from fluss_tiering.spark.round.stage import run_stage
from fluss_tiering.storage.fluss.access import PASSWORD_VARIABLE, USERNAME_VARIABLE
from fluss_tiering.storage.fluss.reading import split_keys
from needs import needs
from waiting import wait_until

SMALL = 16 << 10
"""The size in bytes from which ranges are split, so that few rows make several pieces."""


_CREDENTIALS = {USERNAME_VARIABLE: USER.username, PASSWORD_VARIABLE: USER.password}


@pytest.fixture(scope="module")
@needs("server")
def behind_sasl(fluss_cluster: FlussCluster, spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiering]:
    folder = tmp_path_factory.mktemp("cluster-rounds")
    with served(fluss_cluster.sasl_bootstrap, folder, spark, **_CREDENTIALS) as tiering:
        yield tiering


@pytest.fixture
def cluster(behind_sasl: Tiering, monkeypatch: pytest.MonkeyPatch) -> Tiering:
    """Set the credentials. Spark's workers are older than these variables and get them from the driver only."""
    for name, value in _CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return behind_sasl


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[StageJob]:
    """Return the stages that run from now on, with small pieces."""
    seen: list[StageJob] = []

    def run(spark, job: StageJob, *arguments):
        seen.append(job)
        return run_stage(spark, job, *arguments)

    replace_stage(monkeypatch, run)
    monkeypatch.setattr(plan, "MIN_PIECE_BYTES", SMALL)
    monkeypatch.setattr(waves, "MIN_PIECE_BYTES", SMALL)
    monkeypatch.setattr(split_keys, "_PIECE_BYTES", SMALL)
    return seen


def test_one_bucket_is_read_by_both_cores(cluster: Tiering, jobs: list[StageJob]) -> None:
    rows = {key: f"name {key}" for key in range(6_000)}
    keyed, logged = cluster.table(freshness="1s"), cluster.table(primary_key=False, freshness="1s")
    for table in (keyed, logged):
        # Batches of their own, since pieces of a log begin where batches do not.
        for start in range(0, 6_000, 1_000):
            cluster.write(table, {key: rows[key] for key in range(start, start + 1_000)})
    wait_for_snapshot(cluster, keyed, 6_000)
    for table in (keyed, logged):
        cluster.tier(table, claim_timeout_s=60)
        assert cluster.lake_rows(table) == list(rows.items())
    # The second stage of the table with a key only writes deletes.
    read = [job for job in jobs if isinstance(job, StageJob)]
    snapshots, logs = ([work.piece for work in job.work] for job in read)
    assert {type(piece) for piece in snapshots} == {SnapshotPiece}
    assert {type(piece) for piece in logs} == {LogPiece}
    assert all(job.tasks >= 2 for job in read)
    assert USER.password not in repr(jobs)

    cluster.write(keyed, {3: "changed"})
    cluster.delete(keyed, [4])
    cluster.tier(keyed, claim_timeout_s=60)
    assert cluster.lake_rows(keyed) == sorted({**rows, 3: "changed"}.items() - {(4, "name 4")})


def wait_for_snapshot(cluster: Tiering, table: TableInfo, log_offset: int) -> None:
    def is_there() -> bool:
        (bucket,) = cluster.client.list_buckets([table.path])[table.path]
        return (latest := bucket.latest_kv_snapshot) is not None and latest.log_offset >= log_offset

    wait_until(is_there)
