"""Scans through a server in front of a real Fluss cluster, beside writers and when the cluster fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from engine_support import ServerProcess, new_table
from fluss_support import FlussCluster, FlussServer
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.fluss.reading.scan_session import BucketScans
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.kv import close_session, open_session
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.open import open_split_reader
from needs import needs
from scan_handover import check_handover
from waiting import wait_until

ROUNDS = 10
ROWS = 4_000
BATCH = 2_000
MOVING = {
    ErrorCode.UNAVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.SCANNER_EXPIRED,
    ErrorCode.TOO_MANY_SCANNERS,
}
T = TypeVar("T")


@pytest.fixture(scope="module")
@needs("server")
def server(fluss_cluster: FlussCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("scans"), FLUSS_TIERING_FLUSS=fluss_cluster.bootstrap).start()
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log_file.read_text()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[TieringClient]:
    with TieringClient(server.target, timeout=60) as connected:
        yield connected


# K5
@pytest.mark.slow
def test_a_scan_of_a_cluster_and_the_log_behind_it_are_the_table(server: ServerProcess, client: TieringClient) -> None:
    table = new_table(client, num_buckets=4)
    reader = open_split_reader(client.describe_storage(), server.target)
    with TieringClient(server.target) as writers_client:
        check_handover(client, writers_client, reader, table, ROUNDS)


@pytest.fixture(scope="module")
@needs("cluster")
def failing(fluss_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlussCluster]:
    settings = {
        "default.replication.factor": "2",
        "kv.scanner.max-batch-size": f"{BATCH}b",
        "kv.scanner.max-per-bucket": "1",
        "kv.scanner.ttl": "4s",
        "kv.scanner.expiration-interval": "100ms",
    }
    with FlussCluster(tmp_path_factory.mktemp("failing"), version=fluss_version, settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
@needs("server")
def front(failing: FlussCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("front"), FLUSS_TIERING_FLUSS=failing.bootstrap).start()
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log_file.read_text()


class Failing:
    """A table with one bucket, and a scan of it that has begun: by a client of our server, or at the leader."""

    def __init__(self, cluster: FlussCluster, client: TieringClient, fluss: FlussClient, *, at_leader: bool) -> None:
        self.cluster = cluster
        self.client = client
        self.fluss = fluss
        self.at_leader = at_leader
        self.table = new_table(client, range(ROWS))
        self.bucket = TableBucket(self.table.table_id, 0)
        self.begun = self.scan()
        self.found = next(self.begun)["id"].to_pylist()

    def scan(self) -> Iterator[pa.RecordBatch]:
        if self.at_leader:
            return BucketScans(self.fluss).open(self.table, self.bucket)
        return self.client.scan(self.table, batch_size_bytes=BATCH)

    @property
    def leader(self) -> FlussServer:
        leaders = self.fluss.call(metadata([self.table.path])).leaders
        return self.cluster.tablet_servers[leaders[self.bucket]]

    @property
    def files(self) -> list[Path]:
        """The folders of the table at the tablet servers."""
        folders = self.cluster.folder.rglob(f"{self.table.path.table}-{self.table.table_id}")
        return [each for each in folders if not each.is_relative_to(self.cluster.remote_dir)]

    def read_on(self) -> None:
        for batch in self.begun:
            self.found += batch["id"].to_pylist()

    def check_it_is_lost(self) -> None:
        """Read on until the error, and check that no row comes twice until then, and that not all come."""
        with pytest.raises(FlussTieringError, match="start the scan again") as lost:
            self.read_on()
        assert lost.value.code is ErrorCode.SCANNER_EXPIRED
        assert len(set(self.found)) == len(self.found) < ROWS

    def check_another_one_is_whole(self) -> None:
        def read() -> list[int]:
            return [each for batch in self.scan() for each in batch["id"].to_pylist()]

        # The leaders move, or the place of a session that nobody could close is taken until it expires.
        assert sorted(wait_until(lambda: unless(MOVING, read))) == list(range(ROWS))


def unless(codes: Collection[ErrorCode], call: Callable[[], T]) -> T | None:
    """Return None instead of one of these errors."""
    try:
        return call()
    except FlussTieringError as error:
        if error.code not in codes:
            raise
        return None


@pytest.fixture(params=["at the leader", "through the server"])
def scanning(request: pytest.FixtureRequest, failing: FlussCluster, front: ServerProcess) -> Iterator[Failing]:
    with TieringClient(front.target, timeout=120) as client, FlussClient(failing.bootstrap, timeout=10) as fluss:
        yield Failing(failing, client, fluss, at_leader=request.param == "at the leader")


@pytest.mark.long
@pytest.mark.fluss_versions("1.0")
@pytest.mark.system
def test_a_scan_whose_leader_is_killed(scanning: Failing) -> None:  # K12, K16, K17
    leader = scanning.leader
    leader.kill()
    scanning.check_it_is_lost()
    scanning.check_another_one_is_whole()
    leader.start()
    scanning.cluster.wait_until_ready()


@pytest.mark.long
@pytest.mark.fluss_versions("1.0")
def test_a_scan_whose_leader_hangs(scanning: Failing) -> None:  # K12
    leader = scanning.leader
    leader.pause()
    try:
        scanning.check_it_is_lost()
    finally:
        leader.resume()
    scanning.check_another_one_is_whole()
    scanning.cluster.wait_until_ready()


@pytest.mark.long
@pytest.mark.fluss_versions("1.0")
def test_a_scan_that_idles_for_too_long(scanning: Failing) -> None:  # K10

    def expired() -> bool:
        # The bucket has room for one session only.
        opening = open_session(scanning.table.path, scanning.bucket, 1)
        rows = unless({ErrorCode.TOO_MANY_SCANNERS}, lambda: scanning.fluss.call(opening))
        if rows is not None:
            scanning.fluss.call(close_session(scanning.table.path, scanning.bucket, rows.scanner_id))
        return rows is not None

    wait_until(expired)
    scanning.check_it_is_lost()
    scanning.check_another_one_is_whole()


@pytest.mark.long
@pytest.mark.fluss_versions("1.0")
def test_a_scan_whose_table_is_dropped(scanning: Failing) -> None:  # K12
    files = scanning.files
    assert files
    scanning.client.drop_table(scanning.table.path, drop_untiered=True)
    # Until the leader has heard of it, the scan goes on.
    wait_until(lambda: not any(each.exists() for each in files))
    scanning.check_it_is_lost()

    def gone() -> bool:
        with pytest.raises(FlussTieringError) as refused:
            list(scanning.scan())
        return refused.value.code is ErrorCode.TABLE_NOT_EXIST

    # A leader may still stop its replica.
    wait_until(gone)
