"""A cluster whose servers are guarded, restarted, stopped and killed; each test leaves all of them running."""

import time
from functools import partial

import pytest
from fluss_tables import append, descriptor, new_table, rows
from refusals import refused

from fluss_support import USER, FlussCluster, FlussServer
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo, TablePath
from fluss_tiering.storage.fluss.rpc.call import ServerAddress
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.lake import heartbeat
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, fetch_log, log_offset
from fluss_tiering.storage.fluss.rpc.calls.tables import create_database, drop_database, list_databases
from fluss_tiering.storage.fluss.rpc.client import AsyncFlussClient, FlussClient
from fluss_tiering.storage.fluss.rpc.connection import FlussConnection
from fluss_tiering.storage.fluss.rpc.connection_steps import Credentials
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError, FlussError, FlussServerError
from waiting import wait_until


def test_each_kind_of_server_serves_its_own_calls(fluss_cluster: FlussCluster) -> None:
    coordinator = FlussConnection(ServerAddress("localhost", fluss_cluster.coordinator.port))
    tablet = FlussConnection(ServerAddress("localhost", fluss_cluster.tablet_servers[0].port))
    # The first server would never answer this call, so the client refuses it at once.
    bucket = TableBucket(0, 0)
    with refused(ErrorCode.UNSUPPORTED_VERSION, "FETCH_LOG (1015)", str(fluss_cluster.coordinator.port)):
        coordinator.call(fetch_log(None, bucket, 0), 5)
    with refused(ErrorCode.UNSUPPORTED_VERSION, "LAKE_TIERING_HEARTBEAT"):
        tablet.call(heartbeat(), 5)
    assert "fluss" in tablet.call(list_databases(), 5)
    coordinator.close()
    tablet.close()


def test_any_server_will_do_to_begin_with(fluss_cluster: FlussCluster) -> None:
    for server in fluss_cluster.servers:
        with FlussClient(f"localhost:{server.port}", timeout=20) as client:
            # One call goes to a tablet server and one to the coordinator.
            assert "fluss" in client.call(list_databases())
            client.call(create_database("other", ignore_if_exists=True))
            client.call(drop_database("other", ignore_if_not_exists=True))


def test_a_guarded_cluster_takes_credentials(fluss_cluster: FlussCluster) -> None:
    with FlussClient(fluss_cluster.sasl_bootstrap, credentials=USER) as client:
        # The other servers are asked at their guarded listeners too.
        assert "fluss" in client.call(list_databases())


@pytest.mark.parametrize("credentials", [None, Credentials("admin", "wrong"), Credentials("nobody", "admin-secret")])
def test_a_guarded_cluster_refuses_others(fluss_cluster: FlussCluster, credentials: Credentials | None) -> None:
    began = time.monotonic()
    with (
        FlussClient(fluss_cluster.sasl_bootstrap, credentials=credentials, timeout=120) as client,
        pytest.raises(FlussServerError, match="SASL/PLAIN") as caught,
    ):
        client.call(list_databases())
    assert caught.value.fluss_error is FlussError.AUTHENTICATE_EXCEPTION
    assert "admin-secret" not in caught.value.message
    assert time.monotonic() - began < 60, "it tried again"


def test_credentials_for_a_cluster_that_is_not_guarded(fluss_cluster: FlussCluster) -> None:
    with FlussClient(fluss_cluster.bootstrap, credentials=USER) as client:
        with pytest.raises(FlussServerError, match="PLAINTEXT") as caught:
            client.call(list_databases())
        assert caught.value.fluss_error is FlussError.AUTHENTICATE_EXCEPTION


def leader_of(client: FlussClient, cluster: FlussCluster, path: TablePath, bucket: TableBucket) -> FlussServer:
    """Return the leader once it is elected."""
    number = wait_until(lambda: (led_by := client.call(metadata([path])).leaders.get(bucket)) is not None and [led_by])
    return cluster.tablet_servers[number[0]]


def new_replicated_table(fluss: FlussClient) -> TableInfo:
    made = new_table(fluss, descriptor(**{"table.replication.factor": "2"}))
    append(fluss, made, rows(0, 5), compression="ZSTD")
    return made


def ends_at(offset: int, client: FlussClient, path: TablePath, bucket: TableBucket) -> bool:
    return client.call(log_offset(path, bucket, OffsetType.LATEST)) == offset


@pytest.mark.system
def test_the_leader_is_killed_and_comes_back(fluss: FlussClient, fluss_cluster: FlussCluster) -> None:
    # On a busy machine the other server may not be in sync at the moment, so that Fluss elects nobody until this one is
    # back. Then the leader of another table is killed.
    for attempt in range(3):
        info = new_replicated_table(fluss)
        path, bucket = info.path, TableBucket(info.table_id, 0)
        behind = FlussClient(fluss_cluster.bootstrap, timeout=20)
        server = leader_of(fluss, fluss_cluster, path, bucket)
        # A leader that was elected just now learns the high watermark from its replicas.
        wait_until(partial(ends_at, 5, behind, path, bucket))
        server.kill()
        try:
            # Its connection is gone, and the metadata name it until its session ends. Then the other server leads.
            assert fluss.call(log_offset(path, bucket, OffsetType.LATEST), within=40) == 5
            assert leader_of(fluss, fluss_cluster, path, bucket) is not server
            assert "fluss" in fluss.call(list_databases())
            break
        except FlussServerError as error:
            behind.close()
            if attempt == 2 or error.fluss_error is not FlussError.LEADER_NOT_AVAILABLE_EXCEPTION:
                raise
        finally:
            server.start()
            fluss_cluster.wait_until_ready()
    # A client that still asks the old leader gets an error, and then finds the new one.
    with behind:
        assert behind.call(fetch_log(path, bucket, 0)).high_watermark == 5


def timed_failure(client, call) -> tuple[float, FlussConnectionError] | None:
    began = time.monotonic()
    try:
        client.call(call, within=1)
    except FlussConnectionError as error:
        return time.monotonic() - began, error
    return None


@pytest.mark.long
def test_a_server_that_hangs_is_not_waited_for_long(fluss: FlussClient, fluss_cluster: FlussCluster) -> None:
    made = new_table(fluss, descriptor())
    path, bucket = made.path, TableBucket(made.table_id, 0)
    hangs = leader_of(fluss, fluss_cluster, path, bucket)
    with FlussClient(f"localhost:{hangs.port}", timeout=20) as client:
        assert client.call(fetch_log(path, bucket, 0)).high_watermark == 0
        hangs.pause()
        try:
            # No other server has the bucket's log, and the threads of this one stop one by one.
            slow, error = wait_until(lambda: timed_failure(client, fetch_log(path, bucket, 0)))
            assert str(hangs.port) in error.message
            assert slow < 15
            # Calls that any server may answer are answered by another one, for old and for new clients.
            assert "fluss" in client.call(list_databases(), within=60)
            others = ",".join(f"localhost:{server.port}" for server in fluss_cluster.servers)
            with FlussClient(others, timeout=60) as new:
                for _ in range(5):
                    assert "fluss" in new.call(list_databases())
        finally:
            hangs.resume()
        fluss_cluster.wait_until_ready()
        assert client.call(fetch_log(path, bucket, 0)).high_watermark == 0


@pytest.mark.system
async def test_a_coordinator_that_restarts_is_waited_for(fluss_cluster: FlussCluster) -> None:
    coordinator = fluss_cluster.coordinator
    bootstrap = ",".join(f"localhost:{server.port}" for server in fluss_cluster.tablet_servers)
    async with AsyncFlussClient(bootstrap, timeout=60) as client:
        before = (await client.call(heartbeat())).coordinator_epoch
        coordinator.stop()
        try:
            with pytest.raises(FlussTieringError, match=f"{coordinator.port}|no coordinator"):
                await client.call(heartbeat(), within=0.5)
        finally:
            coordinator.start()
        # Fluss 1.0 counts elections, 0.9.1 does not.
        elections = {"0.9.1": 0, "1.0": 1}[fluss_cluster.version]
        assert (await client.call(heartbeat())).coordinator_epoch == before + elections
    fluss_cluster.wait_until_ready()
