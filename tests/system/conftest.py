"""One tiering server and one real Airflow for the whole run of the system tests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_support import descriptor, put
from examples.flights.airflow_api import AirflowApi
from examples.flights.airflow_processes import AirflowProcesses
from examples.flights.example_dags import copy_without_schedules
from examples.flights.processes import Processes
from examples.flights.server import start_server
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from needs import needs

SPARK_CONNECTION = {"conn_type": "spark", "host": "local[2]", "extra": json.dumps({"deploy-mode": "client"})}
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Stack:
    """What runs: the programs, the server by its address, a client of it, and Airflow's API."""

    processes: Processes
    server: str
    client: TieringClient
    airflow: AirflowApi

    def start(self, dag_id: str, *tables: str) -> str:
        """Run a DAG for these tables, and return the run."""
        self.airflow.wait_for_dag(dag_id)
        return self.airflow.trigger(dag_id, {"tables": list(tables)})

    def states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return the state of each task of a run."""
        return {each.task_id: each.state for each in self.airflow.task_states(dag_id, run_id)}


@pytest.fixture(scope="session")
@needs("airflow", "spark")
def stack(tmp_path_factory: pytest.TempPathFactory, spark_jars: str) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("system")
    processes = Processes(folder)
    (port,) = free_ports(1)
    try:
        target = start_server(processes, folder / "data", port)
        airflow = AirflowProcesses(
            processes,
            folder / "airflow",
            dag_folders={
                "examples": copy_without_schedules(folder / "examples"),
                "tests": Path(__file__).with_name("dags"),
            },
            connections={
                "fluss_default": {"conn_type": "fluss", "host": "127.0.0.1", "port": port},
                "spark_default": SPARK_CONNECTION,
            },
        )
        with TieringClient(target) as client:
            airflow.start()
            yield Stack(processes, target, client, airflow.api)
    finally:
        processes.stop()


@pytest.fixture
def new_table(stack: Stack) -> Iterator[Callable[..., str]]:
    """Creates a table of 1,000 rows, with a primary key or a log table, and returns its path; dropped in the end.

    Its argument `more` has options of the table besides those of tiering.
    """
    created: list[TablePath] = []

    def create(*, primary_key: bool = True, freshness: str = "1h", more: Mapping[str, str] | None = None) -> str:
        path = TablePath("system", f"t{next(_NUMBERS)}")
        created.append(path)
        made = descriptor(primary_key=primary_key, num_buckets=2, freshness=freshness, properties=more)
        table = stack.client.create_table(path, made)
        put(stack.client, table, {number: f"name {number}" for number in range(1000)})
        return str(path)

    yield create
    # A test that waited for a program which had ended fails with its log, too.
    stack.processes.require_running()
    for path in created:
        stack.client.drop_table(path, drop_untiered=True)
