"""`make test-ways`: a round by what the real operator of each way sends, run by the `spark-submit` that is here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Final

import pyarrow as pa

from examples.flights.processes import Processes
from examples.flights.server import start_server
from examples.ports import free_ports
from fetch_spark_jars import jars
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.submit import application_arguments, write_package

ROOT: Final = Path(__file__).resolve().parents[2]
_BIN: Final = Path(sys.executable).parent
_ENVIRONMENT: Final = ROOT / ".cache" / "ways"
_PROVIDERS: Final = ("amazon", "google", "cncf-kubernetes", "apache-livy", "databricks", "apache-spark")
_WAYS: Final = (
    "spark_submit",
    "spark_kubernetes",
    "emr_serverless",
    "emr_steps",
    "dataproc_batch",
    "livy",
    "databricks_submit_run",
)
_NOT_HERE: Final = ("--master", "--deploy-mode", "--packages", "--name")
"""Options that are about the platform, or download what is here."""


def install() -> Path:
    """Return the Python of an environment with the newest providers, beside the Airflow that tests use."""
    uv, python = str(_BIN / "uv"), _ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(_ENVIRONMENT)], check=True)
    providers = [f"apache-airflow-providers-{each}" for each in _PROVIDERS]
    wanted = [f"apache-airflow=={version('apache-airflow')}", *providers, "moto", "-e", "engine", "-e", "."]
    # What makes a request needs no jar of ours.
    environment = {**os.environ, "HATCH_BUILD_NO_HOOKS": "true"}
    command = [uv, "pip", "install", "--quiet", "--python", str(python), *wanted]
    subprocess.run(command, check=True, cwd=ROOT, env=environment)
    return python


def sent_by_ways(python: Path, asked: Mapping[str, object], port: int) -> dict[str, list[str]]:
    """Return what the operator of each way sends, as arguments of `spark-submit`."""
    extra = {"driver_server": f"localhost:{port}"}
    connection = {"conn_type": "fluss", "host": "127.0.0.1", "port": port, "extra": extra}
    with tempfile.TemporaryDirectory(prefix="airflow-home-") as home:
        done = subprocess.run(
            [str(python), str(Path(__file__).with_name("sent_requests.py"))],
            input=json.dumps(asked),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={
                **os.environ,
                "AIRFLOW_HOME": home,
                "AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(connection),
                "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "yarn"}),
                "AIRFLOW_CONN_AWS_DEFAULT": json.dumps({"conn_type": "aws", "extra": {"region_name": "eu-west-1"}}),
                **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "of-the-emulator"),
                "AWS_DEFAULT_REGION": "eu-west-1",
                "AIRFLOW_CONN_LIVY_DEFAULT": json.dumps({"conn_type": "livy", "host": "livy"}),
            },
        )
    sent: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return sent


def python_without_us(folder: Path) -> dict[str, str]:
    """Return the environment of a Python that has what we require, but not us: it reads no `.pth` file."""
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    path = f"{_BIN}{os.pathsep}{os.environ['PATH']}"
    libraries = sysconfig.get_path("purelib")
    return {**os.environ, "PATH": path, "PYSPARK_PYTHON": str(python), "PYTHONPATH": libraries}


def run_here(sent: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run with a local master what a platform was sent."""
    local = ["--master", "local[1]", "--jars", ",".join(map(str, jars()))]
    arguments = iter(sent)
    for each in arguments:
        if each in _NOT_HERE:
            next(arguments)
        elif each == "--conf":
            name, _, value = next(arguments).partition("=")
            _, is_variable, variable = name.replace("appMasterEnv.", "driverEnv.").partition("driverEnv.")
            if is_variable:
                environment[variable] = Template(value).substitute(environment)
            elif name != "spark.jars.packages":
                local += ["--conf", f"{name}={value}"]
        else:
            local.append(each)
    command = [str(_BIN / "spark-submit"), *local]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def asked_of_ways(client: TieringClient, folder: Path, port: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield each way with the package and the arguments of a round of a table of its own."""
    columns = (Column("id", DataType.parse("BIGINT NOT NULL")),)
    rows = pa.table({"id": [1, 2, 3]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    for name in _WAYS:
        path = TablePath("db", name)
        properties = {"table.datalake.enabled": "true"}
        client.create_table(path, TableDescriptor(columns, primary_key=("id",), properties=properties))
        list(client.write_rows(path, WriteKind.UPSERT, [rows]))
        token = lease_latest_snapshots(client, name, [path], 3_600_000).attempt_token
        options = TierOptions(server=f"localhost:{port}", tables=(path,), lease_id=name, attempt_token=token)
        yield name, {"package": str(folder), "arguments": application_arguments(options)}


def main() -> None:
    """Print a line for each way, and exit with 1 if one did not tier its table."""
    python = install()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="fluss-ways-") as name:
        folder = Path(name)
        write_package(folder)
        (port,) = free_ports(1)
        processes = Processes(folder)
        try:
            with TieringClient(start_server(processes, folder / "data", port)) as client:
                sent = sent_by_ways(python, dict(asked_of_ways(client, folder, port)), port)
                for way in _WAYS:
                    done = run_here(sent[way], python_without_us(folder))
                    rounds = client.lease_outcome(way).rounds
                    ended = [(each.state, each.origin.dag_id if each.origin else None) for each in rounds]
                    is_right = done.returncode == 0 and ended == [(TieringState.TIERED, way)]
                    wrong += not is_right
                    sys.stdout.write(f"{'tiered  ' if is_right else 'DID NOT '} {way}\n")
                    if not is_right:
                        sys.stdout.write(f"{ended}\n{done.stdout}{done.stderr}\n{sent[way]}\n")
                    sys.stdout.flush()
        finally:
            processes.stop()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
