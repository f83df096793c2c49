"""A tiering server and an Airflow whose programs tests kill and start again."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import psutil
import sqlalchemy as sa
from airflow_control import AirflowControl

from examples.flights.airflow_processes import AirflowProcesses
from examples.flights.example_dags import copy_without_schedules
from examples.flights.processes import Processes, Started
from examples.flights.server import start_server
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.spark.submit import write_package
from waiting import wait_until

SERVER: Final = "server"
# A worker for each bucket that is held. A task that fails is tried again, as on a cluster.
_SPARK: Final = {"conn_type": "spark", "host": "local[6,4]", "extra": json.dumps({"deploy-mode": "client"})}
_NUMBERS: Final = itertools.count()


class AirflowStack:
    """The programs. As a context manager it starts and ends them.

    Args:
        folder: An empty folder for the data and the logs of all programs.
        database: The kind of Airflow's database, for what tests tell.
        database_url: The URL of an empty PostgreSQL database for Airflow; None for SQLite.
    """

    def __init__(self, folder: Path, database: str, database_url: str | None) -> None:
        self.database = database
        self._folder = folder
        self._scratch = folder / "tmp"
        self._package = folder / "package"
        self._processes = Processes(folder)
        self._sessions: set[int] = set()
        (self._port,) = free_ports(1)
        self._airflow = AirflowProcesses(
            self._processes,
            folder / "airflow",
            dag_folders={
                "examples": copy_without_schedules(folder / "examples"),
                "tests": Path(__file__).with_name("dags"),
            },
            connections={"spark_default": _SPARK},
        )
        self._airflow.environment |= {
            "WAYS_TO_END_PACKAGE": str(self._package),
            # A task whose supervisor is lost too is noticed by this; the default is five minutes.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "75",
            **_database_settings(database_url),
            # A JVM that is killed leaves its files behind.
            "TMPDIR": str(self._scratch),
            "SPARK_LOCAL_DIRS": str(self._scratch),
            "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={self._scratch}",
        }
        self.airflow = AirflowControl(self._airflow.url)
        self.target = f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._scratch.mkdir()
        self._package.mkdir()
        write_package(self._package)
        self._start_server()
        self._airflow.start()
        self.client = TieringClient(self.target)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.client.close()
        self._sessions |= {each.pid for each in self._processes.running}
        self._processes.stop()
        _kill_sessions(self._sessions)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def outage(self, *names: str, seconds: float) -> None:
        """Kill programs with SIGKILL, and start them again after a time.

        Args:
            names: Components of Airflow (scheduler, triggerer, dag-processor, api-server) or `SERVER`.
            seconds: How long they are away.
        """
        for name in names:
            self._kill(name)
        time.sleep(seconds)
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a program again that was killed, and return when it works."""
        if name == SERVER:
            self._start_server()
            return
        self._airflow.start_component(name)
        if name == "api-server":
            wait_until(self.airflow.answers, 300, every=0.3)
        else:
            wait_until(lambda: self.airflow.is_healthy(name.replace("-", "_")), 300, every=0.3)

    def started(self, name: str) -> Started:
        """Return the program that runs under this name."""
        name = name if name == SERVER else f"airflow-{name}"
        (running,) = [each for each in self._processes.running if each.name == name]
        return running

    def _start_server(self) -> None:
        start_server(self._processes, self._folder / "data", self._port)

    def _kill(self, name: str) -> None:
        """Kill a program; with its children, but for the scheduler, whose children are the supervisors of tasks."""
        pid = self.started(name).pid
        self._sessions.add(pid)
        if name == "scheduler":
            os.kill(pid, signal.SIGKILL)
        else:
            os.killpg(pid, signal.SIGKILL)
        wait_until(lambda: pid not in {each.pid for each in self._processes.running})


def _database_settings(url: str | None) -> dict[str, str]:
    if url is None:
        return {}
    with_driver = sa.make_url(url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    return {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": with_driver,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": with_driver,
    }


def _kill_sessions(sessions: set[int]) -> None:
    """End what programs that were killed have left."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) in sessions:
                process.kill()
