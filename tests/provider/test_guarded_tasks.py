"""The tasks of a DAG against a server that asks who calls, and what `spark-submit` is given of the credentials."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from guarded_server import GuardedServer

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.operators.lease import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussReleaseKvSnapshotLeaseOperator,
)
from airflow_provider_fluss.operators.maintenance import FlussVerifyOperator
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor
from airflow_provider_fluss.triggers.status import FlussTieringStatusTrigger
from cases import cases
from engine_support import descriptor
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath

TABLE = "db.guarded"
RECORD = """
import os, stat
file = os.environ.get("FLUSS_TIERING_TOKEN_FILE")
seen = {"environment": dict(os.environ)}
if file and os.path.exists(file):
    seen["token"] = open(file).read()
    seen |= {"mode": os.stat(file).st_mode, "folder": os.stat(os.path.dirname(file)).st_mode}
pathlib.Path("SEEN").write_text(json.dumps(seen))
"""
"""What a `spark-submit` records of its environment."""
TIER = """
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import HeartbeatEntry, TieringStats
from fluss_tiering.spark.options import parse_arguments
names = [each.endswith("application.py") for each in sys.argv]
options = parse_arguments(sys.argv[names.index(True) + 1:])
with TieringClient(options.server) as client:
    for claim in client.claim_tables(options.tables, options.lease_id, options.attempt_token, "an application"):
        done = HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=TieringStats(3, 300, 1, 42))
        client.heartbeat(finished=[done])
"""
"""What an application does to the server, with the credentials of its environment."""


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedServer]:
    # Operators on this machine must not find the token of the test by accident.
    for name in [name for name in os.environ if name.startswith("FLUSS_TIERING_T")]:
        monkeypatch.delenv(name)
    with GuardedServer(tmp_path / "guarded") as server, server.client("admin") as admin:
        admin.create_table(TablePath.parse(TABLE), descriptor())
        monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", server.connection(server.tokens["tierer"]))
        yield server


@pytest.fixture
def recorded(spark: Callable[[str], Callable[[], list[str]]], tmp_path: Path) -> Callable[[str], Callable[[], Any]]:
    """Puts a `spark-submit` on the PATH that records its environment, and then does what is given."""

    def behave(behaviour: str) -> Callable[[], Any]:
        called = spark(RECORD.replace("SEEN", str(tmp_path / "seen.json")) + behaviour)
        return lambda: {"arguments": called(), **json.loads((tmp_path / "seen.json").read_text())}

    return behave


def secret_of(token: str) -> str:
    return token.split("_", 2)[2]


@pytest.mark.parametrize("way", ["password", "token_file"])
async def test_the_four_tasks_run_as_a_tierer(guarded, recorded, context, acquire, monkeypatch, tmp_path, way):
    token = guarded.tokens["tierer"]
    if way == "token_file":
        (tmp_path / "token").write_text(token)
        monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", guarded.connection(token_file=str(tmp_path / "token")))
    # Another token of the worker does not count.
    monkeypatch.setenv("FLUSS_TIERING_TOKEN", "flt_000000000000_wrong")
    seen = recorded(TIER)
    lease = acquire(TABLE)
    task = FlussTieringSparkOperator(task_id="submit", lease=lease)
    submitting = context("submit")
    task.execute(submitting)
    trigger = FlussTieringStatusTrigger(lease, 0.1, 30)
    (event,) = [each async for each in trigger.run()]
    assert event.payload["verdict"] == "tiered"
    FlussTieringStatusSensor(task_id="wait", lease=lease, deferrable=False).execute(context("wait"))
    FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=lease).execute(context("release"))
    with guarded.client("admin") as admin:
        assert admin.list_leases(lease["lease_id"]) == []
    known = seen()
    file = Path(known["environment"]["FLUSS_TIERING_TOKEN_FILE"])
    assert known["token"] == token
    assert known["environment"]["FLUSS_TIERING_TOKEN"] == ""
    if way == "password":
        assert (stat.S_IMODE(known["mode"]), stat.S_IMODE(known["folder"])) == (0o600, 0o700)
        assert not file.parent.exists(), "the file lasts as long as the driver"
    else:
        assert file == tmp_path / "token"
    told = [
        known["arguments"],
        known["environment"],
        submitting["ti"].pushed,
        lease,
        trigger.serialize(),
        {name: getattr(task, name, None) for name in task.template_fields},
    ]
    assert secret_of(token) not in repr(told)


@cases(("token", "said"), [("reader", "identity lacks a role"), ("wrong", "does not know who calls")])
def test_a_lease_that_the_server_refuses_is_not_asked_for_again(guarded, acquire, monkeypatch, token, said):
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", guarded.connection(guarded.tokens.get(token, token)))
    with pytest.raises(AirflowFailException, match=f"^Connection 'fluss_default': The .*{said}: "):
        acquire(TABLE)


def test_nothing_of_the_credentials_is_on_the_command_line_for_yarn(guarded, recorded, context, acquire, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "yarn"}))
    seen = recorded(TIER)
    task = FlussTieringSparkOperator(task_id="submit", lease=acquire(TABLE), env_vars={"OF_USER": "1"})
    task.execute(context("submit"))
    known = seen()
    assert "spark.yarn.appMasterEnv.OF_USER=1" in known["arguments"]
    assert "FLUSS_TIERING_T" not in repr(known["arguments"])
    assert known["environment"]["OF_USER"] == "1"
    assert known["token"] == guarded.tokens["tierer"]


def test_a_driver_on_the_cluster_gets_paths_and_no_token(guarded, recorded, context, acquire, monkeypatch, tmp_path):
    yarn = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(yarn))
    seen = recorded("")
    lease = acquire(TABLE)
    with pytest.raises(AirflowFailException, match="Add driver_token_file to its extra, with a file") as error:
        FlussTieringSparkOperator(task_id="submit", lease=lease).execute(context("submit"))
    assert secret_of(guarded.tokens["tierer"]) not in str(error.value)
    with pytest.raises(FileNotFoundError):
        seen()
    with pytest.raises(AirflowFailException, match="Add driver_token_file"):
        FlussVerifyOperator(task_id="verify", tables=[TABLE], name="verify").execute(context("verify"))
    (tmp_path / "token").write_text(guarded.tokens["tierer"])
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", guarded.connection(token_file=str(tmp_path / "token")))
    verify = FlussVerifyOperator(task_id="verify", tables=[TABLE], name="verify")
    verify.execute(context("verify"))
    given = [each.partition(".appMasterEnv.")[2] for each in seen()["arguments"] if ".appMasterEnv.FLUSS_" in each]
    assert set(given) == {
        f"FLUSS_TIERING_TOKEN_FILE={tmp_path / 'token'}",
        f"FLUSS_TIERING_TLS_CA={guarded.authority.cert}",
        "FLUSS_TIERING_TLS=true",
    }


def test_a_driver_on_the_cluster_may_have_an_address_and_a_token_of_its_own(  # E14
    guarded, recorded, context, acquire, monkeypatch
):
    yarn = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(yarn))
    own = {"driver_server": "tiering.internal:9133", "driver_token_file": "/etc/fluss-tiering/token"}
    lease = acquire(TABLE)
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", guarded.connection(guarded.tokens["tierer"], **own))
    seen = recorded("")
    for task in (
        FlussTieringSparkOperator(task_id="submit", lease=lease),
        FlussVerifyOperator(task_id="verify", tables=[TABLE], name="verify"),
    ):
        task.execute(context(task.task_id))
        arguments = seen()["arguments"]
        assert arguments[arguments.index("--server") + 1] == "tiering.internal:9133"
        assert "spark.yarn.appMasterEnv.FLUSS_TIERING_TOKEN_FILE=/etc/fluss-tiering/token" in arguments
        assert guarded.tokens["tierer"] not in repr(seen())
    more = {"driver_has_credentials": True}
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", guarded.connection(guarded.tokens["tierer"], **own, **more))
    FlussVerifyOperator(task_id="verify", tables=[TABLE], name="verify").execute(context("verify"))
    assert "FLUSS_TIERING_" not in repr(seen()["arguments"])
    # A driver of this machine reaches the server as its tasks do.
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "yarn"}))
    seen = recorded(TIER)
    FlussTieringSparkOperator(task_id="submit", lease=lease).execute(context("submit"))
    assert seen()["token"] == guarded.tokens["tierer"]


@cases(
    ("extra", "said"),
    [
        ({"driver_server": "tiering"}, "a wrong driver_server in its extra .*expected HOST:PORT"),
        ({"driver_server": 9133}, "a wrong driver_server in its extra .*expected a text HOST:PORT"),
        (
            {"driver_token_file": "token"},
            "driver_token_file 'token' in its extra: expected the absolute path of a file",
        ),
        ({"driver_tokenfile": "/token"}, "'driver_tokenfile' in its extra: expected 'driver_token_file'"),
    ],
)
def test_a_wrong_field_for_drivers_is_named(guarded, recorded, context, acquire, monkeypatch, extra, said):  # E14
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "yarn"}')
    recorded("")
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", guarded.connection(guarded.tokens["tierer"]))
    lease = acquire(TABLE)
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", guarded.connection(guarded.tokens["tierer"], **extra))
    task = FlussTieringSparkOperator(task_id="submit", lease=lease, deploy_mode="cluster")
    with pytest.raises(AirflowFailException, match=f"^Connection 'fluss_default' has {said}"):
        task.execute(context("submit"))


def test_no_file_with_the_token_is_left_of_a_submit_that_fails(
    guarded, recorded, context, acquire, monkeypatch, tmp_path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    seen = recorded("sys.exit(1)")
    with pytest.raises(Exception, match="Spark could not tier"):
        FlussTieringSparkOperator(task_id="submit", lease=acquire(TABLE)).execute(context("submit"))
    assert Path(seen()["environment"]["FLUSS_TIERING_TOKEN_FILE"]).is_relative_to(tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []


@cases("role", ["reader", "tierer", "operator"])
def test_each_role_may_do_what_the_documentation_says(guarded, context, monkeypatch, role):
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", guarded.connection(guarded.tokens[role]))

    def allowed(step: Callable[[], object]) -> bool:
        try:
            step()
        except (AirflowFailException, FlussTieringError) as error:
            if "takes the role" not in str(error):
                raise
            return False
        return True

    def acquired() -> Any:
        return FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=[TABLE]).execute(context("acquire"))

    assert allowed(FlussHook().list_tiering_statuses)
    assert allowed(acquired) is (role != "reader")
    assert allowed(lambda: FlussHook().resume_tables([TABLE])) is (role == "operator")
