"""Secrets that are planted wherever one may be configured are found nowhere after rounds, failures and refusals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import sqlalchemy as sa
from traces import PAGES, Secrets, traced_spark

from engine_support import ServerProcess, new_table
from examples.ports import free_ports
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import TieringState
from token_support import add_tokens
from waiting import WAIT_S, wait_until

COMMAND = str(Path(sys.executable).with_name("fluss-tiering"))
IN_LAKE, IN_STORE = "planted-lake-key", "planted-store-password"
WRONG = "flt_000000000000_planted-wrong-token"
pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.spark, pytest.mark.postgres]


class Planted:
    """A server with secrets in all its settings, and tokens of each kind.

    Args:
        folder: The folder of its files.
        store: The URL of its database, with a password.
    """

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self._store = store
        self.events = folder / "events"
        self.events.mkdir()
        file = folder / "tokens.json"
        roles = {"in_env": ["operator"], "in_file": ["admin"], "in_airflow": ["tierer"], "reader": ["reader"]}
        self.tokens = add_tokens(file, roles)
        self.token_file = folder / "token of the admin"
        self.token_file.write_text(self.tokens["in_file"])
        self.defaults = folder.with_name("conf") / "spark-defaults.conf"
        self.defaults.parent.mkdir()
        self.defaults.write_text(f"spark.sql.catalog.of_user.credential id:{IN_LAKE}\n")
        self.warehouse = folder / "warehouse"
        catalog = {
            "type": "jdbc",
            "name": f"planted_{os.getpid()}",
            "uri": f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=30000",
            "jdbc.schema-version": "V1",
            "warehouse": f"file:{self.warehouse}",
            "s3.access-key-id": "not a secret",
            "s3.secret-access-key": IN_LAKE,
            "s3.session-token": IN_LAKE,
            "credential": f"id:{IN_LAKE}",
            "header.Authorization": f"Basic {IN_LAKE}",
            "adls.auth.shared-key.account.key": IN_LAKE,
            "proxy": f"https://user:{IN_LAKE}@proxy.example.com",
        }
        self.server = ServerProcess(
            folder / "server",
            FLUSS_TIERING_TOKENS_FILE=str(file),
            FLUSS_TIERING_LAKE_CATALOG=json.dumps(catalog),
            FLUSS_TIERING_STORE_URL=store,
            FLUSS_TIERING_AUDIT_LOG=str(folder / "audit.jsonl"),
            FLUSS_TIERING_AUDIT_LOG_CALLS="all",
        ).start()

    @property
    def secrets(self) -> Secrets:
        """What nobody may find: of tokens the part that is no id."""
        tokens = [text.split("_", 2)[2] for text in (*self.tokens.values(), WRONG)]
        return Secrets([*tokens, IN_LAKE, IN_STORE])

    def client(self, name: str = "in_file", token: str | None = None) -> TieringClient:
        if name == "in_file" and token is None:
            return TieringClient(self.server.target, security=ClientSecurity(token_file=self.token_file))
        return TieringClient(self.server.target, security=ClientSecurity(token=token or self.tokens[name]))

    def tables(self, client: TieringClient) -> tuple[TableInfo, TableInfo]:
        """Create a table that can be tiered, and one that cannot: a file is where its lake table should be."""
        good, bad = new_table(client, range(10), freshness="1s"), new_table(client, range(10), freshness="1s")
        in_the_way = self.warehouse.joinpath(*str(bad.path).split("."))
        in_the_way.parent.mkdir(parents=True, exist_ok=True)
        in_the_way.write_text("no folder")
        return good, bad

    def require_none_in_files(self) -> None:
        """Fail if a file has one of the secrets, except the file in which one was planted."""
        assert {"server.log", "audit.jsonl", "tokens.json"} <= self.secrets.require_none_in_files(
            self.folder, but=self.token_file
        )

    def require_none_in_database(self) -> None:
        """Fail if a row of the server's database has one of the secrets."""
        engine = sa.create_engine(self._store.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)
        with engine.connect() as connection:
            names = sa.inspect(connection).get_table_names()
            assert "tiering_rounds" in names, names
            for name in names:
                rows = connection.execute(sa.text(f'SELECT * FROM "{name}"')).all()
                self.secrets.require_none(f"the database's table {name}", repr(rows))


@pytest.fixture
def planted(tmp_path: Path, postgres_url: str, spark_jars: str) -> Iterator[Planted]:
    url = sa.make_url(postgres_url).set(password=IN_STORE).render_as_string(hide_password=False)
    assert IN_STORE in url
    (tmp_path / "planted").mkdir()
    running = Planted(tmp_path / "planted", url)
    try:
        yield running
    finally:
        running.server.kill()


def refusals(planted: Planted) -> list[str]:
    """Make calls that are refused, and return what the server says."""
    said = []
    calls: dict[ErrorCode, Callable[[], TieringClient]] = {
        ErrorCode.AUTHENTICATION: lambda: planted.client(token=WRONG),
        ErrorCode.AUTHORIZATION: lambda: planted.client("reader"),
    }
    for code, connect in calls.items():
        with connect() as client, pytest.raises(FlussTieringError) as refused:
            client.drop_lease("no lease")
        assert refused.value.code is code
        said += [str(refused.value), repr(refused.value)]
    return said


@pytest.mark.long
def test_drivers_that_fail_and_are_killed_leave_no_secret(planted: Planted) -> None:
    (ui_port,) = free_ports(1)
    conf = " ".join(f"--conf {key}={value}" for key, value in traced_spark(planted.events, ui_port).items())
    messages, secrets = planted.folder / "driver.log", planted.secrets
    with planted.client() as client, messages.open("wb") as told:
        good, bad = planted.tables(client)
        driver = subprocess.Popen(
            [COMMAND, "tier", "--drain", "--follow", "--server", planted.server.target, "--master", "local[1]"],
            env={
                **os.environ,
                "FLUSS_TIERING_TOKEN": planted.tokens["in_env"],
                "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell",
            },
            stdout=told,
            stderr=told,
        )
        started: list[psutil.Process] = []
        try:

            def seen() -> bool:
                assert driver.poll() is None, messages.read_text()
                (failed,) = client.list_tiering_statuses(bad.path)
                (tiered,) = client.list_tiering_statuses(good.path)
                return bool(tiered.last_tiered_time) and failed.state is TieringState.FAILED

            wait_until(seen, describe=messages.read_text)
            started = psutil.Process(driver.pid).children(recursive=True)
            names = secrets.require_none_in_processes(started)
            assert any(each.startswith("java") for each in names)
            assert any("worker_daemon" in each or "pyspark.daemon" in each for each in names)
            for page in PAGES:
                secrets.require_none_on_page(ui_port, page)
        finally:
            driver.send_signal(signal.SIGKILL)
            driver.wait(WAIT_S)
            psutil.wait_procs(started, WAIT_S)
        verified = subprocess.run(
            [COMMAND, "verify", str(good.path), "--server", planted.server.target, "--master", "local[1]"],
            env={
                **os.environ,
                "FLUSS_TIERING_TOKEN_FILE": str(planted.token_file),
                "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell",
                "SPARK_CONF_DIR": str(planted.defaults.parent),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert verified.returncode == 0, verified.stderr
        secrets.require_none("what verify prints", verified.stdout, verified.stderr)
        secrets.require_none("a refusal", *refusals(planted))
        secrets.require_none("a status", client.list_tiering_statuses(bad.path), client.list_tiering_rounds(bad.path))
        assert planted.server.process is not None
        secrets.require_none_in_processes(psutil.Process(planted.server.process.pid).children(recursive=True))
        secrets.require_none("the server's command line", psutil.Process(planted.server.process.pid).cmdline())
        with_token = urllib.request.Request(
            f"http://127.0.0.1:{planted.server.metrics_port}/metrics",
            headers={"Authorization": f"Bearer {planted.tokens['reader']}"},
        )
        with urllib.request.urlopen(with_token, timeout=WAIT_S) as answer:
            secrets.require_none("the metrics", answer.read().decode())
    logged = [each.read_text() for each in planted.events.rglob("events_*")]
    for part in ("SparkListenerSQLExecutionStart", ".s3.secret-access-key", ".of_user.credential"):
        assert any(part in each for each in logged), f"there is {part} in an event log"
    planted.require_none_in_files()
    planted.require_none_in_database()


@pytest.mark.airflow
@pytest.mark.long
def test_tasks_of_airflow_leave_no_secret(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    # Airflow reads its home when it is first imported.
    os.environ.setdefault("AIRFLOW_HOME", mkdtemp(prefix="airflow-home-"))
    from airflow_provider_fluss import (  # noqa: PLC0415 - the other test does not need Airflow
        FlussAcquireKvSnapshotLeaseOperator,
        FlussTieringSparkOperator,
    )

    connection = {"conn_type": "fluss", "host": "127.0.0.1", "port": planted.server.port}
    monkeypatch.setenv(
        "AIRFLOW_CONN_FLUSS_DEFAULT", json.dumps({**connection, "password": planted.tokens["in_airflow"]})
    )
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (ui_port,) = free_ports(1)
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(
        dag_id="dag",
        run_id="planted",
        task_id="submit",
        map_index=-1,
        try_number=1,
        max_tries=0,
        get_first_reschedule_date=lambda _: None,
        xcom_push=lambda key, value: pushed.update({key: value}),
    )
    context: Any = {"ti": ti, "run_id": ti.run_id}
    secrets = planted.secrets
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    with planted.client() as client, ThreadPoolExecutor(1) as pool:
        good, bad = planted.tables(client)
        tables = [str(good.path), str(bad.path)]
        lease = FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=tables).execute(context)
        task = FlussTieringSparkOperator(task_id="submit", lease=lease, conf=traced_spark(planted.events, ui_port))
        running = pool.submit(task.execute, context)
        names: set[str] = set()
        pages: set[str] = set()

        def ended() -> bool:
            new = [each for each in psutil.Process().children(recursive=True) if each.pid not in before]
            names.update(secrets.require_none_in_processes(new))
            for page in PAGES:
                with contextlib.suppress(OSError):
                    secrets.require_none_on_page(ui_port, page)
                    pages.add(page)
            return running.done()

        wait_until(ended)
        error = running.exception()
        assert error is not None, "one of the tables cannot be tiered"
        assert str(bad.path) in str(error)
        assert client.list_tiering_statuses(good.path)[0].last_tiered_time
        assert any(each.startswith("java") for each in names)
        secrets.require_none("XCom", pushed, lease)
        secrets.require_none("rendered fields", {name: getattr(task, name, None) for name in task.template_fields})
        secrets.require_none("the error of the task", str(error), repr(error), repr(error.__cause__))
    assert any(planted.events.iterdir()), "Spark wrote an event log"
    planted.require_none_in_files()
    planted.require_none_in_database()
