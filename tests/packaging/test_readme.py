"""The README, step by step in a new environment (D20, D21, D28)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from readme import Command, PythonFile, steps

from examples.flights.airflow_processes import AirflowProcesses, free_ports
from examples.flights.processes import Processes
from needs import needs
from waiting import wait_until

ROOT = Path(__file__).parents[2]
DAG_FILE = "tier_orders.py"
DAG = "tier_orders"

IN_THE_CHECKOUT = ("make ", "pip ")
"""Commands that the reader runs in the checkout; all others run in another folder."""

EXPECTED = (
    # The test has an environment of its own.
    ("python3 -m venv", ""),
    ("make dist", ""),
    ("pip install", ""),
    ("fluss-tiering demo", "Every order is in the lake, once."),
    ("fluss-tiering serve", ""),
    ("printf", ""),
    ("fluss-tiering tables create", "shop.orders is table 1."),
    ("fluss-tiering put", "Upserted 3 rows"),
    ("fluss-tiering tier shop.orders", "Tiered"),
    ("spark-sql $(fluss-tiering lake-conf shop.orders) -e 'SELECT * FROM fluss_lake.shop", "3\tchloe\t12.25\t"),
    ("fluss-tiering verify", "equal"),
    ("fluss-tiering status", "shop.orders"),
    ("spark-sql $(fluss-tiering spark-conf)", "orders\tScheduled\tNULL"),
    ("airflow providers get", "airflow-provider-fluss"),
    ("airflow connections add fluss_default", "fluss_default"),
    ("airflow connections add spark_default", "spark_default"),
    ("fluss-tiering put", "Upserted 3 rows"),
    ("airflow dags unpause", DAG),
)
"""The beginning of each command of the README, and what it prints."""


class Reader:
    """Somebody who types the commands, in an environment that holds neither the checkout nor what is installed for it.

    Args:
        checkout: A copy of the checkout.
        work: An empty folder.
        make_dist: The command that stands for `make dist`.
        spark_jars: Jars that Spark need not download again.
    """

    def __init__(self, checkout: Path, work: Path, make_dist: str, spark_jars: str) -> None:
        self._checkout = checkout
        self._work = work
        self._processes = Processes(work / "processes")
        self._venv = work / "venv"
        self._uv = Path(sys.prefix, "bin", "uv")
        (self._port,) = free_ports(1)
        (work / "dags").mkdir()
        self._airflow = AirflowProcesses(
            self._processes,
            work / "airflow",
            dag_folders={"dags-folder": work / "dags"},
            connections={},
            python=self._venv / "bin" / "python",
        )
        # What differs from the page: names of this run's ports and folders, and where wheels of others come from.
        self._substitutions = {
            "make dist": make_dist,
            "pip install": f"{self._uv} pip install --quiet --constraints constraints.txt",
            "~/fluss-tiering-data": str(work / "data"),
            "--conn-port 9133": f"--conn-port {self._port}",
            # One run, as soon as the DAG is switched on. No later run has the table when the next command tiers it.
            '"*/3 * * * *"': '"@once"',
        }
        self.environment = {
            **self._airflow.environment,
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "FLUSS_TIERING_METRICS_PORT": "0",
            "FLUSS_TIERING_PORT": str(self._port),
            "FLUSS_TIERING_SERVER": f"127.0.0.1:{self._port}",
            "FLUSS_TIERING_SPARK_JARS": spark_jars,
            "VIRTUAL_ENV": str(self._venv),
        }
        self._airflow.environment.update(self.environment)
        subprocess.run([self._uv, "venv", "--quiet", "--python", sys.executable, self._venv], check=True, timeout=60)

    def write(self, file: PythonFile) -> None:
        (self._work / "dags" / DAG_FILE).write_text(self._substituted(file.text))

    def run(self, line: str) -> str:
        """Run a command line and return what it prints."""
        typed = self._substituted(line)
        if line.startswith("python3 -m venv"):
            return ""
        if line.startswith("fluss-tiering serve"):
            self._start_server(typed)
            return ""
        if line.startswith("airflow providers"):
            self._airflow.start()
        if line.startswith("airflow dags unpause"):
            self._airflow.api.wait_for_dag(DAG)
        answer = self._bash(typed, self._checkout if line.startswith(IN_THE_CHECKOUT) else self._work)
        assert answer.returncode == 0, f"{typed}\n{answer.stdout[-3000:]}\n{answer.stderr[-3000:]}"
        if line.startswith("airflow dags unpause"):
            (run,) = wait_until(lambda: self._airflow.api.run_ids(DAG), 60)
            assert self._airflow.api.wait_for_run(DAG, run, 400) == "success"
        return answer.stdout

    def _substituted(self, text: str) -> str:
        for shown, meant in self._substitutions.items():
            text = text.replace(shown, meant)
        return text

    def stop(self) -> None:
        self._processes.stop()

    def _bash(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def _start_server(self, command: str) -> None:
        started = self._processes.start("server", ["bash", "-c", f"exec {command}"], self.environment)
        self._processes.wait_until(
            started, lambda: self._bash("fluss-tiering tables list", self._work).returncode == 0, 60
        )


@pytest.fixture
@needs("airflow", "server", "spark", "system")
def reader(checkout, make_dist, spark_jars, tmp_path, monkeypatch) -> Iterator[Reader]:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    own = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if p != own))
    monkeypatch.chdir(tmp_path)
    person = Reader(checkout, tmp_path, make_dist, spark_jars)
    yield person
    person.stop()


def test_every_command_has_an_expectation():
    lines = [step.line for step in steps() if isinstance(step, Command)]
    assert len(lines) == len(EXPECTED)
    for line, (beginning, _) in zip(lines, EXPECTED, strict=True):
        assert line.startswith(beginning)


LOAD = """
import sys
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(dag_folder=sys.argv[1], bundle_name="readme", collect_dags=True)
print(bag.import_errors, {name: sorted(dag.task_ids) for name, dag in bag.dags.items()})
"""


@pytest.mark.system
def test_airflow_loads_the_dag_file(tmp_path):  # D28
    (file,) = [step for step in steps() if isinstance(step, PythonFile)]
    (tmp_path / DAG_FILE).write_text(file.text)
    answer = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path)],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    assert answer.stdout.splitlines()[-1] == f"{{}} {{'{DAG}': ['acquire', 'release', 'submit', 'wait']}}"


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_readme_works_word_for_word(reader, tmp_path):  # D20, D21, D28
    expected = iter(EXPECTED)
    for step in steps():
        if isinstance(step, PythonFile):
            reader.write(step)
            continue
        _, text = next(expected)
        assert text in reader.run(step.line), step.line
    found = reader.run(
        "python -c 'import airflow_provider_fluss as a, fluss_tiering as b; print(a.__file__, b.__file__)'"
    )
    assert all(path.startswith(str(tmp_path / "venv")) for path in found.split())
