"""What a running server exports for Prometheus: Fluss #3464."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine_support import HOUR, MINUTE, ServerThread, VirtualClock, claimed, new_path, new_table, put, tier
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import HeartbeatEntry, TieringStats
from metrics_support import Samples, scrape, scraped_text, value

TABLE = "fluss_coordinator_lakeTiering_table_"


class Exporting:
    """A server on a clock to turn by hand, and a client of it."""

    def __init__(self, running: ServerThread, client: TieringClient, clock: VirtualClock) -> None:
        self.running = running
        self.client = client
        self.clock = clock

    def scrape(self) -> Samples:
        return scrape(self.running.server.metrics_port)

    def of(self, table: TableInfo, name: str) -> float:
        return value(self.scrape(), name, database=table.path.database, table=table.path.table)

    def fail(self, table: TableInfo) -> None:
        claim = claimed(self.client, table)
        self.client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, "boom")])

    def tier(self, table: TableInfo, took_ms: int = 0, **stats: int) -> None:
        """A whole round that tiers all there is."""
        claim = claimed(self.client, table)
        self.clock.advance(took_ms)
        tier(self.client, table, claim, TieringStats(**stats))


@pytest.fixture
def exporting(tmp_path: Path, clock: VirtualClock) -> Iterator[Exporting]:
    with (
        ServerThread(tmp_path / "data", clock=clock, heartbeat_check_interval=HOUR) as running,
        TieringClient(running.target) as client,
    ):
        yield Exporting(running, client, clock)


def test_a_table_with_nothing_to_tier_has_no_lag(exporting: Exporting) -> None:  # Fluss #3464
    table = new_table(exporting.client, [1, 2], primary_key=False, freshness="1h")
    exporting.clock.advance(MINUTE)
    assert exporting.of(table, TABLE + "tierLag") == MINUTE, "never tiered: since it was created"
    assert exporting.of(table, TABLE + "pendingRecords") == 2
    exporting.tier(table)
    for _ in range(3):
        exporting.clock.advance(24 * HOUR)
        assert exporting.of(table, TABLE + "tierLag") == exporting.of(table, TABLE + "pendingRecords") == 0
    put(exporting.client, table, {3: "late"})
    exporting.clock.advance(MINUTE)
    assert exporting.of(table, TABLE + "tierLag") == MINUTE, "not the three days in which there was nothing to tier"
    exporting.clock.advance(MINUTE)
    assert exporting.of(table, TABLE + "tierLag") == 2 * MINUTE
    assert exporting.of(table, TABLE + "pendingRecords") == 1
    exporting.tier(table)
    assert exporting.of(table, TABLE + "tierLag") == 0


def test_an_empty_table_has_no_lag(exporting: Exporting) -> None:  # Fluss #3464
    table = new_table(exporting.client)
    exporting.clock.advance(24 * HOUR)
    assert exporting.of(table, TABLE + "tierLag") == 0


def test_rounds_are_told(exporting: Exporting) -> None:
    table = new_table(exporting.client, [1], primary_key=False, freshness="0s")
    samples = exporting.scrape()
    labels = {"database": table.path.database, "table": table.path.table, "tableId": str(table.table_id)}
    assert [
        value(samples, TABLE + name, **labels)
        for name in ("tierDuration", "fileSize", "recordCount", "failuresTotal", "freshness")
    ] == [-1, -1, -1, 0, 0]
    assert value(samples, TABLE + "tieredTimestamp", **labels) == table.created_time
    exporting.clock.advance(5000)
    assert exporting.of(table, TABLE + "pendingTime") == 5000
    exporting.tier(table, 7000, rows=1, bytes=100, lake_file_size=900, lake_record_count=9)
    exporting.fail(table)
    claimed(exporting.client, table, "cancelled")
    exporting.client.cancel_tiering("cancelled", None, "stop")
    samples = exporting.scrape()
    told = {
        "tierDuration": 7000,
        "fileSize": 900,
        "recordCount": 9,
        "failuresTotal": 1,
        "pendingTime": 0,
        "tieredTimestamp": exporting.clock.now_ms(),
    }
    assert {name: value(samples, TABLE + name, **labels) for name in told} == told
    assert value(samples, "fluss_tiering_table_written_rows_total", **labels) == 1
    assert value(samples, "fluss_tiering_table_written_bytes_total", **labels) == 100
    assert value(samples, "fluss_tiering_table_consecutive_failures", **labels) == 1
    exporting.client.drop_table(table.path)
    assert str(table.path.table) not in scraped_text(exporting.running.server.metrics_port)


def test_tables_are_counted_by_status(exporting: Exporting) -> None:
    client = exporting.client
    new_table(client, tiered=False)
    new_table(client, freshness="0s")
    claimed(exporting.client, new_table(client))
    parked = new_table(client)
    for _ in range(10):
        exporting.fail(parked)
    samples = exporting.scrape()
    assert value(samples, "fluss_coordinator_tableCount") == 4
    assert value(samples, "fluss_coordinator_lakeTableCount") == 3
    assert value(samples, "fluss_coordinator_lakeTiering_pendingTablesCount") == 1
    assert value(samples, "fluss_coordinator_lakeTiering_runningTablesCount") == 1
    assert value(samples, "fluss_tiering_tables", status="Failed") == 1
    assert value(samples, "fluss_tiering_tables", status="Scheduled") == 0
    assert value(samples, "fluss_tiering_parked_tables") == 1
    assert value(samples, "fluss_tiering_table_parked", table=parked.path.table) == 1
    assert len(samples["fluss_tiering_table_parked"]) == 1
    assert value(samples, "fluss_coordinator_activeCoordinatorCount") == 1


def test_leases_are_counted(exporting: Exporting) -> None:  # L1
    table = new_table(exporting.client, range(8), num_buckets=2)
    for lease_id in ("X", "Y"):
        lease_latest_snapshots(exporting.client, lease_id, [table.path], HOUR)
    samples = exporting.scrape()
    assert value(samples, "fluss_coordinator_kvSnapshotLeaseCount") == 2
    assert value(samples, "fluss_coordinator_leasedKvSnapshotCount") == 4
    exporting.client.drop_lease("X")
    samples = exporting.scrape()
    assert value(samples, "fluss_coordinator_kvSnapshotLeaseCount") == 1
    assert value(samples, "fluss_coordinator_leasedKvSnapshotCount") == 2


def test_calls_are_measured_by_method_and_status(exporting: Exporting) -> None:
    exporting.client.list_tiering_statuses()
    with pytest.raises(FlussTieringError):
        exporting.client.list_tiering_statuses(new_path())
    changes = exporting.client.watch_tiering_statuses()
    next(changes)
    samples = exporting.scrape()
    for status in ("OK", "NOT_FOUND"):
        labels = {"method": "ListTieringStatuses", "status": status}
        assert value(samples, "fluss_tiering_rpc_total", **labels) == 1
        assert value(samples, "fluss_tiering_rpc_duration_seconds_count", **labels) == 1
    assert value(samples, "fluss_tiering_rpc_in_flight") == 1
    assert value(samples, "fluss_tiering_status_watchers") == 1
    changes.close()


def test_a_scrape_asks_nothing_of_the_thread_of_control(exporting: Exporting) -> None:
    new_table(exporting.client)
    go_on = threading.Event()
    components = exporting.running.server._metrics.collector._active
    held = threading.Thread(target=lambda: exporting.running.run(components.threads.control(go_on.wait, 30)))
    held.start()
    try:
        assert exporting.scrape()["fluss_tiering_tables"]
    finally:
        go_on.set()
        held.join()


def test_tables_that_come_and_go_while_they_are_scraped(exporting: Exporting) -> None:
    stop = threading.Event()

    def churn() -> int:
        dropped = 0
        while not stop.is_set():
            exporting.client.drop_table(new_table(exporting.client, freshness="0s").path)
            dropped += 1
        return dropped

    with ThreadPoolExecutor(1) as pool:
        churning = pool.submit(churn)
        for _ in range(30):
            exporting.scrape()
        stop.set()
        assert churning.result(30) > 0


def test_maintenance_is_counted_in_metrics_and_shown_in_the_status(exporting: Exporting) -> None:
    client, clock = exporting.client, exporting.clock
    table, other = new_table(client), new_table(client)
    prefix = "fluss_tiering_table_maint"
    assert not any(name.startswith(prefix) for name in exporting.scrape())
    (before,) = client.list_tiering_statuses(table.path)
    assert (before.last_maintained_time, before.maintenance_saved_files) == (None, None)

    client.heartbeat(maintained=[MaintenanceReport(table.table_id, 4, 1000, 2, 9), MaintenanceReport(10**9, 1)])
    clock.advance(MINUTE)
    # A table that the server does not know is left out.
    client.heartbeat(maintained=[MaintenanceReport(table.table_id, 3, 500, 1, 1)])

    (status,) = client.list_tiering_statuses(table.path)
    assert (status.last_maintained_time, status.maintenance_saved_files) == (clock.now_ms(), 7)
    assert (status.maintenance_rewritten_bytes, status.maintenance_expired_snapshots) == (1500, 3)
    assert status.maintenance_deleted_files == 10
    (untouched,) = client.list_tiering_statuses(other.path)
    assert untouched.last_maintained_time is None
    samples = exporting.scrape()
    assert {name: value(samples, name, table=table.path.table) for name in samples if name.startswith(prefix)} == {
        "fluss_tiering_table_maintained_timestamp": clock.now_ms(),
        "fluss_tiering_table_maintenance_saved_files_total": 7,
        "fluss_tiering_table_maintenance_rewritten_bytes_total": 1500,
        "fluss_tiering_table_maintenance_expired_snapshots_total": 3,
        "fluss_tiering_table_maintenance_deleted_files_total": 10,
    }
    assert all(len(samples[name]) == 1 for name in samples if name.startswith(prefix))


def test_maintenance_that_saves_less_than_nothing_is_refused(exporting: Exporting) -> None:
    table = new_table(exporting.client)
    with pytest.raises(FlussTieringError, match=r"PbLakeMaintenance\.saved_files is -1") as refused:
        exporting.client.heartbeat(maintained=[MaintenanceReport(table.table_id, -1)])
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_table_costs_a_fixed_number_of_series(exporting: Exporting) -> None:
    def series() -> int:
        return sum(
            not line.startswith("#") for line in scraped_text(exporting.running.server.metrics_port).splitlines()
        )

    exporting.fail(new_table(exporting.client))
    before = series()
    for _ in range(10):
        table = new_table(exporting.client)
        exporting.fail(table)
    assert series() - before == 10 * 13


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FlussTieringError) as refused, ServerThread(tmp_path / "data", metrics_port=port):
            pass
    assert refused.value.code is ErrorCode.UNAVAILABLE
    assert f"127.0.0.1:{port}" in refused.value.message
    assert "metrics-port" in refused.value.message
    assert not (tmp_path / "data").exists(), "nothing was opened"


def test_other_pages_are_not_there(exporting: Exporting) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{exporting.running.server.metrics_port}/other", timeout=10)
    assert refused.value.code == 404


def test_metrics_can_be_switched_off(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data", metrics_enabled=False) as running:
        assert running.server.metrics_port == 0
