"""`airflow dags test`, which developers try first, with each DAG that the project shows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from code_blocks import ROOT, code_blocks

from examples.flights.airflow_processes import AirflowProcesses
from examples.flights.example_dags import EXAMPLE_DAGS
from examples.flights.processes import Processes
from examples.flights.server import start_server
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind
from fluss_tiering.model.table_options import LAKE_COMMIT_BRANCH
from fluss_tiering.model.tiering import TieringState
from needs import needs
from waiting import wait_until

TABLES = tuple(map(TablePath.parse, ("shop.orders", "shop.customers", "shop.items", "web.clicks", "web.sessions")))
"""The tables that the DAGs name."""
SENSOR_FIRST = """
import airflow_provider_fluss as fluss
from airflow.sdk import dag, task

@dag
def sensor_first():
    acquire = fluss.FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=["shop.orders"])
    wait = fluss.FlussTieringStatusSensor(
        task_id="wait", lease=acquire.output, submit_task_id="submit", poke_interval=1, MORE
    )
    submit = fluss.FlussTieringSparkOperator(task_id="submit", lease=acquire.output)
    release = fluss.FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)

    @task
    def takes_time():
        pass

    acquire >> takes_time() >> submit
    acquire >> wait
    [submit, wait] >> release.as_teardown(setups=acquire, on_failure_fail_dagrun=True)

sensor_first()
"""
"""A DAG whose sensor always runs before its submit. Of others, `dags test` runs either first."""
ENVIRONMENTS = ("default", "staging", "production")


def shown() -> Iterator[object]:
    """Yield the text of each DAG file of the README, the docs and the folder `dags`."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in code_blocks(page, "python"):
            if re.search(r"^ *@dag|^with DAG", block.code, re.MULTILINE):
                yield pytest.param(block.code, id=str(block))
    # Ways to submit need providers that are not here.
    for path in sorted({*EXAMPLE_DAGS.glob("*.py")} - {EXAMPLE_DAGS / "example_fluss_submit.py"}):
        yield pytest.param(path.read_text(), id=path.name)
    for more in ("deferrable=True", "deferrable=False"):
        yield pytest.param(SENSOR_FIRST.replace("MORE", more), id=f"sensor first, {more}")


class Developer:
    """Somebody with a server, Spark and Airflow's commands, who started no scheduler and no triggerer."""

    def __init__(self, folder: Path, client: TieringClient, airflow: AirflowProcesses) -> None:
        self._dags = folder / "dags"
        self._client = client
        self._airflow = airflow
        self._rows = 0

    def write_rows(self) -> None:
        """Write a row to each table, and return when all of them are pending."""
        self._rows += 1
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        for path in TABLES:
            list(self._client.write_rows(path, WriteKind.UPSERT, [pa.table({"id": [self._rows]}, schema=schema)]))
        wait_until(lambda: {each.state for each in self._statuses()} == {TieringState.PENDING})

    def test(self, code: str) -> None:
        """Run `airflow dags test` for each DAG of a file."""
        self._dags.joinpath("shown.py").write_text(code)
        # Airflow reads its home when it is first imported.
        os.environ.setdefault("AIRFLOW_HOME", self._airflow.environment["AIRFLOW_HOME"])
        from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415

        for dag_id in DagBag(dag_folder=str(self._dags), bundle_name="docs", collect_dags=True).dags:
            self._airflow.run("dags", "test", dag_id)

    @contextmanager
    def commits_to_a_branch(self, table: str) -> Iterator[None]:
        """Let the rounds of a table commit to a branch of its lake table in the block."""
        path, option = TablePath.parse(table), LAKE_COMMIT_BRANCH.key
        self._client.alter_table(path, {option: "audit"})
        yield
        self._client.alter_table(path, reset_properties=[option])

    def tiered(self) -> set[str]:
        """Return the tables of which no row waits."""
        return {str(each.path) for each in self._statuses() if not each.records_waiting}

    def _statuses(self):
        return [status for path in TABLES for status in self._client.list_tiering_statuses(path)]


@pytest.fixture(scope="module")
@needs("airflow", "spark", "server", "system")
def developer(tmp_path_factory: pytest.TempPathFactory, spark_jars: str) -> Iterator[Developer]:
    folder = tmp_path_factory.mktemp("developer")
    processes = Processes(folder)
    (port,) = free_ports(1)
    connections = {"fluss": {"conn_type": "fluss", "host": "127.0.0.1", "port": port}}
    connections["spark"] = {"conn_type": "spark", "host": "local[2]"}
    try:
        target = start_server(processes, folder / "data", port)
        airflow = AirflowProcesses(
            processes,
            folder / "airflow",
            dag_folders={"dags-folder": folder / "dags"},
            connections={f"{kind}_{name}": connections[kind] for kind in connections for name in ENVIRONMENTS},
        )
        for name in ("airflow", "dags"):
            (folder / name).mkdir()
        airflow.run("db", "migrate")
        with TieringClient(target) as client:
            properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
            columns = (Column("id", DataType.parse("BIGINT NOT NULL")),)
            for path in TABLES:
                client.create_table(path, TableDescriptor(columns, primary_key=("id",), properties=properties))
            yield Developer(folder, client, airflow)
    finally:
        processes.stop()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("code", list(shown()))
def test_each_dag_ends_by_itself_under_dags_test_and_tiers(developer, code):  # E12
    developer.write_rows()
    if "maintain" in code:
        # Only what is in the lake can be maintained.
        developer.test((EXAMPLE_DAGS / "example_fluss_tiering.py").read_text())
    branch = developer.commits_to_a_branch("shop.orders") if "FlussPublishOperator" in code else nullcontext()
    try:
        with branch:
            developer.test(code)
    except SystemExit as error:
        # Rows of tables that other DAGs do not name may wait for longer than the watching DAG allows.
        if "tables that need somebody" not in str(error):
            raise
    if "TieringSparkOperator" in code or "TieringOperator" in code:
        named = {str(path) for path in TABLES if str(path) in code}
        assert developer.tiered() >= (named or set(map(str, TABLES)))
