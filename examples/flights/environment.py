"""The environment of the example: a folder, a tiering server, Airflow and, if asked for, a Fluss cluster."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from examples.flights.airflow_processes import AirflowProcesses
from examples.flights.cluster import start_cluster
from examples.flights.example_dags import EXAMPLE_DAGS, copy_without_schedules
from examples.flights.processes import Processes
from examples.flights.server import start_server
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.spark.submit import JARS_VARIABLE
from fluss_tiering.spark.versions import packages

DAG: Final = "fluss_tiering"
ROOT: Final = Path(__file__).resolve().parents[2]
RUN_FOLDER: Final = ROOT / ".run"
_JARS: Final = ROOT / ".cache" / "jars"
_FLUSS_JARS: Final = ROOT / ".cache" / "fluss"


class Environment:
    """The tiering server and the Airflow of one run.

    Args:
        folder: The folder of data, logs and AIRFLOW_HOME.
        scheduled: Whether Airflow runs `DAG` on its schedule, instead of only when it is triggered.
        fluss: The version of the Fluss cluster that is started for the server; the embedded storage is used when None.
        server_port: The port of the tiering server; any free port when None.
        airflow_port: The port of Airflow's user interface; any free port when None.
    """

    def __init__(
        self,
        folder: Path,
        *,
        scheduled: bool = False,
        fluss: str | None = None,
        server_port: int | None = None,
        airflow_port: int | None = None,
    ) -> None:
        use_local_jars()
        self.folder = folder
        self.bootstrap: str | None = None
        self.fluss = fluss
        self.processes = Processes(folder)
        self._server_port = server_port or free_ports(1)[0]
        self.target = f"127.0.0.1:{self._server_port}"
        self.airflow = AirflowProcesses(
            self.processes,
            folder / "airflow",
            dag_folders={"fluss": EXAMPLE_DAGS if scheduled else copy_without_schedules(folder / "dags")},
            # They are added to Airflow's database, where its user interface shows them.
            connections={},
            port=airflow_port,
            settings={"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True"},
        )

    def client(self) -> TieringClient:
        """Return a client of the server."""
        return TieringClient(self.target)

    def start_server(self) -> None:
        """Start the cluster, if there is one, and then the tiering server; return when it answers."""
        if self.fluss is not None:
            self.bootstrap = start_cluster(self.processes, self.folder / "fluss", _FLUSS_JARS, self.fluss)
        start_server(self.processes, self.folder / "data", self._server_port, self.bootstrap)

    def start_airflow(self) -> None:
        """Start Airflow, add the connections, and switch the DAG on when all components are healthy."""
        self.airflow.start()
        connections = self.folder / "connections.json"
        connections.write_text(json.dumps(self._connections(), indent=2))
        self.airflow.run("connections", "import", str(connections), "--overwrite")
        self.airflow.api.wait_for_dag(DAG)
        self.airflow.api.unpause(DAG)

    def stop(self) -> None:
        """End all programs."""
        self.processes.stop()

    def _connections(self) -> Mapping[str, Mapping[str, object]]:
        return {
            "fluss_default": {"conn_type": "fluss", "host": "127.0.0.1", "port": self._server_port},
            "spark_default": {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}},
        }


def use_local_jars() -> None:
    """Give Spark the jars that `make setup` fetched, so that no session asks a repository for them."""
    # Another version of Spark may have left its own there.
    needed = [_JARS / f"{artifact}-{version}.jar" for _, artifact, version in (each.split(":") for each in packages())]
    jars = [str(jar) for jar in needed if jar.exists()]
    if len(jars) == len(needed):
        os.environ.setdefault(JARS_VARIABLE, ",".join(jars))


def fresh_folder(folder: Path, *, keep: bool) -> Path:
    """Return the folder, and empty it unless its data is to be kept.

    Raises:
        SystemExit: A program that was started from the folder still runs.
    """
    if Processes(folder).running:
        raise SystemExit(f"error: programs that `make up` started in {folder} still run: end them with `make down`")
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
