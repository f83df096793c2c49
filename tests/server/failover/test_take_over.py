"""Two servers on one PostgreSQL: the second waits, and takes over from the first."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from faulty_servers import Driver
from grpc_health.v1 import health_pb2, health_pb2_grpc

from engine_support import HOUR, SCHEMA, ServerProcess, ServerThread, new_table, put
from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.api.v1.tables_pb2_grpc import TablesStub
from fluss_tiering.cli import main
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from fluss_tiering.server.core.store.store import SqlTieringStore
from fluss_tiering.wire.tables import path_to_pb
from needs import needs
from postgres_support import Postgres
from waiting import slowdown, wait_until

SHORT_LEASE = {"FLUSS_TIERING_LEADER_LEASE": "5s"}


class Pair:
    """An active and a standby server, on one PostgreSQL database and one data folder."""

    def __init__(self, folder: Path, url: str, **environment: str) -> None:
        environment = {"FLUSS_TIERING_STORE_URL": url, **environment}
        self.url = url
        self.first = ServerProcess(folder / "first", data_dir=folder / "data", **environment)
        self.second = ServerProcess(folder / "second", data_dir=folder / "data", **environment)

    @property
    def target(self) -> str:
        """The addresses of both servers."""
        return f"{self.second.target},{self.first.target}"

    def start(self) -> None:
        self.first.start()
        self.second.start()
        assert "waiting for the active server to end" in self.second.log_file.read_text()

    def end(self) -> None:
        for server in (self.first, self.second):
            if server.process is not None and server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
                server.kill()


@pytest.fixture
@needs("system")
def pair(tmp_path: Path, postgres_url: str) -> Iterator[Callable[..., Pair]]:
    made = []

    def make(**environment: str) -> Pair:
        made.append(Pair(tmp_path, postgres_url, **environment))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.end()


def health(target: str, service: str) -> str:
    with grpc.insecure_channel(target) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def unanswered(call: Callable[[], object]) -> str:
    """Return why a call was not answered: the message of UNAVAILABLE."""
    with pytest.raises(FlussTieringError) as refused:
        call()
    assert refused.value.code in {ErrorCode.UNAVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    return refused.value.message


def test_the_second_takes_over_within_15_seconds(pair: Callable[..., Pair]) -> None:  # S22, S24, S28, S3
    servers = pair()
    with TieringClient(servers.target, timeout=60) as client:
        table = new_table(client, range(50))
        lease = lease_latest_snapshots(client, "X", [table.path], HOUR)
        (claim,) = client.claim_tables([table.path], "X", lease.attempt_token, "driver-1")
        assert isinstance(claim, Claim)
        driver = Driver([servers.target], [claim])
        driver.start()
        wait_until(lambda: driver.answered)
        rounds, leases = client.list_tiering_rounds(), client.list_leases()

        servers.first.kill()
        killed_at = time.monotonic()
        wait_until(lambda: driver.answered[-1] > killed_at)
        assert driver.answered[-1] - killed_at < 15 * slowdown()
        driver.ended.set()
        driver.join(60)
        assert driver.refused == {}, "the round is still the driver's"
        assert health(servers.second.target, "fluss_tiering.v1.Tables") == "SERVING"
        (other,) = client.claim_tables([table.path], "Y", None, "driver-2")
        assert isinstance(other, FlussTieringError)
        assert other.code is ErrorCode.TABLE_BEING_TIERED
        assert client.list_tiering_rounds() == rounds
        assert client.list_leases() == leases
        finished = client.heartbeat(finished=[HeartbeatEntry(claim.table_id, claim.tiering_epoch)])
        assert finished.finished_errors == {}
        (next_claim,) = client.claim_tables([table.path], "Y", None, "driver-2")
        assert isinstance(next_claim, Claim)
        assert next_claim.tiering_epoch == claim.tiering_epoch + 1
        assert client.list_buckets([table.path])[table.path][0].log_end_offset == 50


def test_a_stop_beside_a_stream_gives_the_leadership_up_at_once(pair: Callable[..., Pair]) -> None:  # D16, S28
    # Before, the test would have had to wait for these ten minutes.
    servers = pair(FLUSS_TIERING_SHUTDOWN_GRACE="10min")
    goes_on = threading.Event()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(pa.table({"id": [1], "name": ["a"]}, schema=SCHEMA))

    def requests() -> Iterator[tables_pb2.WriteRowsRequest]:
        kind, path = tables_pb2.PB_WRITE_KIND_APPEND, path_to_pb(table.path)
        yield tables_pb2.WriteRowsRequest(table_path=path, kind=kind, arrow_ipc=sink.getvalue().to_pybytes())
        goes_on.wait(300)

    with TieringClient(servers.first.target) as client:
        table = new_table(client, primary_key=False)
    with grpc.insecure_channel(servers.first.target) as channel:
        assert next(TablesStub(channel).WriteRows(requests())).row_count == 1, "the stream is open"
        assert servers.first.process is not None
        servers.first.process.terminate()
        wait_until(lambda: health(servers.second.target, "fluss_tiering.v1.Tables") == "SERVING")
        goes_on.set()
    with TieringClient(servers.second.target) as client:
        (bucket,) = client.list_buckets([table.path])[table.path]
    assert bucket.log_end_offset == 1
    servers.first.process.wait(60)


@pytest.mark.long
def test_the_first_one_resumed_can_write_nothing(pair: Callable[..., Pair]) -> None:  # S24, S22
    servers = pair(**SHORT_LEASE)
    assert servers.first.process is not None
    with TieringClient(servers.first.target) as old, TieringClient(servers.second.target) as new:
        table = new_table(old, [1])
        before = lease_latest_snapshots(old, "X", [table.path], HOUR)
        servers.first.process.send_signal(signal.SIGSTOP)
        # What it is asked now it finds when it goes on.
        late: list[BaseException | object] = []

        def ask_late(call: Callable[[], object]) -> threading.Thread:
            def run() -> None:
                try:
                    late.append(call())
                except FlussTieringError as error:
                    late.append(error)

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            return thread

        patient = TieringClient(servers.first.target, timeout=60)
        asking = [
            ask_late(lambda: patient.acquire_lease("late", HOUR, {}, allow_empty=True)),
            ask_late(lambda: patient.claim_tables([table.path], "late", None, "late")),
            ask_late(lambda: put(patient, table, {2: "late"})),
        ]
        wait_until(lambda: "take-over waits for the data folder" in servers.second.log_file.read_text())
        # The one that stands still holds the data folder.
        assert "taking over" in unanswered(new.list_tables)
        store = SqlTieringStore.open_to_read(servers.url)
        token, statuses = store.attempt_token(), store.statuses()

        first, said_before = servers.first.process, len(servers.first.log_file.read_text())
        first.send_signal(signal.SIGCONT)

        def said() -> str:
            return servers.first.log_file.read_text()[said_before:]

        wait_until(lambda: first.poll() is not None or "waiting for the active server to end" in said())
        wait_until(lambda: "this server is the active one" in servers.second.log_file.read_text())
        for thread in asking:
            thread.join(20)
        patient.close()
        assert "Traceback" not in said()
        if first.poll() is None:
            # It was suspended while it renewed its leadership, and the answer came too late for it. So it waits in its
            # turn, and refuses the calls.
            assert "leadership lapsed" in said()
            store.close()
            return
        assert first.returncode == 1
        assert "another server took over" in said()
        assert len(late) == 3
        assert all(isinstance(each, FlussTieringError) for each in late), late
        assert (store.attempt_token(), store.statuses()) == (token, statuses)
        assert token == before.attempt_token
        store.close()
        assert new.list_buckets([table.path])[table.path][0].log_end_offset == 1
        put(new, table, {3: "new"})
        # Started again it waits in its turn, and takes over when the other one makes way.
        servers.first.start()
        assert [each.lease_id for each in new.list_leases()] == ["X"]
        assert servers.second.stop() == 0
        wait_until(lambda: health(servers.first.target, "fluss_tiering.v1.Tables") == "SERVING")
        assert old.list_buckets([table.path])[table.path][0].log_end_offset == 2


@pytest.mark.system
def test_a_lost_database_changes_nothing_and_all_goes_on_when_it_is_back(
    tmp_path: Path, postgres: Postgres, postgres_url: str
) -> None:  # L10, S24
    # A shorter lease ends by itself while a busy machine loads the server's modules.
    settings = {"store_url": postgres_url, "leader_lease": 6000}
    with ServerThread(tmp_path / "data", **settings) as running, TieringClient(running.target) as client:
        table = new_table(client, [1])
        lease_latest_snapshots(client, "X", [table.path], HOUR)
        before = client.list_leases(), client.list_tiering_statuses()
        postgres.stop()
        try:
            unanswered(lambda: client.acquire_lease("Y", HOUR, {}, allow_empty=True))
            wait_until(lambda: health(running.target, "fluss_tiering.v1.Tables") == "NOT_SERVING")
            # Later still, whatever touches the storage is refused at once: another server may have taken over.
            assert "no server is active" in unanswered(lambda: put(client, table, {2: "b"}))
        finally:
            postgres.start()
        wait_until(lambda: health(running.target, "fluss_tiering.v1.Tables") == "SERVING")
        assert (client.list_leases(), client.list_tiering_statuses()) == before
        # A server that becomes active again leaves out tokens that it may have given out.
        assert client.acquire_lease("Y", HOUR, {}, allow_empty=True).attempt_token > 1
        assert client.list_buckets([table.path])[table.path][0].log_end_offset == 1


def test_a_store_of_another_kind_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # S11
    data_dir = tmp_path / "data"
    arguments = ["serve", "--data-dir", str(data_dir), "--store", "mysql://me:hunter2@localhost/db"]
    monkeypatch.setattr("sys.argv", ["fluss-tiering", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "expected postgresql://" in said
    assert "hunter2" not in said
    assert "Traceback" not in said
    assert not data_dir.exists()


def test_a_database_that_is_away_at_the_start_is_told_in_words(tmp_path: Path) -> None:  # S11
    url = "postgresql://me:hunter2@127.0.0.1:1/db?sslpassword=hunter3"
    with pytest.raises(FlussTieringError, match="cannot be reached") as away, ServerThread(tmp_path, store_url=url):
        """Does not start."""
    assert away.value.code is ErrorCode.UNAVAILABLE
    assert "127.0.0.1:1/db" in away.value.message
    assert "hunter" not in away.value.message
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_a_waiting_server_with_another_data_folder_is_refused_at_its_start(tmp_path: Path, postgres_url: str) -> None:
    with ServerThread(tmp_path / "other"):
        """Makes a data folder of its own."""  # S3
    with ServerThread(tmp_path / "one", store_url=postgres_url) as running:
        for folder in ("other", "unused"):
            waiting = ServerThread(tmp_path / folder, store_url=postgres_url)
            with pytest.raises(FlussTieringError, match="belongs to the storage at") as refused, waiting:
                """Does not start."""
            assert refused.value.code is ErrorCode.INVALID_REQUEST
            assert str(tmp_path / folder) in refused.value.message
        assert not (tmp_path / "unused").exists(), "nothing was made"
        with ServerThread(tmp_path / "one", store_url=postgres_url) as waiting:
            assert not waiting.server.is_active
        assert running.server.is_active
