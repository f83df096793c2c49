"""The table of faults: two real servers and a real PostgreSQL, through networks that can be cut. It prints what it saw.

Each fault is put to two servers that share a data folder, while a driver sends heartbeats for ten rounds and holds a
lease. A server must answer again, no round may fail whose driver lives, and no lease may be lost.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine_support import HOUR, ServerProcess, new_table
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState
from metrics_support import scrape, value
from needs import needs
from postgres_support import socket_of, through
from tcp_proxy import TcpProxy
from waiting import wait_until

GAUGES = (
    "fluss_coordinator_activeCoordinatorCount",
    "fluss_tiering_database_reachable",
    "fluss_tiering_take_over_waits",
)
ROUNDS = 10

pytestmark = pytest.mark.long


@dataclass
class Driver(threading.Thread):
    """Sends heartbeats of its rounds through the first address that answers, and keeps when it was answered."""

    targets: list[str]
    claims: list[Claim]
    answered: list[float] = field(default_factory=list)
    refused: dict[int, FlussTieringError] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        entries = [
            HeartbeatEntry(each.table_id, each.tiering_epoch, coordinator_epoch=each.coordinator_epoch)
            for each in self.claims
        ]
        with ExitStack() as stack:
            clients = [stack.enter_context(TieringClient(each, timeout=2)) for each in self.targets]
            while not self.ended.wait(0.1):
                for client in clients:
                    with suppress(FlussTieringError):
                        self.refused |= client.heartbeat(tiering=entries).tiering_errors
                        self.answered.append(time.monotonic())
                        break


class Cluster:
    """Two servers on one data folder, with their networks to PostgreSQL and one in front of the first server."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        self.data_dir = folder / "data"
        self.networks = [stack.enter_context(TcpProxy(socket_of(url))) for _ in range(2)]
        self.servers: list[ServerProcess] = []
        for name, network in zip(("first", "second"), self.networks, strict=True):
            server = ServerProcess(
                folder / name, data_dir=self.data_dir, FLUSS_TIERING_STORE_URL=through(network.port, url)
            )
            stack.callback(self._end, server)
            self.servers.append(server.start())
        self.front = stack.enter_context(TcpProxy(self.servers[0].port))
        self.driver: Driver | None = None

    def begin_rounds(self) -> Driver:
        with TieringClient(self.servers[0].target) as client:
            tables = [new_table(client, [each]).path for each in range(ROUNDS)]
            lease = lease_latest_snapshots(client, "X", tables, HOUR)
            claims = client.claim_tables(tables, "X", lease.attempt_token, "driver")
        self.driver = Driver([f"127.0.0.1:{self.front.port}", self.servers[1].target], list(claims))  # type: ignore[arg-type]
        self.driver.start()
        wait_until(lambda: self.driver.answered)
        return self.driver

    def signal(self, server: int, number: int) -> None:
        process = self.servers[server].process
        assert process is not None
        process.send_signal(number)

    def stop_for(self, seconds: float) -> None:
        self.signal(0, signal.SIGSTOP)
        time.sleep(seconds)
        self.signal(0, signal.SIGCONT)

    def gauges(self) -> str:
        """Return the gauges of each server, as "active database waits"; "down" for one that does not answer."""
        seen = []
        for server in self.servers:
            try:
                samples = scrape(server.metrics_port)
                seen.append("".join(str(round(value(samples, name))) for name in GAUGES))
            except OSError:
                seen.append("down")
        return "/".join(seen)

    def _end(self, server: ServerProcess) -> None:
        if server.process is not None and server.process.poll() is None:
            server.process.send_signal(signal.SIGCONT)
            server.kill()


@pytest.fixture
@needs("system", "postgres")
def cluster(tmp_path: Path, postgres_url: str) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, postgres_url, stack)


def cut(*servers: int) -> Callable[[Cluster], None]:
    def fault(cluster: Cluster) -> None:
        for each in servers:
            cluster.networks[each].cut()
        if len(servers) == 2:
            time.sleep(12)
            for each in servers:
                cluster.networks[each].mend()

    return fault


def kill(cluster: Cluster) -> None:
    cluster.signal(0, signal.SIGKILL)


def move(cluster: Cluster) -> None:
    """The first server gets another address, and clients find it at the old name."""
    first = cluster.servers[0]
    first.kill()
    first.port = 0
    first.start()
    cluster.front.target = first.port
    cluster.front.lose_connections()


def half_open(cluster: Cluster) -> None:
    cluster.front.lose_connections()


def lose_folder(cluster: Cluster) -> None:
    """The folder is gone from its path, as after an unmount, and comes back after a while."""
    away = cluster.data_dir.with_name("away")
    cluster.data_dir.rename(away)
    time.sleep(5)
    away.rename(cluster.data_dir)


FAULTS: dict[str, Callable[[Cluster], None]] = {
    "leader alone cut from the database": cut(0),
    "standby alone cut from the database": cut(1),
    "both cut from the database for 12 s": cut(0, 1),
    "leader killed": kill,
    "leader suspended for 1 s": lambda cluster: cluster.stop_for(1),
    "leader suspended for 10 s": lambda cluster: cluster.stop_for(10),
    "leader suspended for 60 s": lambda cluster: cluster.stop_for(60),
    "half-open connections": half_open,
    "data folder away for 5 s": lose_folder,
    "server moved to another address": move,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_no_round_and_loses_no_lease(cluster: Cluster, name: str) -> None:
    driver = cluster.begin_rounds()
    began = time.monotonic()
    FAULTS[name](cluster)
    shown = [cluster.gauges()]
    ended = time.monotonic()
    wait_until(lambda: driver.answered[-1] > ended)
    # The longest time without an answer, which is what clients notice.
    wait_until(lambda: driver.answered[-1] > ended + 12)
    times = [each for each in driver.answered if each > began - 1]
    longest = max(later - earlier for earlier, later in itertools.pairwise(times))
    driver.ended.set()
    driver.join(60)
    shown.append(cluster.gauges())
    with TieringClient(cluster.servers[1].target, timeout=30) as client:
        wait_until(lambda: answers(client))
        rounds = client.list_tiering_rounds()
        leases = client.list_leases()
    failed = sum(each.state is TieringState.FAILED for each in rounds)
    say(f"| {name} | {longest:.1f} s | {failed} | {1 - len(leases)} | {' '.join(shown)} |")
    assert driver.refused == {}
    assert (failed, len(rounds), len(leases)) == (0, ROUNDS, 1)


def answers(client: TieringClient) -> bool:
    try:
        client.list_tables()
    except FlussTieringError:
        return False
    return True


def say(line: str) -> None:
    print(line)  # noqa: T201 - the table is the result
    if (file := os.environ.get("FAULT_TABLE")) is not None:
        with Path(file).open("a") as table:
            table.write(line + "\n")
