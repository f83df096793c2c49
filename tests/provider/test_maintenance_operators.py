"""The maintenance operators, with a spark-submit that records how it was called, and once with Spark itself."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from provider_support import is_shown_alone

from airflow_provider_fluss.operators.maintenance import (
    FlussCompactOperator,
    FlussExpireSnapshotsOperator,
    FlussMaintainOperator,
    FlussVerifyOperator,
)
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark import submit

OPERATORS = [FlussCompactOperator, FlussExpireSnapshotsOperator, FlussVerifyOperator]


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        (FlussCompactOperator, {}, ["compact"]),
        (
            FlussCompactOperator,
            {"min_input_files": 3, "delete_files": "2"},
            ["compact", "--min-input-files", "3", "--delete-files", "2"],
        ),
        (FlussExpireSnapshotsOperator, {}, ["expire"]),
        (
            FlussExpireSnapshotsOperator,
            {"older_than": timedelta(days=2), "retain_last": 4},
            ["expire", "--older-than", "172800000ms", "--retain-last", "4"],
        ),
        (FlussExpireSnapshotsOperator, {"older_than": "36h"}, ["expire", "--older-than", "36h"]),
        (FlussVerifyOperator, {"limit": 5, "newer_than": "1d"}, ["verify", "--limit", "5", "--newer-than", "1d"]),
        (
            FlussMaintainOperator,
            {"max_bytes": "1gb", "cores": "2", "min_input_files": 3, "delete_files": 2},
            ["maintain", "--max-bytes", "1gb", "--cores", "2", "--min-input-files", "3", "--delete-files", "2"],
        ),
    ],
)
def test_every_option_reaches_the_application(server, spark, context, operator, arguments, expected):
    called = spark("")
    operator(task_id="maintain", tables=["db.a", "db.b", "db.a"], **arguments).execute(context("maintain"))
    command, *options = expected
    application = called().index(str(submit.MAINTENANCE_APPLICATION))
    assert called()[:2] == ["--master", "local[2]"]
    assert called()[application + 1 :] == [
        *(command, "--server", f"127.0.0.1:{server.port}"),
        *options,
        *("db.a", "db.b"),
    ]
    assert any(each.startswith("spark.pyspark.python=") for each in called())


@pytest.mark.parametrize(("arguments", "flags"), [({}, []), ({"all_tables": True}, ["--all"])])
def test_without_tables_those_are_maintained_that_ask_for_it_or_all(server, spark, context, arguments, flags):
    called = spark("")
    FlussMaintainOperator(task_id="maintain", **arguments).execute(context("maintain"))
    application = called().index(str(submit.MAINTENANCE_APPLICATION))
    assert called()[application + 1 :] == ["maintain", "--server", f"127.0.0.1:{server.port}", *flags]


@pytest.mark.parametrize("operator", [*OPERATORS, FlussMaintainOperator])
def test_every_argument_of_its_own_is_templated(operator):
    own = {
        "tables",
        "conn_id",
        "fluss_conn_id",
        "min_input_files",
        "delete_files",
        "older_than",
        "retain_last",
        "limit",
        "newer_than",
        "max_bytes",
        "cores",
    }
    task = operator(task_id="maintain", tables=["db.a"])
    assert {each for each in own if hasattr(task, each)} <= set(operator.template_fields)


@pytest.mark.parametrize(
    ("operator", "arguments", "message"),
    [
        (FlussCompactOperator, {"tables": "db.a"}, "expected a list of DATABASE.TABLE"),
        (FlussCompactOperator, {"tables": []}, "expected a list of DATABASE.TABLE"),
        (FlussVerifyOperator, {"tables": ["a"]}, "'a'"),
        (FlussCompactOperator, {"min_input_files": "many"}, "min_input_files is 'many': expected a whole number"),
        (FlussCompactOperator, {"delete_files": 0}, "^delete_files: 0 is not a whole number from 1 to 2147483647"),
        *[
            (operator, {name: 1 << 31}, f"^{name}: 2147483648 is not a whole number from {least} to 2147483647")
            for operator, name, least in [
                (FlussCompactOperator, "min_input_files", 2),
                (FlussExpireSnapshotsOperator, "retain_last", 1),
                (FlussVerifyOperator, "limit", 1),
                (FlussMaintainOperator, "cores", 1),
            ]
        ],
        (FlussExpireSnapshotsOperator, {"older_than": "soon"}, "'soon' is not a duration"),
        *[
            (operator, {"tables": wrong}, "tables (is|has) ")
            for operator in OPERATORS
            for wrong in ([None], [["db.a"]], 5, {"db.a": 1}, None)
        ],
        *[
            (FlussCompactOperator, {name: wrong}, f"{name} is {wrong}: expected a whole number")
            for name in ("min_input_files", "delete_files")
            for wrong in (None, 2.9, True, float("inf"), float("nan"))
        ],
        *[
            (FlussVerifyOperator, {"limit": wrong}, f"limit is {wrong}: expected a whole number")
            for wrong in (None, 2.9, True, float("inf"))
        ],
        (FlussExpireSnapshotsOperator, {"retain_last": 1.9}, "retain_last is 1.9: expected a whole number"),
        *[
            (FlussExpireSnapshotsOperator, {"older_than": wrong}, "^older_than.*expected")
            for wrong in (5, timedelta(seconds=-1), timedelta(microseconds=1), timedelta(microseconds=-1), "")
        ],
        (FlussMaintainOperator, {"tables": []}, "expected a list of DATABASE.TABLE with at least one table"),
        (FlussMaintainOperator, {"max_bytes": "much"}, "'much' is not a size"),
        (FlussMaintainOperator, {"max_bytes": 0}, "^max_bytes: '0' is too little: expected at least 1mb"),
        (FlussMaintainOperator, {"max_bytes": -1}, "^max_bytes: '-1' is not a size"),
        (FlussMaintainOperator, {"conn_id": 5}, "^conn_id is 5: expected the id of an Airflow connection"),
        (FlussMaintainOperator, {"fluss_conn_id": None}, "^fluss_conn_id is None: expected the id of"),
        (FlussMaintainOperator, {"conf": "a=b"}, "^conf is 'a=b': expected a dict of Spark settings"),
        (FlussMaintainOperator, {"files": 5}, "^files is 5: expected a text"),
        (FlussMaintainOperator, {"cores": "many"}, "cores is 'many': expected a whole number"),
        (FlussMaintainOperator, {"all_tables": True}, "leave out --all or the names"),
        (FlussVerifyOperator, {"application": "mine.py"}, "application cannot be set"),
    ],
)
def test_what_no_retry_can_mend_fails_at_once(server, spark, context, operator, arguments, message, tmp_path):
    spark("")
    with pytest.raises((AirflowFailException, ValueError), match=message) as failed:
        operator(**{"task_id": "maintain", "tables": ["db.a"], **arguments}).execute(context("maintain"))
    assert is_shown_alone(failed.value)
    assert not (tmp_path / "calls.json").exists()


def test_a_failure_is_told_in_the_applications_own_words(server, spark, context, new_table):
    line = "2026-01-01 00:00:00,000 ERROR fluss_tiering: compact failed for 1 of 2 tables: db.b: no space left"
    spark(f"print({line!r}); print('INFO ShutdownHookManager: Shutdown hook called'); sys.exit(1)")
    tables = [new_table(), new_table()]
    with pytest.raises(AirflowException) as error:
        FlussCompactOperator(task_id="maintain", tables=tables).execute(context("maintain"))
    assert not isinstance(error.value, AirflowFailException)
    assert str(error.value) == "compact failed for 1 of 2 tables: db.b: no space left"


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("wrong", ["missing", "switched off"])
def test_a_table_that_cannot_be_maintained_is_named_and_not_tried_again(
    client, spark, context, new_table, operator, wrong
):
    good, bad = new_table(), "db.missing"
    if wrong == "switched off":
        bad = new_table()
        client.alter_table(TablePath.parse(bad), {"table.datalake.enabled": "false"})
    called = spark("sys.exit(1)")
    with pytest.raises(AirflowFailException, match=f"no retry mends this: .*{bad}") as failed:
        operator(task_id="maintain", tables=[good, bad]).execute(context("maintain"))
    assert good not in str(failed.value).split("no retry mends this")[1]
    assert called()[-2:] == [good, bad]


def test_a_failure_without_words_names_all_tables(server, spark, context):
    spark("print('password=hunter2'); sys.exit(3)")
    with pytest.raises(AirflowException, match=r"verify of db\.a, db\.b failed: Cannot execute") as error:
        FlussVerifyOperator(task_id="maintain", tables=["db.a", "db.b"]).execute(context("maintain"))
    assert "hunter2" not in str(error.value)


@pytest.mark.long
@pytest.mark.system
def test_spark_itself_says_which_table_failed(server, spark_jars, context, new_table, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    table = new_table()
    with pytest.raises(
        AirflowException, match=rf"^compact failed for 1 of 1 table: {table}: nothing of the table is in the lake"
    ):
        FlussCompactOperator(task_id="maintain", tables=[table]).execute(context("maintain"))
