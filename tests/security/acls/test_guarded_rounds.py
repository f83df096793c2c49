"""Rounds in Spark at a Fluss cluster with ACLs: with the rights to tier alone, and without a trace of the password."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
from fluss_tables import append, rows, upsert
from guarded_cluster import TIERING, GuardedCluster, acls_of

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
DATABASE = "acl_rounds"
READABLE = {TablePath(DATABASE, "keyed"): True, TablePath(DATABASE, "logged"): False}
"""Tables with the right to READ -> whether they have a primary key."""
UNREADABLE = {TablePath(DATABASE, "no_keyed"): True, TablePath(DATABASE, "no_logged"): False}
PAGES = ("", "jobs/", "stages/", "environment/", "executors/", "SQL/", "api/v1/applications")

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.long, pytest.mark.spark]


def without_password(where: str, *texts: object) -> None:
    for text in texts:
        assert TIERING.password not in (text if isinstance(text, str) else repr(text)), where


def without_password_in_processes(processes: Iterable[psutil.Process]) -> list[str]:
    """Fail if a command line or an environment has the password, and return the command lines."""
    lines = []
    for each in processes:
        # A worker may end while it is looked at.
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            line = " ".join(each.cmdline())
            without_password(f"the command line {line}", line)
            without_password(f"the environment of {line}", str(each.environ()))
            lines.append(line)
    return lines


def without_password_in_files(folder: Path) -> None:
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert {"server.log", "driver.log"} <= {each.name for each in files}
    assert any(each.suffix == ".db" for each in files), "the server's database"
    for file in files:
        without_password(str(file), file.read_bytes().decode("latin-1"))


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
    conf = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui_port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{events}",
    }
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
                lines = without_password_in_processes(started)
                assert any("java" in line for line in lines)
                assert any("worker_daemon" in line or "pyspark.daemon" in line for line in lines)
                for page in PAGES:
                    with urllib.request.urlopen(f"http://127.0.0.1:{ui_port}/{page}", timeout=WAIT_S) as answer:
                        without_password(f"Spark's page {page}", answer.read().decode())
            finally:
                driver.send_signal(signal.SIGTERM)
                driver.wait(WAIT_S)
                psutil.wait_procs(started, WAIT_S)
            for path in UNREADABLE:
                missing = MissingAcl("READ", "TABLE", str(path), f"User:{TIERING.username}")
                failed = status(client, path)
                assert missing.text() in failed.last_error, failed.last_error
                without_password("a status", failed, client.list_tiering_rounds(path))
                with pytest.raises(FlussTieringError) as refused:
                    client.drop_table(path)
                without_password("an error", str(refused.value), repr(refused.value))
        assert server.process is not None
        process = psutil.Process(server.process.pid)
        without_password("the server's command line", process.cmdline())
        without_password_in_processes(process.children(recursive=True))
    finally:
        server.kill()
    assert any(events.iterdir()), "Spark wrote an event log"
    without_password_in_files(tmp_path)
