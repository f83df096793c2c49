"""Two real servers on one data folder, and a driver whose rounds they keep, for tests that put faults to them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from engine_support import HOUR, ServerProcess, new_table
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from metrics_support import scrape, value
from postgres_support import Postgres, socket_of, through
from tcp_proxy import TcpProxy
from waiting import wait_until

GAUGES = (
    "fluss_coordinator_activeCoordinatorCount",
    "fluss_tiering_database_reachable",
    "fluss_tiering_take_over_waits",
)
ROUNDS = 10
DISK_BYTES = 256 << 20
_CLOCK_SERVER = Path(__file__).parents[1] / "clock_server.py"


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

    def __init__(self, folder: Path, postgres: Postgres, stack: ExitStack) -> None:
        self.folder = folder
        self.postgres = postgres
        self.disk = folder / "disk"
        self.has_own_disk = _mount(self.disk, stack)
        self.data_dir = self.disk / "data"
        self.clock = folder / "clock"
        self.set_clock(0)
        url = postgres.new_database()
        self.networks = [stack.enter_context(TcpProxy(socket_of(url))) for _ in range(2)]
        self.servers: list[ServerProcess] = []
        for name, network in zip(("first", "second"), self.networks, strict=True):
            server = ServerProcess(
                folder / name,
                data_dir=self.data_dir,
                program=(sys.executable, str(_CLOCK_SERVER), str(self.clock)),
                FLUSS_TIERING_STORE_URL=through(network.port, url),
            )
            stack.callback(self._end, server)
            self.servers.append(server.start())
        self.front = stack.enter_context(TcpProxy(self.servers[0].port))
        self.driver: Driver | None = None
        self.at_the_end: list[Callable[[TieringClient], None]] = []
        """Checks of what was acknowledged, once a server answers again."""

    @property
    def target(self) -> str:
        """The addresses of both servers. A standby server does nothing but name the active one."""
        return f"{self.servers[1].target},{self.servers[0].target}"

    def set_clock(self, ahead_s: int) -> None:
        """Set the clock of the servers' machine."""
        new = self.clock.with_suffix(".new")
        new.write_text(str(ahead_s))
        new.rename(self.clock)

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


def _mount(folder: Path, stack: ExitStack) -> bool:
    """Give the folder a small disk of its own, and return whether this user may do that."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        return False
    stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
    return True
