"""The token of a driver stays with the driver: its JVM and its workers do not have it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from engine_support import ServerProcess, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile
from waiting import WAIT_S, wait_until

COMMAND = str(Path(sys.executable).with_name("fluss-tiering"))


@pytest.mark.long
@pytest.mark.system
@pytest.mark.slow
def test_the_processes_of_spark_do_not_have_the_drivers_token(tmp_path: Path, spark_jars: str) -> None:
    token, text = StaticToken.create("driver", [Grant.parse("admin")], datetime.now(UTC), None)
    TokenFile(tmp_path / "tokens.json").add(token)
    server = ServerProcess(tmp_path / "server", FLUSS_TIERING_TOKENS_FILE=str(tmp_path / "tokens.json")).start()
    messages = tmp_path / "messages"
    try:
        with TieringClient(server.target, security=ClientSecurity(token=text)) as client, messages.open("wb") as told:
            table = new_table(client, range(10), freshness="1s")
            driver = subprocess.Popen(
                [COMMAND, "tier", "--drain", "--follow", "--server", server.target, "--master", "local[1]"],
                env={
                    **os.environ,
                    "FLUSS_TIERING_TOKEN": text,
                    "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell",
                },
                stdout=told,
                stderr=told,
            )
            try:
                wait_until(
                    lambda: client.list_tiering_statuses(table.path)[0].last_tiered_time or driver.poll() is not None,
                    describe=messages.read_text,
                )
                assert driver.poll() is None, messages.read_text()
                started = psutil.Process(driver.pid).children(recursive=True)
                assert any(each.name() == "java" for each in started)
                assert any("worker_daemon" in " ".join(each.cmdline()) for each in started)
                for each in started:
                    # A worker may end while it is looked at.
                    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                        assert text not in str(each.environ()), each.cmdline()
                        assert text not in str(each.cmdline())
            finally:
                driver.terminate()
                driver.wait(WAIT_S)
        assert text not in messages.read_text()
        assert text not in server.log_file.read_text()
    finally:
        server.kill()
