"""A real Airflow: scheduler, triggerer, DAG processor and API server as programs with one folder.

It uses SQLite, the LocalExecutor and free ports. It asks for no login, and only this machine can reach it.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from examples.flights.airflow_api import AirflowApi
from examples.flights.processes import Processes, Started
from examples.ports import free_ports

COMPONENTS: Final = ("scheduler", "dag-processor", "triggerer")
_READY_SECONDS: Final = 600.0
"""For a machine that is busy: a program that ends is noticed at once."""
_COMMAND_SECONDS: Final = 600.0


class AirflowProcesses:
    """Starts the components of Airflow as programs.

    Args:
        processes: The programs of the run. They end Airflow with all others.
        home: The folder for AIRFLOW_HOME. The logs of tasks are in its folder `logs`.
        dag_folders: The folder of each DAG bundle, by the bundle's name.
        connections: The connections by their ids, as the variables `AIRFLOW_CONN_…` take them in JSON.
        port: The port of the API server and its user interface; any free port when None.
        python: The interpreter of the environment that Airflow is installed in.
        settings: Variables of the environment that override those of this class.
    """

    def __init__(
        self,
        processes: Processes,
        home: Path,
        *,
        dag_folders: Mapping[str, Path],
        connections: Mapping[str, Mapping[str, object]],
        port: int | None = None,
        python: Path = Path(sys.executable),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._processes = processes
        self._home = home
        self._command = [str(python), "-m", "airflow"]
        free = free_ports(3)
        self.port = port or free[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **_settings(home, self.url, self.port, dag_folders, log_ports=(free[1], free[2])),
            **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in connections.items()},
            # Tasks find the programs spark-submit and fluss-tiering beside the interpreter.
            "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            **(settings or {}),
        }
        self.api = AirflowApi(self.url)

    def start(self, components: Sequence[str] = COMPONENTS) -> None:
        """Create the database, start the API server and the components and return when they are healthy.

        Args:
            components: The components to start beside the API server; all of them by default.

        Raises:
            SystemExit: A component ended or was not ready in time. The message holds the end of its log.
        """
        self._home.mkdir(parents=True, exist_ok=True)
        self.run("db", "migrate")
        api_server = self.start_component("api-server")
        others = [self.start_component(component) for component in components]
        self._processes.wait_until(api_server, self.api.answers, _READY_SECONDS)
        for started in others:
            component = started.name.removeprefix("airflow-").replace("-", "_")
            self._processes.wait_until(started, partial(self.api.is_healthy, component), _READY_SECONDS)

    def start_component(self, component: str) -> Started:
        """Start one component: api-server, scheduler, dag-processor or triggerer."""
        return self._processes.start(f"airflow-{component}", [*self._command, component], self.environment)

    def run(self, *arguments: str) -> None:
        """Run a command of Airflow, such as `connections import`, and return when it has ended.

        Raises:
            SystemExit: The command failed. The message holds the end of its output.
        """
        done = subprocess.run(
            [*self._command, *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise SystemExit(
                f"error: airflow {' '.join(arguments)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )


def _settings(
    home: Path, url: str, port: int, dag_folders: Mapping[str, Path], log_ports: tuple[int, int]
) -> dict[str, str]:
    bundles = [
        {
            "name": name,
            "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
            "kwargs": {"path": str(folder)},
        }
        for name, folder in dag_folders.items()
    ]
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__FERNET_KEY": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "8",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        # SQLite lets one program write at a time. A component ends if it waits longer than this for its turn.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}?timeout=120",
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(log_ports[0]),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(log_ports[1]),
    }
