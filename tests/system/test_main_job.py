"""`make run` and `make up`, whole: the README's promises."""

from __future__ import annotations

import subprocess
import sys

import pytest

from examples.flights.airflow_api import AirflowApi
from examples.flights.environment import DAG, ROOT
from examples.ports import free_ports
from waiting import wait_until


@pytest.mark.long
@pytest.mark.system
@pytest.mark.timeout(1200)
def test_every_row_of_the_flights_data_is_in_the_lake_after_two_rounds(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "examples.flights", "run", "--folder", str(tmp_path / "run")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "Every row is in the lake, once." in done.stdout
    assert done.stdout.count(" equal ") == 10


@pytest.mark.long
@pytest.mark.system
@pytest.mark.timeout(1200)
def test_what_is_left_running_tiers_on_its_schedule_with_connections_that_airflow_shows(tmp_path):
    server_port, airflow_port = free_ports(2)
    folder = ["--folder", str(tmp_path / "up")]

    def flights(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "examples.flights", *arguments, *folder],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    try:
        told = flights("up", "--server-port", str(server_port), "--airflow-port", str(airflow_port))
        url = f"http://127.0.0.1:{airflow_port}"
        assert url in told
        assert f"{url}/plugin/lake-tiering" in told  # E37
        airflow = AirflowApi(url)
        assert airflow.connections() == {"fluss_default": "fluss", "spark_default": "spark"}
        first = wait_until(lambda: airflow.run_ids(DAG), 240)[0]
        assert first.startswith("scheduled__")
        assert airflow.wait_for_run(DAG, first, 400) == "success"
        assert {each.state for each in airflow.task_states(DAG, first)} == {"success"}
        others = ("fluss_tiering_table", "fluss_watch", "fluss_lake_maintenance")
        assert [airflow.run_ids(dag) for dag in others] == [[], [], []]
    finally:
        assert "airflow-scheduler" in flights("down")
