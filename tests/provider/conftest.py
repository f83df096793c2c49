"""What provider tests share: an empty AIRFLOW_HOME and a real tiering server with embedded storage."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import engine_support
from engine_support import ServerProcess
from needs import needs

# Airflow reads its home when it is first imported.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-home-")

from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from provider_support import Driver

from airflow_provider_fluss.operators.lease import FlussAcquireKvSnapshotLeaseOperator
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from fluss_tiering.client import TieringClient

_SPARK_SUBMIT = """#!{python}
import json, pathlib, sys, time
pathlib.Path({calls!r}).write_text(json.dumps(sys.argv[1:]))
{behaviour}
"""


@pytest.fixture(autouse=True)
@needs("airflow")
def _airflow() -> None:
    """Mark every test here: this file and the tests import Airflow."""


@pytest.fixture(scope="session")
@needs("server")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path_factory.mktemp("server"))
    running.start()
    os.environ["AIRFLOW_CONN_FLUSS_DEFAULT"] = f"fluss://127.0.0.1:{running.port}"
    yield running
    del os.environ["AIRFLOW_CONN_FLUSS_DEFAULT"]
    running.stop()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[TieringClient]:
    with TieringClient(f"127.0.0.1:{server.port}") as connected:
        yield connected


@pytest.fixture
def new_table(client: TieringClient) -> Callable[..., str]:
    """Creates a table that is tiered, with a primary key and three rows or a log table, and returns its path."""

    def create(*, primary_key: bool = True) -> str:
        made = engine_support.new_table(client, [1, 2, 3], primary_key=primary_key, num_buckets=2, freshness=None)
        return str(made.path)

    return create


@pytest.fixture
def driver(client: TieringClient) -> Driver:
    return Driver(client)


@pytest.fixture(autouse=True)
def task_states(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """The states of task instances that Airflow's API server would tell, by its names for them; none at first."""
    states: dict[str, str | None] = {}

    def get_task_states(*, dag_id: str, run_ids: list[str], task_ids: list[str]) -> dict[str, dict[str, str | None]]:
        assert dag_id == "dag"
        wanted = {name: states[name] for name in states if name.startswith(tuple(task_ids))}
        return {run_ids[0]: wanted} if wanted else {}

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", get_task_states)
    return states


@pytest.fixture
def context(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Makes the part of a task's context that operators read; the run is the test's own."""

    def make(task_id: str = "acquire", *, try_number: int = 1, max_tries: int = 0) -> dict[str, Any]:
        pushed: dict[str, Any] = {}
        ti = SimpleNamespace(
            dag_id="dag",
            run_id=request.node.nodeid,
            task_id=task_id,
            map_index=-1,
            try_number=try_number,
            max_tries=max_tries,
            get_first_reschedule_date=lambda _: None,
            xcom_push=lambda key, value: pushed.update({key: value}),
            pushed=pushed,
        )
        return {"ti": ti, "run_id": ti.run_id}

    return make


@pytest.fixture
def acquire(context: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Runs an acquire task on tables and returns its XCom; again for its next try."""

    def run(*tables: str, **arguments: Any) -> dict[str, Any]:
        return FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=list(tables), **arguments).execute(
            context("acquire")
        )

    return run


@pytest.fixture
@needs("system")
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[], list[str]]]:
    """Puts a spark-submit that behaves as given on the PATH; the answer reads the arguments of its last call."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    calls = tmp_path / "calls.json"

    def behave(behaviour: str) -> Callable[[], list[str]]:
        program = tmp_path / "spark-submit"
        program.write_text(_SPARK_SUBMIT.format(python=sys.executable, calls=str(calls), behaviour=behaviour))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return lambda: json.loads(calls.read_text())

    return behave


@pytest.fixture
def make(context: Callable[..., dict[str, Any]]) -> Callable[..., FlussTieringSparkOperator]:
    """Makes a submit task for a lease."""

    def operator(lease: object, **arguments: Any) -> FlussTieringSparkOperator:
        return FlussTieringSparkOperator(task_id="submit", lease=lease, **arguments)

    return operator


@pytest.fixture
def lease(new_table: Callable[..., str], acquire: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The lease of a table with a primary key and of a log table."""
    return acquire(new_table(), new_table(primary_key=False))
