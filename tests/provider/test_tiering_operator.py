"""The submit, with a spark-submit that records how it was called; tests/system submits to Spark itself."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from provider_support import Driver

from airflow_provider_fluss.operators.lease import FlussReleaseKvSnapshotLeaseOperator
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from airflow_provider_fluss.outcome import Verdict, judge
from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.model.tiering import HeartbeatEntry, TieringState
from fluss_tiering.spark import submit
from needs import needs
from waiting import wait_until

AWAY = {"conn_type": "fluss", "host": "127.0.0.1", "port": 1, "extra": {"timeout": 1}}
"""A connection to a server that does not run."""

RECORD = """#!{python}
import json, pathlib, sys, time
pathlib.Path({calls!r}).write_text(json.dumps(sys.argv[1:]))
{behaviour}
"""


@pytest.fixture
@needs("system")
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[], list[str]]]:
    """Puts a spark-submit that behaves as given on the PATH; the answer reads the arguments of its last call."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    calls = tmp_path / "calls.json"

    def behave(behaviour: str) -> Callable[[], list[str]]:
        program = tmp_path / "spark-submit"
        program.write_text(RECORD.format(python=sys.executable, calls=str(calls), behaviour=behaviour))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return lambda: json.loads(calls.read_text())

    return behave


@pytest.fixture
def make(context):
    def operator(lease: object, **arguments: Any) -> FlussTieringSparkOperator:
        return FlussTieringSparkOperator(task_id="submit", lease=lease, **arguments)

    return operator


@pytest.fixture
def lease(new_table, acquire):
    return acquire(new_table(), new_table(primary_key=False))


def test_it_submits_the_application_with_the_lease(server, spark, make, context, lease):
    called = spark("")
    make(lease).execute(context("submit"))
    application = called().index(str(submit.APPLICATION))
    assert called()[:2] == ["--master", "local[2]"]
    assert called()[application + 1 :] == [
        *("--server", f"127.0.0.1:{server.port}"),
        *("--lease-id", lease["lease_id"]),
        *("--attempt-token", str(lease["attempt_token"])),
        *("--lease-duration-ms", str(lease["lease_duration_ms"])),
        "--outcome-in-status",
        *lease["tables"],
    ]


def test_tables_without_new_rows_are_not_given_to_spark(client, spark, make, context, new_table, acquire):  # D27
    unchanged, changed, running, new = (new_table() for _ in range(4))
    for table in (unchanged, changed, running):
        put_in_lake(client, TablePath.parse(table))
    rows = pa.table(
        {"id": [9], "name": ["new"]}, schema=pa.schema([pa.field("id", pa.int64(), False), ("name", "str")])
    )
    assert list(client.write_rows(TablePath.parse(changed), WriteKind.UPSERT, [rows])) == [1]
    lease = acquire(unchanged, changed, running, new)
    (survivor,) = client.claim_tables([TablePath.parse(running)], lease["lease_id"], lease["attempt_token"], "survivor")
    called = spark("")
    make(lease).execute(context("submit"))
    assert called()[-4:] == ["--outcome-in-status", changed, running, new]
    rounds = {each.path: each for each in client.lease_outcome(lease["lease_id"], lease["attempt_token"]).rounds}
    assert rounds[TablePath.parse(unchanged)].state is TieringState.TIERED
    assert rounds[TablePath.parse(running)].tiering_epoch == survivor.tiering_epoch
    assert rounds.keys() == {TablePath.parse(unchanged), TablePath.parse(running)}


def test_a_lease_without_new_rows_starts_no_spark_and_its_sensor_is_content(  # D27
    client, spark, make, context, new_table, acquire
):
    table = new_table()
    put_in_lake(client, TablePath.parse(table))
    lease = acquire(table)
    called = spark("")
    for _ in range(2):  # also in a second try of the task
        make(lease).execute(context("submit"))
    with pytest.raises(FileNotFoundError):
        called()
    outcome = client.lease_outcome(lease["lease_id"], lease["attempt_token"])
    assert judge(outcome, lease["tables"], lease["attempt_token"]).verdict is Verdict.TIERED


@pytest.mark.parametrize("cause", ["server away", "superseded"])
def test_who_cannot_tell_what_is_new_gives_all_to_spark(  # D27
    client, spark, make, context, new_table, acquire, monkeypatch, cause
):
    table = new_table()
    put_in_lake(client, TablePath.parse(table))
    lease = acquire(table)
    if cause == "superseded":
        client.acquire_lease(lease["lease_id"], 60_000, {}, allow_empty=True)
    else:
        monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", json.dumps(AWAY))
    called = spark("")
    make(lease).execute(context("submit"))
    assert called()[-1] == table


def put_in_lake(client: TieringClient, path: TablePath) -> None:
    """Register a lake snapshot with the whole log, as a round does."""
    (table,) = client.get_tables([path])
    (claim,) = client.claim_tables([path], "by hand", None, "driver")
    ends = {each.bucket: each.log_end_offset for each in client.list_buckets([path])[path]}
    offsets_path = client.prepare_lake_snapshot(table, claim.tiering_epoch, ends)
    client.commit_lake_snapshot(table, claim.tiering_epoch, 7, ends, offsets_path, "commit")
    client.heartbeat(finished=[HeartbeatEntry(table.table_id, claim.tiering_epoch)])


def test_what_the_user_sets_in_spark_wins(spark, make, context, lease):
    called = spark("")
    make(lease, conf={"spark.scheduler.mode": "FIFO", "spark.executor.memory": "2g"}).execute(context("submit"))
    settings = [argument for argument in called() if argument.startswith("spark.")]
    assert "spark.scheduler.mode=FIFO" in settings
    assert "spark.scheduler.mode=FAIR" not in settings
    assert "spark.executor.memory=2g" in settings
    assert any(each.startswith("spark.pyspark.python=") for each in settings)


def test_jars_and_packages_are_added_to_those_that_the_application_needs(monkeypatch, spark, make, context, lease):
    monkeypatch.delenv(submit.JARS_VARIABLE, raising=False)
    called = spark("")
    operator = make(lease, packages="a:b:1", jars="/x.jar", conf={"spark.jars.packages": "c:d:2"})
    operator.execute(context("submit"))
    assert f"spark.jars.packages=a:b:1,c:d:2,{','.join(submit.packages())}" in called()
    assert "spark.jars=/x.jar" in called()
    assert not {"--packages", "--jars"} & set(called())


def test_a_failure_without_a_try_left_is_passed_on_to_who_waits(client, spark, make, context, driver, lease):
    claim = driver.claim(lease, lease["tables"][0])
    spark("print('java.net.ConnectException: password=hunter2 refused'); sys.exit(1)")
    with pytest.raises(AirflowException, match="ConnectException"):
        make(lease).execute(context("submit", try_number=3, max_tries=2))
    outcome = client.lease_outcome(lease["lease_id"], lease["attempt_token"])
    assert "java.net.ConnectException" in (outcome.cancelled_reason or "")
    assert "hunter2" not in (outcome.cancelled_reason or "")
    assert [(each.table_id, each.state) for each in outcome.rounds] == [(claim.table_id, TieringState.FAILED)]


def test_a_failure_with_tries_left_leaves_the_attempt_to_the_next(client, spark, make, context, driver, lease):
    driver.claim(lease, lease["tables"][0])
    spark("sys.exit(1)")
    with pytest.raises(AirflowException):
        make(lease).execute(context("submit", try_number=2, max_tries=2))
    outcome = client.lease_outcome(lease["lease_id"], lease["attempt_token"])
    assert outcome.cancelled_reason is None
    assert [each.state for each in outcome.rounds] == [TieringState.TIERING]


@pytest.mark.parametrize(("try_number", "cancelled"), [(1, False), (3, True)])
def test_a_kill_ends_the_program_and_without_a_try_left_the_attempt(
    client, spark, make, context, lease, tmp_path, try_number, cancelled
):
    spark("print('started', flush=True); time.sleep(60)")
    operator = make(lease)
    errors: list[Exception] = []

    def execute() -> None:
        try:
            operator.execute(context("submit", try_number=try_number, max_tries=2))
        except AirflowException as error:
            errors.append(error)

    task = threading.Thread(target=execute)
    task.start()
    wait_until((tmp_path / "calls.json").exists)
    operator.on_kill()
    task.join(60)
    assert not task.is_alive()
    assert errors
    reason = client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason
    assert (reason == "task submit was killed") is cancelled
    assert (reason is None) is not cancelled


def test_without_a_lease_nothing_is_submitted(spark, make, context, tmp_path):
    spark("")
    with pytest.raises(AirflowFailException, match="no lease to tier under"):
        make(None).execute(context("submit"))
    assert not (tmp_path / "calls.json").exists()


def test_the_application_is_not_to_be_replaced(make):
    with pytest.raises(ValueError, match="application"):
        make(None, application="other.py")


# L23
@pytest.mark.parametrize("old", [{}, {"lease_id": "an earlier version's"}, {"attempt_token": 3}])
def test_an_xcom_of_an_older_format_gets_a_fresh_lease_and_goes_on(
    server, spark, make, context, new_table, client, old
):
    """Its id is that of the sensor and of the release, too; the application leases what it needs."""
    called = spark("")
    table = new_table()
    value = {"tables": [table], **old}
    make(value).execute(context("submit"))
    arguments = called()
    assert "--attempt-token" not in arguments
    lease_id = arguments[arguments.index("--lease-id") + 1]
    assert lease_id not in old.values()
    sensor = FlussTieringStatusSensor(task_id="wait", lease=value, deferrable=False, poke_interval=0.1)
    assert not sensor.poke(context("wait")).is_done

    driver = Driver(client)
    driver.finish(driver.claim({"lease_id": lease_id, "attempt_token": None}, table))

    assert sensor.poke(context("wait")).is_done
    FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=value).execute(context("release"))
    assert client.list_leases(lease_id) == []
