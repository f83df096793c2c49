"""Drivers whose Spark ends by itself: they end, too, and their tables do not fail again and again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from spark_support import driver_environment

from engine_fixtures import client, server
from engine_support import ServerProcess, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from waiting import WAIT_S, wait_until

__all__ = ["client", "server"]

COMMAND = str(Path(sys.executable).with_name("fluss-tiering"))
TABLES = 4


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("busy", [True, False], ids=["in rounds", "idle"])
def test_a_drain_ends_when_its_jvm_is_killed(
    server: ServerProcess, client: TieringClient, spark_jars: str, tmp_path: Path, busy: bool
) -> None:
    tables = [new_table(client, [1, 2], freshness="1s") for _ in range(TABLES)]
    paths = [table.path for table in tables]
    messages = tmp_path / "messages"
    with messages.open("wb") as written:
        driver = subprocess.Popen(
            [COMMAND, "tier", "--server", server.target, "--drain", "--follow", *map(str, paths)],
            env=driver_environment(),
            stdout=subprocess.DEVNULL,
            stderr=written,
        )
    try:
        wait_until(lambda: any(each.last_tiered_time for each in statuses(client, paths)))
        if not busy:
            set_freshness(client, paths, "1h")
            wait_until(lambda: {each.state for each in statuses(client, paths)} == {TieringState.SCHEDULED})
        jvm = next(each for each in psutil.Process(driver.pid).children(recursive=True) if each.name() == "java")
        os.kill(jvm.pid, signal.SIGKILL)
        if not busy:
            # The next table that becomes Pending shows it.
            set_freshness(client, paths, "1s")
        assert driver.wait(WAIT_S) not in (0, -signal.SIGKILL)
    finally:
        driver.kill()
        driver.wait()
    told = messages.read_text()
    assert "Spark has ended by itself" in told
    # py4j itself logs the call that was broken off.
    assert "failed unexpectedly" not in told, told
    failures = [each.consecutive_failures for each in statuses(client, paths)]
    assert max(failures) <= busy
    assert [each for each in client.list_leases() if each.snapshots] == []


def statuses(client: TieringClient, paths: Sequence[TablePath]) -> list[TieringStatus]:
    return [each for each in client.list_tiering_statuses() if each.path in paths]


def set_freshness(client: TieringClient, paths: Sequence[TablePath], freshness: str) -> None:
    for path in paths:
        client.alter_table(path, {"table.datalake.freshness": freshness})
