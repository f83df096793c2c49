"""docs/airflow/connections.md: each way to define a connection gives the same one."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from code_blocks import ROOT, code_blocks

PAGE = ROOT / "docs" / "airflow" / "connections.md"
SHELL = [block.code for block in code_blocks(PAGE, "bash")]
COMMANDS = [code for code in SHELL if code.startswith("airflow ")]
VARIABLES = [shlex.split(code)[1].partition("=") for code in SHELL if code.startswith("export ")]
ADDRESSES = {"fluss_default": "tiering.example.com:9133"}


def test_every_block_is_tried_below() -> None:
    assert (len(COMMANDS), len(VARIABLES)) == (2, 3)
    assert len(SHELL) == 5


@pytest.mark.airflow
@pytest.mark.parametrize(("name", "_", "value"), VARIABLES)
def test_airflow_reads_the_variables(
    name: str, _: str, value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Airflow reads its home when it is first imported.
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path / "airflow"))
    from airflow.sdk import BaseHook  # noqa: PLC0415

    from airflow_provider_fluss import FlussHook  # noqa: PLC0415

    monkeypatch.setenv(name, value)
    conn_id = name.removeprefix("AIRFLOW_CONN_").lower()
    connection = BaseHook.get_connection(conn_id)
    if connection.conn_type == "spark":
        assert (connection.host, connection.extra_dejson) == ("local[*]", {"deploy-mode": "client"})
        return
    assert connection.conn_type == "fluss"
    assert FlussHook(conn_id).get_address() == ADDRESSES[conn_id]
    assert float(connection.extra_dejson["timeout"]) == 10


READ = """
import json
from airflow.models import Connection
from airflow.utils.session import create_session
with create_session() as session:
    print(json.dumps({each.conn_id: [each.conn_type, each.host, each.port, each.extra_dejson]
                      for each in session.query(Connection)}))
"""


@pytest.mark.long
@pytest.mark.airflow
@pytest.mark.system
def test_the_commands_add_the_connections(tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_CONN_")},
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }

    def run(*command: str) -> str:
        answer = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
        )
        assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
        return answer.stdout

    run("airflow", "db", "migrate")
    run("bash", "-euc", "\n".join(COMMANDS))
    found = json.loads(run(sys.executable, "-c", READ).splitlines()[-1])
    fluss = {name: (host, port, extra) for name, (kind, host, port, extra) in found.items() if kind == "fluss"}
    assert {name: f"{host}:{port}" for name, (host, port, _) in fluss.items()} == {
        "fluss_default": ADDRESSES["fluss_default"]
    }
    assert {float(extra["timeout"]) for _, _, extra in fluss.values()} == {10}
    spark = {name: connection[1:] for name, connection in found.items() if connection[0] == "spark"}
    assert spark == {"spark_default": ["local[*]", None, {"deploy-mode": "client"}]}
