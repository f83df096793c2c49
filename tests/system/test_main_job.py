"""What a newcomer runs first: `fluss-tiering demo`, `make run` and `make up`, whole."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

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


COMMAND = [str(Path(sys.executable).with_name("fluss-tiering")), "demo"]


@pytest.mark.system
def test_the_demo_tiers_twice_finds_all_rows_and_leaves_no_server(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (port,) = free_ports(1)
    ended = subprocess.run([*COMMAND, "--port", str(port)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    rounds = re.findall(r"(First|Second) round: ([\d,]+) changes", ended.stdout)
    assert rounds == [("First", "1,000"), ("Second", "350")]
    assert "Every order is in the lake, once." in ended.stdout
    places = dict(re.findall(r"^(.+):\s+(/.*)$", ended.stdout, re.MULTILINE))
    assert all(Path(place).exists() for place in places.values())
    assert list(Path(places["Iceberg table"]).glob("**/*.parquet"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.system
def test_a_port_that_is_used_is_told_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = subprocess.run([*COMMAND, "--port", str(port)], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: port {port} cannot be used")
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.system
def test_a_demo_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: any(log.stat().st_size for log in tmp_path.glob("*/server.log")), every=0.05)
            process.send_signal(number)
            assert process.stderr is not None
            assert re.search(r"^warning: interrupted: \S+ is deleted$", process.stderr.read(), re.MULTILINE)
        assert process.returncode == code
        assert not list(tmp_path.glob("fluss-tiering-demo-*"))
