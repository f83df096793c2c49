"""The tiering server among the programs of the example."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from examples.flights.processes import Processes
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError

_READY_SECONDS: Final = 600.0
"""For a machine that is busy: a program that ends is noticed at once."""


def start_server(processes: Processes, data_dir: Path, port: int, bootstrap: str | None = None) -> str:
    """Start a server on a data folder, or in front of a Fluss cluster; return its address once it answers.

    Raises:
        SystemExit: The server ended or did not answer in time. The message holds the end of its log.
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
