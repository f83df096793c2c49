"""A tiering server as a program, and what an application does to it."""

from __future__ import annotations

import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Final

from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringStats
from waiting import wait_until

AWAY: Final = {
    "lease_id": "x",
    "attempt_token": 1,
    "tables": ["db.t"],
    "lease_duration_ms": 1000,
    "fluss_conn_id": "away",
}
"""A lease at a server whose connection a test names."""


class Server:
    """A tiering server as a process; can be stopped and started again on the same port and data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(Path(sys.executable).with_name("fluss-tiering")), "serve"),
                    *("--data-dir", str(self._folder / "data"), "--port", str(self.port)),
                ],
                stdout=log,
                stderr=log,
            )
        with TieringClient(f"127.0.0.1:{self.port}", timeout=5) as client:
            wait_until(lambda: self._answers(client), describe=(self._folder / "server.log").read_text)

    def _answers(self, client: TieringClient) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "server.log").read_text()
        try:
            client.describe_storage()
        except FlussTieringError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None


LIVING: Final = "local-1 on a-machine-elsewhere, process 1"
"""The name of an application of which nobody here can say that it is dead."""


def dead_driver() -> str:
    """Return the name of an application of this machine whose process has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait(30)
    return f"local-1 on {socket.gethostname()}, process {ended.pid}"


class Driver:
    """What an application does to the server, as far as waiters see it.

    Args:
        client: A client of the server.
        name: The name of the application. If it is None, its process has ended.
    """

    def __init__(self, client: TieringClient, name: str | None = None) -> None:
        self._client = client
        self._name = name or dead_driver()

    def claim(self, lease: dict[str, Any], table: str) -> Claim:
        (claim,) = self._client.claim_tables(
            [TablePath.parse(table)], lease["lease_id"], lease["attempt_token"], self._name
        )
        if isinstance(claim, FlussTieringError):
            raise claim
        return claim

    def finish(self, claim: Claim) -> None:
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=TieringStats(3, 300, 1, 42))
        answer = self._client.heartbeat(finished=[entry])
        assert not answer.finished_errors

    def tier(self, lease: dict[str, Any], table: str) -> None:
        """Run a whole round of the table that ends well."""
        self.finish(self.claim(lease, table))

    def fail_round(self, lease: dict[str, Any], table: str, error: str) -> None:
        """Run a whole round of the table that fails with this error."""
        self.fail(self.claim(lease, table), error)

    def fail(self, claim: Claim, error: str, *, interrupted: bool = False) -> None:
        entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, error, interrupted=interrupted)
        answer = self._client.heartbeat(failed=[entry])
        assert not answer.failed_errors


def is_shown_alone(error: BaseException) -> bool:
    """Whether the log of a task shows an error without the errors that led to it."""
    return "".join(traceback.format_exception(error)).count("Traceback (most recent call last)") == 1
