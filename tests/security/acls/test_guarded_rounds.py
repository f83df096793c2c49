"""Rounds in Spark at a Fluss cluster with ACLs: with the rights to tier alone, and without a trace of the password."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from fluss_tables import append, rows, upsert
from guarded_cluster import TIERING, GuardedCluster, acls_of
from traces import PAGES, Secrets, traced_spark

from call_rights import Use, needed_for
from engine_support import ServerProcess, descriptor
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.storage.fluss.access import PASSWORD_VARIABLE, USERNAME_VARIABLE
from fluss_tiering.storage.fluss.rpc.acls import MissingAcl
from fluss_tiering.storage.fluss.rpc.calls.tables import create_database, create_table, table
from waiting import WAIT_S, wait_until

COMMAND = str(Path(sys.executable).with_name("fluss-tiering"))
USER = {USERNAME_VARIABLE: TIERING.username, PASSWORD_VARIABLE: TIERING.password}
PASSWORD = Secrets([TIERING.password])
DATABASE = "acl_rounds"
READABLE = {TablePath(DATABASE, "keyed"): True, TablePath(DATABASE, "logged"): False}
"""Tables with the right to READ -> whether they have a primary key."""
UNREADABLE = {TablePath(DATABASE, "no_keyed"): True, TablePath(DATABASE, "no_logged"): False}
pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.long, pytest.mark.spark]


def make_tables(guarded: GuardedCluster) -> None:
    guarded.admin.call(create_database(DATABASE))
    for path, primary_key in {**READABLE, **UNREADABLE}.items():
        guarded.admin.call(create_table(path, descriptor(primary_key=primary_key, freshness="1s")))
        made = guarded.admin.call(table(path))
        if primary_key:
            upsert(guarded.admin, made, rows(0, 5))
        else:
            append(guarded.admin, made, rows(0, 5), compression="ZSTD")


def status(client: TieringClient, path: TablePath) -> TieringStatus:
    (found,) = client.list_tiering_statuses(path)
    return found


def test_rounds_of_a_user_with_the_rights_to_tier(guarded: GuardedCluster, tmp_path: Path, spark_jars: str) -> None:
    make_tables(guarded)
    uses = (Use.SERVING, Use.TIERING, Use.READING)
    guarded.give(*acls_of(needed_for(uses), [DATABASE], READABLE))
    events, messages = tmp_path / "events", tmp_path / "driver.log"
    events.mkdir()
    (ui_port,) = free_ports(1)
    conf = traced_spark(events, ui_port)
    options = " ".join(f"--conf {key}={value}" for key, value in conf.items())
    server = ServerProcess(
        tmp_path / "server",
        FLUSS_TIERING_FLUSS=guarded.cluster.sasl_bootstrap,
        **USER,
    ).start()
    try:
        with TieringClient(server.target, timeout=60) as client, messages.open("wb") as told:
            driver = subprocess.Popen(
                [COMMAND, "tier", "--drain", "--follow", "--server", server.target, "--master", "local[1]"],
                env={**os.environ, **USER, "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell"},
                stdout=told,
                stderr=told,
            )
            started: list[psutil.Process] = []
            try:

                def seen() -> bool:
                    assert driver.poll() is None, messages.read_text()
                    tiered = [status(client, path).last_tiered_time for path in READABLE]
                    failed = [status(client, path).state for path in UNREADABLE]
                    return all(tiered) and set(failed) == {TieringState.FAILED}

                wait_until(seen, 2 * WAIT_S, every=0.5, describe=messages.read_text)
                started = psutil.Process(driver.pid).children(recursive=True)
                lines = PASSWORD.require_none_in_processes(started)
                assert any("java" in line for line in lines)
                assert any("worker_daemon" in line or "pyspark.daemon" in line for line in lines)
                for page in PAGES:
                    PASSWORD.require_none_on_page(ui_port, page)
            finally:
                driver.send_signal(signal.SIGTERM)
                driver.wait(WAIT_S)
                psutil.wait_procs(started, WAIT_S)
            for path in UNREADABLE:
                missing = MissingAcl("READ", "TABLE", str(path), f"User:{TIERING.username}")
                failed = status(client, path)
                assert missing.text() in failed.last_error, failed.last_error
                PASSWORD.require_none("a status", failed, client.list_tiering_rounds(path))
                with pytest.raises(FlussTieringError) as refused:
                    client.drop_table(path)
                PASSWORD.require_none("an error", str(refused.value), repr(refused.value))
        assert server.process is not None
        process = psutil.Process(server.process.pid)
        PASSWORD.require_none("the server's command line", process.cmdline())
        PASSWORD.require_none_in_processes(process.children(recursive=True))
    finally:
        server.kill()
    assert any(events.iterdir()), "Spark wrote an event log"
    names = PASSWORD.require_none_in_files(tmp_path)
    assert {"server.log", "driver.log", "server.db"} <= names
