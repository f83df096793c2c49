"""Submits by an operator of another provider, which does what a test says, and once by Spark itself."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowTaskTimeout, TaskDeferred
from airflow.sdk import DAG, BaseOperator, BaseOperatorLink
from airflow.triggers.testing import SuccessTrigger
from airflow_names import DagSerialization
from provider_support import Driver, is_shown_alone

from airflow_provider_fluss import ways
from airflow_provider_fluss.links import SparkUiLink
from airflow_provider_fluss.operators.maintenance import FlussVerifyOperator
from airflow_provider_fluss.operators.round import FlussTieringOperator
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from airflow_provider_fluss.operators.way_submit import WaySubmit, merge
from airflow_provider_fluss.ways import Way
from fluss_tiering.client import TieringClient
from fluss_tiering.model.submit_request import SubmitRequest
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.options import TierOptions, parse_arguments
from fluss_tiering.spark.submit import APPLICATION, spark_version, write_package

Does = Callable[["Platform"], object]


class Link(BaseOperatorLink):
    """Leads to the job of an operator that has begun one."""

    name = "Job"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        assert ti_key.task_id == operator.task_id
        return f"https://platform/{operator.job}"


class Platform(BaseOperator):
    """An operator of another provider."""

    operator_extra_links = (Link(),)
    does: Does = staticmethod(lambda _: None)
    killed = False

    def __init__(self, *, request: SubmitRequest, deferrable: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.request = request
        self.deferrable = deferrable
        self.durable = True

    @property
    def options(self) -> TierOptions:
        return parse_arguments(list(self.request.args))

    @property
    def lease(self) -> dict[str, Any]:
        return {"lease_id": self.options.lease_id, "attempt_token": self.options.attempt_token}

    def execute(self, context: Any) -> None:
        if self.deferrable:
            self.job = 7
            self.defer(trigger=SuccessTrigger(), method_name="complete", kwargs={"job": 7})
        type(self).does(self)

    def complete(self, context: Any, job: int, event: str) -> None:
        assert (job, event) == (7, "done")
        self.job = 8
        type(self).does(self)

    def on_kill(self) -> None:
        self.killed = True


def by_platform(**arguments: Any) -> Way:
    return Way(Platform, lambda request: {"request": request}, "s3://code/fluss", "3.5", arguments=arguments)


@pytest.fixture
def context(context):
    """A context whose task finds what it has pushed."""

    def make(*args: Any, **kwargs: Any) -> dict[str, Any]:
        made = context(*args, **kwargs)
        made["ti"].xcom_pull = lambda task_ids, key, map_indexes: made["ti"].pushed.get(key)
        return made

    return make


@pytest.fixture(autouse=True)
def driver_server(server, monkeypatch):
    """A connection whose server has an address for drivers."""
    extra = {"driver_server": f"localhost:{server.port}"}
    connection = {"conn_type": "fluss", "host": "127.0.0.1", "port": server.port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", json.dumps(connection))


@pytest.fixture
def tiers(client, monkeypatch) -> list[Platform]:
    """Lets the platform tier all tables, and tells which operators did so."""
    ran: list[Platform] = []

    def tier(platform: Platform) -> None:
        ran.append(platform)
        for table in platform.options.tables:
            Driver(client, "elsewhere").tier(platform.lease, str(table))

    monkeypatch.setattr(Platform, "does", tier)
    return ran


def one_task(table: str, **arguments: Any) -> FlussTieringOperator:
    return FlussTieringOperator(task_id="tier", tables=[table], poke_interval=0.1, **arguments)


def leases(client: TieringClient) -> set[str]:
    return {each.lease_id for each in client.list_leases()}


def test_the_operator_gets_a_request_without_anything_of_this_machine(
    server, tiers, context, new_table, monkeypatch, caplog
):
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "of-the-test")
    extra = {"driver_server": "tiering:9133", "driver_token_file": "/etc/token", "allow_insecure": True}
    connection = {"conn_type": "fluss", "host": "127.0.0.1", "port": server.port, "password": "x" * 40, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", json.dumps(connection))
    way = replace(by_platform(), conf={"spark.executor.cores": "{{ 1 + 1 }}", "spark.jars.packages": "a:b:1"})
    with DAG("dag", render_template_as_native_obj=True) as dag:
        task = one_task(new_table(), submit=way)
    running = context("tier")
    task.render_template_fields({**running, "dag": dag, "task": task})
    (tiered,) = task.execute(running)
    assert tiered["status"] == "Tiered"
    (platform,) = tiers
    request = platform.request
    assert platform.options.server == "tiering:9133"
    assert request.main_file == "s3://code/fluss/application.py"
    assert (
        request.env.items()
        >= {
            "FLUSS_TIERING_TOKEN_FILE": "/etc/token",
            "AIRFLOW_CTX_DAG_ID": "of-the-test",
            "AIRFLOW_CTX_MAP_INDEX": "-1",
        }.items()
    )
    assert request.conf["spark.executor.cores"] == "2"
    assert [each.rpartition(":")[0] for each in request.packages] == [
        "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12",
        "a:b",
    ]
    assert not {"x" * 40, sys.executable, str(Path.cwd())} & set(json.dumps(request.__getstate__()).split('"'))
    assert platform.dag is dag
    assert dag.task_ids == ["tier"]
    assert platform.durable is False
    assert "cannot be called outside" not in caplog.text


def test_an_error_is_that_of_the_platform_and_the_last_try_leaves_nothing(client, context, new_table, monkeypatch):
    def fail(platform: Platform) -> None:
        Driver(client, "elsewhere").claim(platform.lease, str(platform.options.tables[0]))
        raise AirflowException("Job 7 failed: no quota\nDriver logs: https://logs")

    monkeypatch.setattr(Platform, "does", fail)
    task = one_task(new_table(), submit=by_platform())
    before = leases(client)
    with pytest.raises(AirflowException, match=r"could not tier db.t_\d+: Job 7 failed: no quota \(Platform\)$"):
        task.execute(context("tier"))
    assert leases(client) == before
    (ended,) = client.lease_outcome(task.lease["lease_id"], None).rounds
    assert ended.state is TieringState.FAILED


@pytest.mark.parametrize(
    ("try_number", "state", "reason"),
    [
        (1, "running", None),
        (3, "running", "task submit was killed"),
        (3, "restarting", None),
        (1, "success", "task submit was marked success"),
    ],
)
def test_a_kill_reaches_the_platform_and_ends_the_attempt_if_no_try_follows(
    client, context, lease, task_states, monkeypatch, try_number, state, reason
):
    begun, killed = threading.Event(), threading.Event()

    def wait(platform: Platform) -> None:
        begun.set()
        killed.wait(60)
        raise AirflowException("killed by somebody")

    monkeypatch.setattr(Platform, "does", wait)
    monkeypatch.setattr(Platform, "on_kill", lambda _: killed.set())
    task = FlussTieringSparkOperator(task_id="submit", lease=lease, submit=by_platform(), retries=2)
    with ThreadPoolExecutor(1) as pool:
        executed = pool.submit(task.execute, context("submit", try_number=try_number, max_tries=2))
        assert begun.wait(60)
        task_states["submit"] = state
        task.on_kill()
        error = executed.exception(60)
    assert isinstance(error, AirflowException)
    assert "killed" in str(error) or "marked" in str(error)
    assert "somebody" not in str(error)
    assert client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason == reason


def test_a_deferral_keeps_the_attempt_of_a_cleared_task_until_it_is_resumed(client, context, lease, tiers):
    client.cancel_tiering(lease["lease_id"], lease["attempt_token"], "task submit failed: no quota")
    client.drop_lease(lease["lease_id"], attempt_token=lease["attempt_token"])
    running = context("submit", try_number=4, max_tries=5)

    def task() -> FlussTieringSparkOperator:
        way = by_platform(deferrable=True)
        made = FlussTieringSparkOperator(task_id="submit", lease=lease, submit=way, retries=2)
        made.pre_execute(running)
        return made

    with pytest.raises(TaskDeferred) as deferred:
        task().execute(running)
    (held,) = [each for each in client.list_leases() if each.lease_id == lease["lease_id"]]
    assert running["ti"].pushed["_link_SparkUiLink"] == "https://platform/7"
    resumed = task()
    resumed.resume_execution(deferred.value.method_name, {**deferred.value.kwargs, "event": "done"}, running)
    assert resumed.lease["attempt_token"] > lease["attempt_token"]
    assert tiers[0].lease["attempt_token"] == resumed.lease["attempt_token"]
    assert list(map(str, tiers[0].options.tables)) == lease["tables"]
    assert held.lease_id not in leases(client)
    assert SparkUiLink().get_link(resumed, ti_key=None) == "https://platform/8"


def test_the_one_task_goes_on_after_a_deferral_and_cancels_if_its_trigger_failed(client, context, new_table, tiers):
    for is_last, method, kwargs in ((False, "complete", None), (False, "__fail__", {}), (True, "__fail__", {})):
        task = one_task(new_table(), submit=by_platform(deferrable=True))
        running = context("tier", max_tries=0 if is_last else 1)
        with pytest.raises(TaskDeferred) as deferred:
            task.execute(running)
        lease_id = task.lease["lease_id"]
        assert client.lease_outcome(lease_id, None).cancelled_reason is None
        if kwargs is None:
            arguments = {**deferred.value.kwargs, "event": "done"}
            (tiered,) = one_task(task.tables[0], submit=by_platform()).resume_execution(method, arguments, running)
            assert tiered["status"] == "Tiered"
            assert lease_id not in leases(client)
            continue
        with pytest.raises(AirflowException, match=r"could not tier .*Trigger (failure|timeout).* \(Platform\)$"):
            one_task(task.tables[0], submit=by_platform()).resume_execution(
                method, {"error": "Trigger timeout"}, running
            )
        cancelled = client.lease_outcome(lease_id, None).cancelled_reason
        assert (cancelled is not None) is is_last
        assert (lease_id in leases(client)) is not is_last


def test_a_time_out_releases_what_a_cleared_task_began(client, context, lease, monkeypatch):
    client.cancel_tiering(lease["lease_id"], lease["attempt_token"], "task submit failed: no quota")

    def time_out(platform: Platform) -> None:
        raise AirflowTaskTimeout("Timeout")

    monkeypatch.setattr(Platform, "does", time_out)
    task = FlussTieringSparkOperator(task_id="submit", lease=lease, submit=by_platform(), retries=2)
    with pytest.raises(AirflowTaskTimeout):
        task.execute(context("submit", try_number=4, max_tries=5))
    assert lease["lease_id"] not in leases(client)


def test_what_no_retry_can_mend_is_one_line_and_leaves_no_lease(server, client, context, new_table, monkeypatch):
    table = new_table()
    before = leases(client)
    livy = ways.livy("s3://code", "3.5", livy_conn_id="livy")
    for way, said in (
        (replace(by_platform(), operator="no.such.provider.Operator"), r"^no.such.provider.Operator cannot be importe"),
        (replace(by_platform(), operator="airflow.Missing"), "airflow.Missing cannot be imported .*: install the prov"),
        (replace(livy, operator=Platform), "^Platform refuses its arguments: missing keyword argument 'request'"),
        (livy, r": install apache-airflow-providers-apache-livy on the workers$"),
        (ways.emr_steps("s3://code", "3.5"), r": install apache-airflow-providers-amazon on the workers$"),
        (by_platform(unknown=1), "^Platform refuses its arguments: Invalid arguments were .*were: unknown$"),
        (replace(by_platform(), to_arguments=Mock(side_effect=ValueError)), "^Platform refuses .*: ValueError$"),
        (replace(by_platform(), operator="pathlib.Path"), r"^pathlib.Path cannot be imported \(.* is no operator"),
        (replace(by_platform(), to_arguments=lambda _: {}["no"]), "^Platform refuses its arguments: 'no'"),
    ):
        for task in (one_task(table, submit=way), FlussVerifyOperator(task_id="tier", tables=[table], submit=way)):
            with pytest.raises(AirflowFailException, match=said) as failed:
                task.execute(context("tier", max_tries=2))
            assert is_shown_alone(failed.value)
            assert "\n" not in str(failed.value)
    empty = one_task(table, submit=by_platform())
    empty.submit_arguments["package"] = ""
    with pytest.raises(AirflowFailException, match=r"^package is '': expected an address"):
        empty.execute(context("tier", max_tries=2))
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", f"fluss://127.0.0.1:{server.port}")
    for said in ("expected driver_server in the extra", "add driver_token_file to its extra"):
        with pytest.raises(AirflowFailException, match=f"(?i){said}"):
            one_task(table, submit=by_platform()).execute(context("tier", max_tries=2))
        connection = {"password": "x" * 40, "extra": {"driver_server": "tiering:9133"}}
        connection |= {"conn_type": "fluss", "host": "127.0.0.1", "port": server.port}
        monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", json.dumps(connection))
    assert leases(client) == before


def test_a_task_that_was_killed_before_it_submits_leaves_nothing(client, context, new_table, task_states, tiers):
    before = leases(client)
    task = one_task(new_table(), submit=by_platform())
    task_states["tier"] = "failed"
    # As from the handler of a signal, while the lease is acquired.
    task.on_kill()
    with pytest.raises(AirflowFailException, match="was marked failed"):
        task.execute(context("tier", max_tries=2))
    verify = FlussVerifyOperator(task_id="tier", tables=[new_table()], submit=by_platform())
    verify.on_kill()
    with pytest.raises(AirflowException, match="was killed"):
        verify.execute(context("tier", max_tries=2))
    assert tiers == []
    assert leases(client) == before


def test_texts_that_hold_several_values_are_added_to():
    request = SubmitRequest("s3://code/application.py", ("s3://code/engine.zip",), (), {}, ("iceberg",), {})
    for way, name, expected in (
        (ways.spark_submit("s3://code", "3.5", packages="a:b:1"), "packages", "iceberg,a:b:1"),
        (ways.spark_submit("s3://code", "3.5", py_files="x.zip"), "py_files", "s3://code/engine.zip,x.zip"),
        (ways.spark_submit("s3://code", "3.5", py_files=None), "py_files", None),
    ):
        assert merge(way.to_arguments(request), way.arguments)[name] == expected


def test_packages_are_added_to_and_an_empty_text_leaves_all_out():
    for given, expected in (("a:b:1", 2), ("", 0)):
        way = replace(by_platform(), conf={"spark.jars.packages": given})
        assert len(WaySubmit(way, Mock())._request(APPLICATION, ()).packages) == expected


def test_a_dag_with_a_wrong_way_is_refused():
    with pytest.raises(ValueError, match="deploy_mode, conn_id cannot be set beside submit"):
        FlussVerifyOperator(task_id="v", tables=["a.b"], submit=by_platform(), deploy_mode="cluster", conn_id="mine")
    with DAG("dag", default_args={"conn_id": "mine", "deploy_mode": "cluster"}):
        task = FlussVerifyOperator(task_id="v", tables=["a.b"], submit=by_platform())
        with pytest.raises(ValueError, match="conn_id cannot be set beside submit"):
            FlussVerifyOperator(task_id="w", tables=["a.b"], submit=by_platform(), conn_id="other")
    assert task.submit_arguments == {"package": "s3://code/fluss", "conf": {}, "arguments": {}}
    with pytest.raises(ValueError, match=r"^submit is 'emr': expected a Way"):
        FlussVerifyOperator(task_id="v", tables=["a.b"], submit="emr")
    with pytest.raises(ValueError, match=r"^spark_version is 3.5: expected '3.5', as a text"):
        ways.livy("s3://code", 3.5)
    with pytest.raises(ValueError, match=r"^Spark 3.4 is not supported"):
        ways.livy("s3://code", "3.4")
    with pytest.raises(ValueError, match=r"^conf is '--conf a=b': expected a dict"):
        ways.livy("s3://code", "3.5", "--conf a=b")
    with pytest.raises(ValueError, match="new_cluster is missing"):
        ways.databricks_submit_run("/Volumes/code", "3.5", existing_cluster_id="1")


def test_a_dag_with_ways_is_serialized_the_same_each_time():
    def serialized() -> object:
        with DAG("dag", schedule=None) as dag:
            FlussTieringSparkOperator(task_id="one", lease=None, submit=by_platform(of="{{ ds }}"))
            mapped = FlussTieringSparkOperator.partial(task_id="many", submit=ways.livy("s3://code", "3.5"))
            mapped.expand(lease=[{}])
        return DagSerialization.to_dict(dag)["dag"]["tasks"]

    assert serialized() == serialized()
    assert " at 0x" not in repr(serialized())


def test_the_maintenance_goes_the_same_way(client, context, new_table, monkeypatch):
    table = new_table()

    def fail(platform: Platform) -> None:
        assert platform.request.main_file.endswith("/maintenance_application.py")
        command, _, server, *_, named = platform.request.args
        assert (command, server.partition(":")[0], named) == ("verify", "localhost", table)
        raise ConnectionError("Job 7 failed")

    monkeypatch.setattr(Platform, "does", fail)
    running = context("verify")
    with pytest.raises(TaskDeferred):
        FlussVerifyOperator(task_id="verify", tables=[table], submit=by_platform(deferrable=True)).execute(running)
    task = FlussVerifyOperator(task_id="verify", tables=[table], submit=by_platform())
    with pytest.raises(AirflowException, match=f"^verify of {table} failed: Job 7 failed$"):
        task.resume_execution("complete", {"job": 7, "event": "done"}, running)


@pytest.mark.long
@pytest.mark.system
@pytest.mark.timeout(300)
def test_spark_runs_the_package(spark_jars, client, context, new_table, monkeypatch, tmp_path):
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    write_package(tmp_path)
    way = ways.spark_submit(str(tmp_path), spark_version(), {"spark.ui.enabled": "false", "spark.jars": spark_jars})

    whole = way.to_arguments
    way = replace(way, to_arguments=lambda request: {**whole(request), "packages": None})  # which is among the jars
    table = new_table()
    (tiered,) = one_task(table, submit=way).execute(context("tier"))
    assert (tiered["table"], tiered["status"], tiered["rows"]) == (table, "Tiered", 3)
    assert client.list_tiering_statuses(TablePath.parse(table))[0].state is not TieringState.FAILED
