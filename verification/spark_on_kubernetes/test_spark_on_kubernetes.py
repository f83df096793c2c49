"""The command of docs/how-to/kubernetes.md, run by `spark-submit` and Spark's own scheduler for Kubernetes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

import judges
from certificates import Authority
from engine_support import SCHEMA, ServerProcess, descriptor, put
from fetch_spark_jars import jars
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableInfo, TablePath, WriteKind
from fluss_tiering.spark.submit import write_package
from needs import needs
from spark_on_kubernetes.api_server import ApiServer, Object
from spark_on_kubernetes.pods import Pods

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="`make test-deploy` brings Kubernetes' schemas")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
SPARK_HOME = Path(str(find_spec("pyspark").origin)).parent
PYTHON = Path(sys.executable)
TABLES = ("orders", "events")


def token(folder: Path, role: str) -> Path:
    output = folder / f"{role}.token"
    arguments = [
        "token",
        "create",
        role,
        "--role",
        role,
        "--file",
        str(folder / "tokens.json"),
        "--output",
        str(output),
    ]
    subprocess.run([PYTHON.with_name("fluss-tiering"), *arguments], check=True)
    return output


class Shop:
    """A server that asks who calls, over TLS, with two tables; and Kubernetes with the secret of the page."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "ca")
        pair = self.authority.pair("server", "server")
        self.token, driver = token(folder, "admin"), token(folder, "tierer")
        self.warehouse = folder / "warehouse"
        self.server = ServerProcess(
            folder / "server",
            FLUSS_TIERING_LAKE_CATALOG=json.dumps({"type": "hadoop", "warehouse": str(self.warehouse)}),
            FLUSS_TIERING_TLS_CERT_FILE=str(pair.cert),
            FLUSS_TIERING_TLS_KEY_FILE=str(pair.key),
            FLUSS_TIERING_TOKENS_FILE=str(folder / "tokens.json"),
        )
        (folder / "package").mkdir()
        write_package(folder / "package")
        self.pods = Pods(
            folder / "pods",
            image={"/opt/spark": SPARK_HOME, "/opt/fluss-tiering": folder / "package"},
            environment={**os.environ, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": str(PYTHON)},
            secrets={"fluss-tiering": {"token": driver.read_text(), "ca.pem": self.authority.cert.read_text()}},
        )
        self.api = ApiServer(check, self.pods)

    def submit(self, api: str) -> None:
        """Run the command of the page with the addresses that are here, and what is small and at hand."""
        (command,) = re.findall(r"spark-submit --master k8s.*?\n    ```", PAGE.read_text(), re.DOTALL)
        program, *arguments = shlex.split(command.removesuffix("```").replace("\\\n", " "))
        text = "\n".join(arguments).replace("https://kubernetes.example.com:6443", api)
        arguments = re.sub(r"\S+:9133", self.server.target, text).split("\n")
        conf = {
            "spark.kubernetes.driver.master": api,
            "spark.kubernetes.submission.waitAppCompletion": "false",
            "spark.driver.memory": "600m",
            "spark.executor.memory": "512m",
            "spark.jars": ",".join(f"local://{each}" for each in jars()),
        }
        settings = [text for each in conf.items() for text in ("--conf", "=".join(each))]
        events = [each.replace("orders", "events") for each in arguments[-1:]]
        command = [str(SPARK_HOME / "bin" / program), *settings, *arguments, *events]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def ended(self, run: int) -> str:
        """Wait for the driver of a run, and return how it ended and its log."""
        with self.api.watched("pods", is_driver) as events:
            drivers: dict[str, str] = {}
            while list(drivers.values()).count("Running") or len(drivers) < run:
                event = events.get(timeout=120)
                drivers[event["object"]["metadata"]["name"]] = event["object"].get("status", {}).get("phase", "Running")
        *_, name = drivers
        assert drivers[name] == "Succeeded", self.pods.log_of(name)
        return self.pods.log_of(name)

    def lake_rows(self, table: str) -> list[tuple[int, str]]:
        metadata = judges.newest_metadata(self.warehouse / "shop" / table)
        rows = judges.read(judges.DUCKDB, metadata, columns=("id", "name")).to_pylist()
        return sorted((each["id"], each["name"]) for each in rows)


def check(made: Object) -> None:
    """Refuse what Kubernetes would refuse."""
    kubernetes_validate.validate(json.loads(json.dumps(made)), "1.37", strict=True)


def is_driver(pod: Object) -> bool:
    return pod["metadata"]["labels"]["spark-role"] == "driver"


@pytest.fixture
@needs("system")
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    shop.server.start()
    yield shop
    for name in shop.pods.processes:
        shop.pods.stop(name)
    assert shop.server.stop() == 0


@pytest.fixture
def client(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[TieringClient]:
    with monkeypatch.context() as patched:
        patched.setenv("FLUSS_TIERING_TOKEN_FILE", str(shop.token))
        patched.setenv("FLUSS_TIERING_TLS_CA", str(shop.authority.cert))
        client = TieringClient(shop.server.target)
    with client:
        yield client


@pytest.mark.long
def test_rounds_run_in_pods_and_outlive_an_executor(shop: Shop, client: TieringClient) -> None:
    orders, events = (
        client.create_table(TablePath("shop", name), descriptor(primary_key=name == "orders", num_buckets=2))
        for name in TABLES
    )
    first = {each: f"name {each}" for each in range(20_000)}
    put(client, orders, first)
    put(client, events, first)
    with shop.api.serving() as address:
        shop.submit(address)
        shop.ended(1)
        assert shop.lake_rows("orders") == shop.lake_rows("events") == sorted(first.items())

        changed = dict.fromkeys(range(0, 20_000, 3), "changed")
        put(client, orders, changed)
        delete(client, orders, range(1, 20_000, 3))
        put(client, events, changed)
        with shop.api.watched("pods", lambda pod: not is_driver(pod)) as executors:
            shop.submit(address)
            while (event := executors.get(timeout=120))["object"].get("status", {}).get("phase") != "Running":
                pass
            os.killpg(shop.pods.processes[event["object"]["metadata"]["name"]].pid, signal.SIGKILL)
        shop.ended(2)
    left = {each: name for each, name in {**first, **changed}.items() if each % 3 != 1}
    assert shop.lake_rows("orders") == sorted(left.items())
    assert shop.lake_rows("events") == sorted([*first.items(), *changed.items()])
    assert shop.api.refused == []


def delete(client: TieringClient, table: TableInfo, ids: range) -> None:
    rows = pa.table({"id": list(ids), "name": [None] * len(ids)}, schema=SCHEMA)
    list(client.write_rows(table.path, WriteKind.DELETE, [rows]))
