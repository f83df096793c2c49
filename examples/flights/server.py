"""A tiering server as a program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from examples.flights.processes import Processes
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError

_READY_SECONDS: Final = 60.0


def start_server(processes: Processes, data_dir: Path, port: int, bootstrap: str | None = None) -> str:
    """Starts a server on the data folder, of the Fluss cluster if one is given; returns its address once it answers.

    Raises:
        SystemExit: it ended or did not answer in time; with the end of its log.
    """
    target = f"127.0.0.1:{port}"
    command = [str(Path(sys.executable).with_name("fluss-tiering")), "serve"]
    cluster = () if bootstrap is None else ("--fluss", bootstrap)
    started = processes.start("server", [*command, "--data-dir", str(data_dir), "--port", str(port), *cluster], {})
    processes.wait_until(started, lambda: _answers(target), _READY_SECONDS)
    return target


def _answers(target: str) -> bool:
    try:
        with TieringClient(target, timeout=2) as client:
            client.describe_storage()
    except FlussTieringError:
        return False
    return True
