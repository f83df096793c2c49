"""What the arguments of a submit task become for spark-submit, and how wrong ones are told."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG
from provider_support import is_shown_alone

from airflow_provider_fluss.operators.lease import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussReleaseKvSnapshotLeaseOperator,
)
from airflow_provider_fluss.operators.maintenance import FlussVerifyOperator
from airflow_provider_fluss.operators.round import FlussTieringOperator
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor
from airflow_provider_fluss.tier_arguments import ARGUMENTS
from fluss_tiering.spark import submit
from fluss_tiering.spark.options import parse_arguments

YARN = json.dumps({"conn_type": "spark", "host": "yarn"})


def test_what_the_user_sets_in_spark_wins(spark, make, context, lease):
    called = spark("")
    make(lease, conf={"spark.scheduler.mode": "FIFO", "spark.executor.memory": "2g"}).execute(context("submit"))
    settings = [argument for argument in called() if argument.startswith("spark.")]
    assert "spark.scheduler.mode=FIFO" in settings
    assert "spark.scheduler.mode=FAIR" not in settings
    assert "spark.executor.memory=2g" in settings
    assert any(each.startswith("spark.pyspark.python=") for each in settings)


def test_a_spark_of_its_own_is_named_by_its_python(monkeypatch, spark, make, context, lease, tmp_path):
    monkeypatch.delenv(submit.JARS_VARIABLE, raising=False)
    called = spark("")
    own = tmp_path / "own environment"
    own.mkdir()
    (tmp_path / "spark-submit").rename(own / "spark-submit")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    python = own / "python"
    python.write_text("#!/bin/sh\necho 3.5.7\n")
    python.chmod(0o755)
    make(lease, conf={"spark.pyspark.python": str(python)}).execute(context("submit"))
    assert f"spark.pyspark.python={python}" in called()
    assert f"spark.jars.packages={','.join(submit.packages('3.5'))}" in called()
    # A Spark from an archive stands beside any Python.
    python.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(AirflowFailException, match="spark-submit is not on the PATH of this worker"):
        make(lease, conf={"spark.pyspark.python": str(python)}).execute(context("submit"))


def test_jars_and_packages_are_added_to_those_that_the_application_needs(monkeypatch, spark, make, context, lease):
    monkeypatch.delenv(submit.JARS_VARIABLE, raising=False)
    called = spark("")
    operator = make(lease, packages="a:b:1", jars="/x.jar", conf={"spark.jars.packages": "c:d:2"})
    operator.execute(context("submit"))
    assert f"spark.jars.packages=a:b:1,c:d:2,{','.join(submit.packages())}" in called()
    assert "spark.jars=/x.jar" in called()
    assert not {"--packages", "--jars"} & set(called())


GIVEN = {
    "claim_timeout": (timedelta(seconds=90), "7.5"),
    "max_round_bytes": (1000, "2kb"),
    "max_round_duration": (timedelta(minutes=3), "freshness"),
    "skip_missing_log": (True, "true"),
    "table_concurrency": (6, "9"),
    "worker_buffer_bytes": (1 << 20, "2 mb"),
}
"""An argument -> a value of it, and what a template may render."""


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (0, (90.0, 1000, "180000ms", 6, 1 << 20)),
        (1, (7.5, 2048, "freshness", 9, 2 << 20)),
    ],
)
def test_every_option_is_an_argument_of_the_same_name(spark, make, context, lease, which, expected):  # D65
    assert GIVEN.keys() == ARGUMENTS.keys() <= set(FlussTieringSparkOperator.template_fields)
    called = spark("")
    make(lease, **{name: values[which] for name, values in GIVEN.items()}).execute(context("submit"))
    options = parse_arguments(called()[called().index(str(submit.APPLICATION)) + 1 :])
    assert options.skip_missing_log
    assert expected == (
        options.claim_timeout_s,
        options.max_round_bytes,
        options.max_round_duration,
        options.table_concurrency,
        options.worker_buffer_bytes,
    )


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ({"max_round_bytes": 0}, "max_round_bytes: '0' is not a size of at least 1b"),
        ({"table_concurrency": "many"}, "table_concurrency: 'many' is not a whole number"),
        ({"skip_missing_log": "perhaps"}, "skip_missing_log: 'perhaps' is not true or false"),
        ({"max_round_duration": timedelta(microseconds=10)}, "max_round_duration: 0:00:00.000010 is shorter than one"),
        ({"max_round_duration": "3 weeks"}, "max_round_duration: '3 weeks' is not a duration"),
        ({"max_round_duration": timedelta(seconds=-5)}, "max_round_duration: -5 s is below 0"),
        ({"max_round_duration": -1}, "max_round_duration: '-1' is not a duration"),
        ({"conf": "a=b"}, "conf is 'a=b': expected a dict of Spark settings"),
        ({"files": 5}, "files is 5: expected a text, with commas between several"),
        ({"conn_id": 5}, "conn_id is 5: expected the id of an Airflow connection, as a text"),
        ({"conn_id": None}, "conn_id is None: expected the id of an Airflow connection, as a text"),
    ],
)
@pytest.mark.parametrize("rows", ["new rows", "no new rows"])
def test_a_wrong_option_is_named_and_not_tried_again(  # D65
    client, driver, spark, make, context, lease, tmp_path, argument, said, rows
):
    spark("")
    if rows == "no new rows":
        for table in lease["tables"]:
            driver.tier(lease, table)
    with pytest.raises(AirflowFailException, match=f"^{said}") as failed:
        make(lease, **argument).execute(context("submit"))
    assert is_shown_alone(failed.value)
    assert not (tmp_path / "calls.json").exists()
    # The sensor tells the same.
    assert said[:20] in client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason


def test_an_unknown_spark_connection_is_not_yarn(client, spark, make, context, lease, tmp_path):  # D63
    spark("")
    with pytest.raises(AirflowFailException, match=r"^Connection 'other' is not defined: .*'spark'") as failed:
        make(lease, conn_id="other").execute(context("submit"))
    assert is_shown_alone(failed.value)
    assert not (tmp_path / "calls.json").exists()
    # The sensor tells the same.
    reason = client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason
    assert reason is not None
    assert "Connection 'other' is not defined" in reason


def test_in_cluster_deploy_mode_the_engine_is_sent_along_unless_files_are_given(
    spark, make, context, lease, monkeypatch
):
    called = spark(
        "import zipfile; archive = zipfile.ZipFile(sys.argv[sys.argv.index('--py-files') + 1])\n"
        "assert 'fluss_tiering/spark/options.py' in archive.namelist()"
    )
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", YARN)
    make(lease, deploy_mode="cluster").execute(context("submit"))
    assert "--py-files" in called()
    called = spark("")
    make(lease, deploy_mode="cluster", py_files="own.zip").execute(context("submit"))
    assert called()[called().index("--py-files") + 1] == "own.zip"
    make(lease).execute(context("submit"))
    assert "--py-files" not in called()


@pytest.mark.parametrize(
    ("of_connection", "arguments", "is_in_cluster"),
    [
        ("cluster", {}, True),
        ("cluster", {"deploy_mode": "client"}, False),
        ("client", {"deploy_mode": "cluster"}, True),
        ("client", {"conf": {"spark.submit.deployMode": "cluster"}}, False),
        (None, {"conf": {"spark.submit.deployMode": "cluster"}}, True),
    ],
)
def test_the_deploy_mode_of_the_task_goes_before_that_of_the_connection(
    spark, make, context, lease, monkeypatch, of_connection, arguments, is_in_cluster
):
    called = spark("")
    extra = {} if of_connection is None else {"deploy-mode": of_connection}
    connection = {"conn_type": "spark", "host": "yarn", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    make(lease, **arguments).execute(context("submit"))
    assert ("--py-files" in called()) is is_in_cluster


def test_a_driver_on_the_cluster_gets_neither_python_nor_sqlite_of_this_machine(  # E16
    spark, make, context, lease, monkeypatch
):
    monkeypatch.delenv(submit.JARS_VARIABLE, raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", YARN)
    called = spark("")
    for mode in ("client", "cluster"):
        make(lease, deploy_mode=mode).execute(context("submit"))
        is_here = mode == "client"
        assert any(each.startswith("spark.pyspark.python=") for each in called()) is is_here
        (jars,) = [each for each in called() if each.startswith("spark.jars.packages=")]
        assert "org.apache.iceberg:" in jars
        assert ("sqlite" in jars) is is_here
    own = {"spark.pyspark.python": "./environment/bin/python"}
    make(lease, deploy_mode="cluster", conf=own).execute(context("submit"))
    assert "spark.pyspark.python=./environment/bin/python" in called()


@pytest.mark.parametrize(
    "connection",
    [
        {"conn_type": "spark", "host": "spark://master", "port": 7077, "extra": {"deploy-mode": "cluster"}},
        {"conn_type": "spark", "host": "master", "port": 7077, "extra": {"deploy-mode": "cluster"}},
        {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "cluster"}},
    ],
    ids=["standalone", "of a URI", "local"],
)
def test_a_master_that_runs_no_python_driver_is_refused_before_spark(  # E13
    client, spark, make, context, new_table, acquire, monkeypatch, tmp_path, connection
):
    spark("")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    said = r"^Spark runs no Python driver in deploy mode cluster with the master '(spark://master|local\[2\])'"
    table = new_table()
    lease = acquire(table)
    known = {each.lease_id for each in client.list_leases()}
    for task in (
        make(lease),
        FlussTieringOperator(task_id="tier", tables=[table]),
        FlussVerifyOperator(task_id="verify", tables=[table]),
    ):
        with pytest.raises(AirflowFailException, match=said) as failed:
            task.execute(context(task.task_id))
        assert is_shown_alone(failed.value)
    assert not (tmp_path / "calls.json").exists()
    # The lease of the acquire task is left to its teardown, and the sensor learns of the end.
    assert {each.lease_id for each in client.list_leases()} == known
    assert "deploy mode cluster" in client.lease_outcome(lease["lease_id"], lease["attempt_token"]).cancelled_reason


def test_yarn_in_cluster_mode_needs_no_further_argument(spark, make, context, lease, monkeypatch):
    called = spark("")
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "tier")
    make(lease).execute(context("submit"))
    assert "--lease-id" in called()
    # The driver, which runs elsewhere, learns which task submitted it.  # E31
    assert {
        "spark.yarn.appMasterEnv.AIRFLOW_CTX_DAG_ID=tier",
        "spark.yarn.appMasterEnv.AIRFLOW_CTX_MAP_INDEX=-1",
        "spark.kubernetes.driverEnv.AIRFLOW_CTX_DAG_ID=tier",
    } <= set(called())


# D67
@pytest.mark.parametrize(
    ("connection", "said"),
    [
        (None, "Connection 'other' is not defined"),
        ("spark://master:7077", "Connection 'other' is of the type 'spark': expected 'fluss'"),
        ("fluss://", "Connection 'other' has no host"),
    ],
)
def test_an_unusable_connection_is_one_line_and_one_try(monkeypatch, spark, make, context, lease, connection, said):
    spark("")
    if connection is not None:
        monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection)
    lease = {**lease, "fluss_conn_id": "other"}
    for task in (
        FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=lease["tables"], fluss_conn_id="other"),
        make(lease),
        FlussTieringStatusSensor(task_id="wait", lease=lease),
        FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=lease),
    ):
        with pytest.raises(AirflowFailException) as failed:
            task.execute(context(task.task_id))
        assert str(failed.value).startswith(said)
        assert "\n" not in str(failed.value)


def test_arguments_of_spark_submit_may_be_defaults_or_stand_beside_mapped_ones():
    with DAG("dag", default_args={"deploy_mode": "cluster"}):
        one = FlussTieringSparkOperator(task_id="one", lease=None, conf={"a": "b"})
        FlussTieringSparkOperator.partial(task_id="many", executor_memory="2g").expand(lease=[{}])
    assert one.submit_arguments == {"conf": {"a": "b"}, "deploy_mode": "cluster"}
    with pytest.raises(TypeError, match="deployment_mode"):
        FlussTieringSparkOperator(task_id="wrong", lease=None, deployment_mode="cluster")


def test_the_application_is_not_to_be_replaced(make):
    with pytest.raises(ValueError, match="application"):
        make(None, application="other.py")


# L23
