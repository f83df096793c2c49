"""The life of an application's lease: slow releases, restarts, retries and late attempts.

The server, Spark and Iceberg are real. A proxy in front of the server, or a waiting worker, injects the faults.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from functools import partial

import grpc
import pytest
from held_writer import HeldStage
from spark_support import LEGACY, Tiering, in_background, lake_server, named, replace_stage

from engine_support import ServerProcess
from fault_proxy import FaultProxy, refused
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import application
from fluss_tiering.spark.round.keepalive import KeepAlive
from fluss_tiering.spark.round.pieces import PieceWork
from fluss_tiering.spark.round.plan import SnapshotPiece
from fluss_tiering.spark.round.stage import run_stage
from needs import needs
from waiting import wait_until

FIRST = named(range(20), "first")


@pytest.fixture(scope="module")
@needs("server")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yield a server that deletes expired leases and old snapshots all the time, and keeps one snapshot."""
    server = lake_server(
        tmp_path_factory.mktemp("hasty"),
        FLUSS_TIERING_KV_SNAPSHOT_LEASE_EXPIRATION_CHECK_INTERVAL="100ms",
        FLUSS_TIERING_KV_SNAPSHOT_INTERVAL="200ms",
        FLUSS_TIERING_KV_SNAPSHOT_NUM_RETAINED="1",
    ).start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def lake(hasty: ServerProcess, spark) -> Iterator[Tiering]:
    with TieringClient(hasty.target) as client:
        yield Tiering(client, spark, hasty.target)


@pytest.fixture
def proxy(hasty: ServerProcess) -> Iterator[FaultProxy]:
    with FaultProxy(hasty.target) as running:
        yield running


def through(lake: Tiering, proxy: FaultProxy) -> Tiering:
    """Return the same lake, with rounds that go through the proxy."""
    return Tiering(lake.client, lake.spark, proxy.target)


def written(lake: Tiering, **options) -> TableInfo:
    table = lake.table(**options)
    lake.write(table, FIRST)
    return table


def replace_snapshots(lake: Tiering, table: TableInfo, times: int = 3) -> None:
    """Take newer snapshots, so that the server deletes the older ones unless a lease pins them."""
    for step in range(times):
        lake.write(table, named([1000], f"newer {step}"))
        lake.client.take_kv_snapshots([table.path])
    time.sleep(0.5)


def exists(lake: Tiering, snapshots) -> bool:
    try:
        lake.client.kv_snapshot_metadata(list(snapshots.items()))
    except FlussTieringError as error:
        if error.code is not ErrorCode.KV_SNAPSHOT_NOT_EXIST:
            raise
        return False
    return True


# L12, L16, L24
def test_all_snapshots_of_a_round_are_leased_when_the_first_goes_to_a_reader(lake: Tiering, monkeypatch):
    tables = [written(lake, num_buckets=3) for _ in range(2)]
    seen = {}

    def look(spark, job, *rest):
        (lease,) = lake.client.list_leases(lake.rounds(job.table)[0].lease_id)
        assert lease.expiration_time - lease.acquired_time == 30 * 60 * 1000, "a killed driver pins nothing for hours"
        pieces = [work.piece for work in job.work if isinstance(work, PieceWork)]
        # The stage that writes the deletes reads no snapshots.
        if pieces:
            seen[job.table.path] = (
                {piece.bucket: piece.snapshot.snapshot_id for piece in pieces if isinstance(piece, SnapshotPiece)},
                {bucket: id_ for bucket, id_ in lease.snapshots.items() if bucket.table_id == job.table.table_id},
            )
        return run_stage(spark, job, *rest)

    replace_stage(monkeypatch, look)
    results = lake.tier_all(*tables)

    assert [result.error for result in results] == [None, None]
    for table in tables:
        read, leased = seen[table.path]
        assert read
        assert read == leased
    assert lake.client.list_leases() == []


# L7, S10: missing snapshot
def test_snapshots_that_keep_vanishing_fail_their_table_alone_and_nothing_unpinned_is_read(lake: Tiering, monkeypatch):
    table, log = written(lake), written(lake, primary_key=False)
    acquire = TieringClient.acquire_lease
    stages = []

    def always_too_late(client, lease_id, duration_ms, snapshots, **kwargs):
        if snapshots:
            replace_snapshots(lake, table)
            wait_until(lambda: not exists(lake, snapshots))
        return acquire(client, lease_id, duration_ms, snapshots, **kwargs)

    monkeypatch.setattr(TieringClient, "acquire_lease", always_too_late)
    replace_stage(monkeypatch, lambda spark, job, *rest: stages.append(job.table) or run_stage(spark, job, *rest))
    failed, good = lake.tier_all(table, log)

    # Fluss #2360
    assert not good.failed
    assert [each.path for each in stages] == [log.path]
    (status,) = lake.client.list_tiering_statuses(table.path)
    assert (status.state, status.last_error) == (TieringState.FAILED, failed.error)
    assert "KV snapshots were removed before they could be leased, 3 times in a row (snapshot " in status.last_error
    assert lake.client.list_leases() == []


# L16, Fluss #2512: the snapshots of a round outlive the lease's duration and any number of newer snapshots
def test_a_round_longer_than_its_lease_reads_the_snapshots_that_it_leased(lake: Tiering, tmp_path, monkeypatch):
    table = written(lake)
    held = HeldStage(tmp_path, monkeypatch)
    began = time.monotonic()
    tiered = in_background(lake, table, lease_duration_ms=3000)
    held.wait()
    (lease,) = lake.client.list_leases(lake.rounds(table)[0].lease_id)
    while time.monotonic() < began + 7:
        replace_snapshots(lake, table)

    assert exists(lake, lease.snapshots)
    held.go()
    (result,) = tiered.result(120)

    assert result.error is None
    assert lake.lake_rows(table) == sorted(FIRST.items())
    assert lake.client.list_leases() == []
    wait_until(lambda: not exists(lake, lease.snapshots))


# L17, L18: a lease pins and says who is alive; it keeps nobody out
def test_a_lease_of_somebody_else_on_the_same_snapshot_is_no_lock(lake: Tiering):
    table = written(lake)
    theirs = lease_latest_snapshots(lake.client, "theirs", [table.path], 60_000)

    lake.tier(table)

    assert lake.lake_rows(table) == sorted(FIRST.items())
    (lease,) = lake.client.list_leases()
    assert (lease.lease_id, lease.attempt_token) == ("theirs", theirs.attempt_token)
    lake.client.drop_lease("theirs")


# L17: closing does not drop a lease that was given; a restarted driver of the same round finds it
def test_a_restarted_driver_of_the_same_lease_reads_the_same_snapshot(lake: Tiering, monkeypatch):
    table = written(lake)
    lease = lease_latest_snapshots(lake.client, "restarted", [table.path], 60_000)
    (pinned,) = lake.client.list_leases("restarted")
    read = []

    def killed(spark, job, *rest):
        pieces = [work.piece for work in job.work if isinstance(work, PieceWork)]
        if not pieces:
            # The second stage of a round, which only writes deletes.
            return run_stage(spark, job, *rest)
        read.append({each.bucket: each.snapshot.snapshot_id for each in pieces if isinstance(each, SnapshotPiece)})
        if len(read) == 1:
            # As a driver that is killed: nothing of its end is left but silence.
            monkeypatch.setattr(application.TableRun, "_fail", lambda *_, **__: False)
            monkeypatch.setattr(application.TableLease, "release", lambda *_, **__: None)
            raise FlussTieringError(ErrorCode.UNKNOWN, "killed")
        return run_stage(spark, job, *rest)

    replace_stage(monkeypatch, killed)
    options = {"lease_id": "restarted", "attempt_token": lease.attempt_token}
    assert lake.tier_all(table, **options)[0].failed
    replace_snapshots(lake, table)
    assert lake.client.list_leases("restarted")[0].snapshots == pinned.snapshots
    monkeypatch.undo()
    replace_stage(monkeypatch, killed)

    lake.tier(table, **options)

    assert read == [pinned.snapshots, pinned.snapshots]
    assert lake.lake_rows(table)[: len(FIRST)] == sorted(FIRST.items())
    assert lake.client.list_leases("restarted") == []


# L22: what attempt 1 still does when attempt 2 has begun under the same lease id
def test_a_late_release_of_an_earlier_attempt_unpins_nothing(lake: Tiering, tmp_path, monkeypatch):
    table = written(lake)
    earlier = lease_latest_snapshots(lake.client, "twice", [table.path], 60_000)
    newer = lease_latest_snapshots(lake.client, "twice", [table.path], 60_000)
    held = HeldStage(tmp_path, monkeypatch)
    tiered = in_background(lake, table, lease_id="twice", attempt_token=newer.attempt_token)
    held.wait()
    (lease,) = lake.client.list_leases("twice")

    late = lake.tier_all(table, lease_id="twice", attempt_token=earlier.attempt_token, claim_timeout_s=1)
    assert not lake.client.release_lease("twice", lease.snapshots, attempt_token=earlier.attempt_token)
    replace_snapshots(lake, table)

    assert "superseded by attempt" in late[0].error
    assert lake.client.list_leases("twice")[0].snapshots == lease.snapshots
    assert exists(lake, lease.snapshots)
    held.go()
    assert tiered.result(120)[0].error is None
    assert lake.lake_rows(table)[: len(FIRST)] == sorted(FIRST.items())


# L13, L14
def test_a_slow_release_holds_up_neither_heartbeats_nor_other_tables(lake: Tiering, proxy: FaultProxy, monkeypatch):
    monkeypatch.setattr(application, "KeepAlive", partial(KeepAlive, heartbeat_interval_s=0.2))
    released = threading.Event()
    times: dict[str, list[float]] = {"release": [], "heartbeats while releasing": []}

    def slow(context: grpc.ServicerContext, number: int) -> None:
        times["release"].append(time.monotonic())
        released.wait(60)

    def beat(context: grpc.ServicerContext, number: int) -> None:
        if times["release"]:
            times["heartbeats while releasing"].append(time.monotonic())

    proxy.faults = {"ReleaseKvSnapshotLease": slow, "LakeTieringHeartbeat": beat}
    tables = [written(lake) for _ in range(3)]
    tiered = in_background(through(lake, proxy), *tables, table_concurrency=1)
    try:
        # All of the other tables' rounds end, while the first table's release has not.
        wait_until(
            lambda: all(state_of(lake, table) is not TieringState.TIERING for table in tables) and ended(lake, tables)
        )
        assert not tiered.done()
        assert len(times["heartbeats while releasing"]) >= 2
        assert len(lake.client.list_leases()) == 1
    finally:
        released.set()
    results = tiered.result(120)

    assert [result.error for result in results] == [None] * 3
    assert lake.client.list_leases() == []


def ended(lake: Tiering, tables: list[TableInfo]) -> bool:
    return all(rounds and rounds[0].end_time is not None for rounds in map(lake.rounds, tables))


def state_of(lake: Tiering, table: TableInfo) -> TieringState:
    return lake.client.list_tiering_statuses(table.path)[0].state


# L15
@pytest.mark.parametrize("given", [None, "airflow's"])
def test_a_server_without_leases_is_warned_of_once_and_tiered_from(lake: Tiering, proxy: FaultProxy, caplog, given):
    proxy.faults["KvSnapshotLeases"] = refused(grpc.StatusCode.UNIMPLEMENTED, "unknown service")
    tables = [written(lake, num_buckets=2, properties=LEGACY), written(lake, primary_key=False), lake.table()]
    lake.client.take_kv_snapshots([tables[0].path])

    with caplog.at_level(logging.WARNING):
        results = through(lake, proxy).tier_all(*tables, lease_id=given)

    assert [result.error for result in results] == [None] * 3
    assert lake.lake_rows(tables[0]) == sorted(FIRST.items())
    assert {row["__offset"] for row in lake.lake(tables[0])} == {-1}
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith("the server has no KV snapshot leases, so tables are tiered without a lease")
    assert lake.client.list_leases() == []


# L11, L17, Fluss #3681: the server is killed in mid-round and away for longer than gRPC's own retries last
@pytest.mark.system
def test_a_server_restart_in_mid_round_ends_no_round(tmp_path, spark, monkeypatch):
    server = lake_server(tmp_path, FLUSS_TIERING_KV_SNAPSHOT_INTERVAL="200ms").start()
    try:
        with TieringClient(server.target) as client:
            lake = Tiering(client, spark, server.target)
            keyed, log = written(lake), written(lake, primary_key=False)
            held = HeldStage(tmp_path, monkeypatch)
            tiered = in_background(lake, keyed, log)
            held.wait()
            (before,) = client.list_leases()
            server.kill()
            held.go()
            time.sleep(8)
            assert not tiered.done()
            server.start()
            results = tiered.result(120)

            assert [result.error for result in results] == [None, None]
            assert lake.lake_rows(keyed) == lake.lake_rows(log) == sorted(FIRST.items())
            assert [each.state for each in lake.rounds(keyed)] == [TieringState.TIERED]
            assert lake.rounds(keyed)[0].lease_id == before.lease_id
            assert client.list_leases() == []
    finally:
        server.stop()
