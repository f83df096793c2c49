"""The server as a whole: start, stop, health, and the errors that prevent a start."""

from __future__ import annotations

import gc
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from engine_support import SCHEMA, ServerProcess, ServerThread, descriptor, new_path, new_table
from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.api.v1.tables_pb2_grpc import TablesStub
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.model.tiering import LeaseDrop, TieringState
from fluss_tiering.server import app
from fluss_tiering.server.core import gc_tuning
from fluss_tiering.server.core.tiering.manager import LakeTieringManager
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from fluss_tiering.wire.errors import ERROR_CODE_METADATA_KEY
from waiting import wait_until


def test_health(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "fluss_tiering.v1.Tables", "fluss_tiering.v1.LakeTiering"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_two_servers_never_share_a_port(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "one") as one:
        second = ServerThread(tmp_path / "two", port=one.server.port)
        with pytest.raises(FlussTieringError, match="another server, perhaps this one, runs") as refused, second:
            """Does not start."""
    assert f"cannot listen on {one.target}: Address already in use" in refused.value.message
    assert not (tmp_path / "two").exists(), "a server that found its port taken left files behind"


def test_what_a_server_loaded_is_kept_out_of_garbage_collections_until_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "gc_tuning", gc_tuning)
    with ServerThread(tmp_path / "data"):
        assert gc.get_freeze_count() > 0
        assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_second_server_on_a_data_folder_is_refused(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data") as first:
        with pytest.raises(FlussTieringError, match="in use by another server") as failed, ServerThread(first.data_dir):
            """Does not start."""
        assert str(tmp_path / "data") in failed.value.message
        with TieringClient(first.target) as client:
            new_table(client, [1, 2])


def test_a_data_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with pytest.raises(FlussTieringError) as failed, ServerThread(tmp_path / "data"):
        """Does not start."""
    assert str(tmp_path / "data") in failed.value.message
    assert (tmp_path / "data").read_text() == "mine"


@pytest.mark.system
def test_a_server_that_cannot_write_its_last_file_ends_all_the_same(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path).start()
    with TieringClient(process.target) as client:
        new_table(client, [1, 2], primary_key=False)
    (log,) = process.data_dir.rglob("log-0")
    ends = log.parent / "log-ends.json"
    ends.unlink(missing_ok=True)
    # Nothing can be written in its place, as on a full disk.
    (ends / "folder").mkdir(parents=True)
    assert process.stop() == 1
    told = process.log_file.read_text()
    assert f"could not write {ends}" in told
    assert "Traceback" not in told


@pytest.mark.system
def test_sigterm_lets_calls_in_flight_end(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path, FLUSS_TIERING_SHUTDOWN_GRACE="20s").start()
    halfway = threading.Event()
    rows = pa.table({"id": [1, 2], "name": ["a", None]}, schema=SCHEMA)

    def batches():
        yield rows
        halfway.wait(20)
        yield rows

    with TieringClient(process.target) as client:
        table = new_table(client, primary_key=False)
        acknowledged: list[int] = []
        writer = threading.Thread(
            target=lambda: acknowledged.extend(client.write_rows(table.path, WriteKind.APPEND, batches()))
        )
        writer.start()
        wait_until(lambda: client.list_buckets([table.path])[table.path][0].log_end_offset == 2)
        stopped: list[int] = []
        stopping = threading.Thread(target=lambda: stopped.append(process.stop()))
        stopping.start()
        wait_until(lambda: "tiering server stopping" in process.log_file.read_text())
        halfway.set()
        writer.join(20)
        stopping.join(30)
    assert acknowledged == [2, 2]
    assert stopped == [0]
    assert "Traceback" not in process.log_file.read_text()


def test_a_restarted_server_has_everything_back(tmp_path: Path) -> None:  # S24, L11
    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        table = new_table(client, range(100))
        lease = lease_latest_snapshots(client, "X", [table.path], 3_600_000)
        client.claim_tables([table.path], "X", lease.attempt_token, "d")
        (held,) = client.list_leases()
        before = (client.list_tiering_statuses(), client.list_tiering_rounds())
    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        (found,) = client.list_leases()
        # A server that was away for longer than a moment gives leases that time again.
        assert replace(found, expiration_time=held.expiration_time) == held
        assert found.expiration_time >= held.expiration_time
        assert (client.list_tiering_statuses(), client.list_tiering_rounds()) == before
        (pinned,) = client.list_leases()[0].snapshots.items()
        assert client.kv_snapshot_metadata([pinned])[0].row_count == 100


def test_what_nobody_expected_is_told_in_the_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # S11
    def broken(_self: EmbeddedStorage) -> None:
        raise ZeroDivisionError("inner detail")

    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        monkeypatch.setattr(EmbeddedStorage, "tables", broken)
        with pytest.raises(FlussTieringError) as failed:
            client.list_tables()
    assert failed.value.code is ErrorCode.UNKNOWN
    assert failed.value.message == "the server failed in ListTables: see its log"
    assert "inner detail" in capsys.readouterr().out


def test_the_code_travels_in_the_trailing_metadata(server: ServerProcess) -> None:
    path = {"database_name": "db", "table_name": "é"}
    with grpc.insecure_channel(server.target) as channel, pytest.raises(grpc.RpcError) as failed:
        TablesStub(channel).GetTables(tables_pb2.GetTablesRequest(table_paths=[path]), timeout=10)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(failed.value.trailing_metadata())[ERROR_CODE_METADATA_KEY] == "INVALID_TABLE"


def test_a_table_that_cannot_be_registered_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise FlussTieringError(ErrorCode.STORAGE, "the disk is full")

    path = TablePath("db", "t")
    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        with monkeypatch.context() as patched:
            patched.setattr(LakeTieringManager, "register", full)
            with pytest.raises(FlussTieringError, match="the disk is full"):
                client.create_table(path, descriptor())
        assert client.list_tables() == []
        client.create_table(path, descriptor())
        assert client.list_tiering_statuses(path)[0].state is TieringState.SCHEDULED


@pytest.mark.slow
def test_due_tables_become_pending_by_themselves(tmp_path: Path) -> None:  # S2
    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        path = new_path()
        client.create_table(path, descriptor(freshness="500ms"))
        assert client.list_tiering_statuses(path)[0].state is TieringState.SCHEDULED
        wait_until(lambda: client.list_tiering_statuses(path)[0].state is TieringState.PENDING)


def test_silent_rounds_fail_and_expired_leases_go_by_themselves(tmp_path: Path) -> None:  # S4, L9
    settings = {
        "heartbeat_timeout": 300,
        "heartbeat_check_interval": 50,
        "kv_snapshot_lease_expiration_check_interval": 50,
    }
    with ServerThread(tmp_path / "data", **settings) as running, TieringClient(running.target) as client:
        table = new_table(client, [1])
        lease_latest_snapshots(client, "X", [table.path], 400)
        client.claim_tables([table.path], "X", None, "d")
        assert client.list_leases()
        wait_until(lambda: client.list_tiering_statuses(table.path)[0].state is TieringState.FAILED)
        assert "heartbeat timed out after" in (client.list_tiering_statuses(table.path)[0].last_error or "")
        wait_until(lambda: not client.list_leases())


@pytest.mark.parametrize(("timeout", "warned"), [(59_999, True), (60_000, False)])
def test_a_heartbeat_timeout_too_short_for_drivers_is_warned_of(tmp_path: Path, timeout: int, warned: bool) -> None:
    with capture_logs() as logged, ServerThread(tmp_path / "data", heartbeat_timeout=timeout):
        pass
    warnings = [line["heartbeat_timeout_ms"] for line in logged if line["log_level"] == "warning"]
    assert warnings == ([timeout] if warned else [])


def test_a_leased_snapshot_outlives_newer_ones_until_it_is_released(tmp_path: Path) -> None:  # L3, L11
    settings = {"kv_snapshot_interval": 50, "kv_snapshot_num_retained": 1}
    with ServerThread(tmp_path / "data", **settings) as running, TieringClient(running.target) as client:
        table = new_table(client, [1, 2])
        lease_latest_snapshots(client, "X", [table.path], 3_600_000)
        (leased,) = client.list_leases()[0].snapshots.items()
        bucket, snapshot_id = leased
        for newer in (1, 2, 3):
            write_more(client, table.path, newer)
            wait_until(lambda: latest(client, table.path) >= snapshot_id + newer)  # noqa: B023 - waited for here
        collected = (bucket, snapshot_id + 1)
        wait_until(lambda: not exists(client, collected))
        assert (
            sum(pa.ipc.open_stream(part).read_all().num_rows for part in client.fetch_kv_snapshot(*leased, None, None))
            == 2
        )
        assert client.release_lease("X", [bucket])
        wait_until(lambda: not exists(client, leased))


def test_a_lease_that_cannot_be_loaded_stops_collection_but_not_the_server(tmp_path: Path) -> None:  # L11
    settings = {"kv_snapshot_interval": 50, "kv_snapshot_num_retained": 1}
    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        table = new_table(client, [1, 2])
        lease_latest_snapshots(client, "X", [table.path], 3_600_000)
        (leased,) = client.list_leases()[0].snapshots.items()
    with closing(sqlite3.connect(tmp_path / "data" / "server.db")) as database:
        database.execute("DELETE FROM leased_snapshots")
        database.commit()
    with (
        capture_logs() as logged,
        ServerThread(tmp_path / "data", **settings) as running,
        TieringClient(running.target) as client,
    ):
        write_more(client, table.path, 3)
        wait_until(lambda: latest(client, table.path) > leased[1])
        wait_until(lambda: any("no KV snapshot is collected" in line.get("error", "") for line in logged))
        assert client.list_leases() == []
        assert exists(client, leased)
        assert client.drop_lease("X") is LeaseDrop.DROPPED
        wait_until(lambda: not exists(client, leased))


def test_a_damaged_table_keeps_neither_the_server_nor_the_other_tables(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data") as running, TieringClient(running.target) as client:
        bad, good = new_table(client, [1]), new_table(client, [1])
    (segment, *_) = sorted((tmp_path / "data" / "tables" / "db").glob(f"{bad.path.table}-*/log-0/*.log"))
    segment.write_bytes(segment.read_bytes()[:-3])
    with (
        capture_logs() as logged,
        ServerThread(tmp_path / "data") as running,
        TieringClient(running.target) as client,
    ):
        wait_until(lambda: any(line["event"] == "table cannot be used" for line in logged))
        assert client.list_buckets([good.path])[good.path][0].log_end_offset == 1
        with pytest.raises(FlussTieringError) as damaged:
            client.list_buckets([bad.path])
        assert damaged.value.code is ErrorCode.CORRUPT_DATA
        client.drop_table(bad.path, drop_untiered=True)
        assert [table.path for table in client.list_tables()] == [good.path]


def write_more(client: TieringClient, path: TablePath, key: int) -> None:
    rows = pa.table({"id": [key * 1000], "name": ["more"]}, schema=SCHEMA)
    list(client.write_rows(path, WriteKind.UPSERT, [rows]))


def latest(client: TieringClient, path: TablePath) -> int:
    snapshot = client.list_buckets([path])[path][0].latest_kv_snapshot
    return -1 if snapshot is None else snapshot.snapshot_id


def exists(client: TieringClient, snapshot: tuple) -> bool:
    try:
        client.kv_snapshot_metadata([snapshot])
    except FlussTieringError as error:
        if error.code is not ErrorCode.KV_SNAPSHOT_NOT_EXIST:
            raise
        return False
    return True
