"""The application under `spark-submit`, as the Airflow operator and a cluster start it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from spark_support import Tiering, named, submit_environment

from fluss_tiering.client import lease_latest_snapshots
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import application
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.submit import (
    APPLICATION,
    JARS_VARIABLE,
    application_arguments,
    conf_arguments,
    packages,
    spark_conf,
)


@pytest.mark.system
def test_a_submit_tiers_what_it_can_and_leaves_failures_to_the_status(tiering: Tiering):
    good, bad = tiering.table(), tiering.table(primary_key=False)
    for table in (good, bad):
        tiering.write(table, named(range(5), "row"))
    tiering.tier(bad)
    tiering.spark.sql(f"ALTER TABLE {tiering.name(bad)} DROP COLUMN name")
    acquired = lease_latest_snapshots(tiering.client, "submitted", [good.path, bad.path], 60_000)
    options = TierOptions(
        server=tiering.target,
        tables=(good.path, bad.path),
        lease_id="submitted",
        attempt_token=acquired.attempt_token,
        outcome_in_status=True,
    )
    arguments = application_arguments(options)
    conf = conf_arguments(spark_conf())
    # As YARN sets it for the applications that it runs.
    of_yarn = (
        f"spark.{application._YARN_FILTER}.param.PROXY_URI_BASES=http://rm:8088/proxy/app,http://rm2:8088/proxy/app"
    )

    submitted = subprocess.run(
        [
            Path(pyspark.__file__).parent / "bin" / "spark-submit",
            *(
                "--master",
                "local[2]",
                *conf,
                "--conf",
                "spark.ui.enabled=false",
                "--conf",
                of_yarn,
                APPLICATION,
                *arguments,
            ),
        ],
        env={**submit_environment(), "AIRFLOW_CTX_DAG_ID": "tier"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    output = submitted.stdout + submitted.stderr
    assert submitted.returncode == 0, output
    assert tiering.lake_rows(good) == sorted(named(range(5), "row").items())
    outcome = tiering.client.lease_outcome("submitted", acquired.attempt_token)
    assert {(each.path, each.state) for each in outcome.rounds} == {
        (good.path, TieringState.TIERED),
        (bad.path, TieringState.FAILED),
    }
    for each in outcome.rounds:  # E31
        assert each.origin is not None
        assert (each.origin.dag_id, each.origin.spark_ui_url) == ("tier", "http://rm:8088/proxy/app")
        assert each.origin.spark_application_id == each.driver.split()[0]
    assert f"{good.path}: Tiered: 5 rows in 1 file" in output
    assert f"{bad.path}: Failed: rounds cannot write to the lake table" in output


def test_the_packages_are_resolved_by_spark_unless_jars_are_at_hand():
    assert spark_conf({})["spark.jars.packages"] == ",".join(packages())
    at_hand = spark_conf({JARS_VARIABLE: "/a.jar,/b.jar"})
    assert at_hand["spark.jars"] == "/a.jar,/b.jar"
    assert "spark.jars.packages" not in at_hand


def test_workers_run_this_python_unless_told_otherwise():
    assert spark_conf({})["spark.pyspark.python"] == sys.executable
    assert spark_conf({"PYSPARK_PYTHON": "/opt/python"})["spark.pyspark.python"] == "/opt/python"


@pytest.mark.system
def test_what_builds_a_submit_loads_neither_spark_nor_arrow():
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, fluss_tiering.spark.submit; print(sorted({'pyspark', 'pyarrow', 'grpc'} & set(sys.modules)))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "[]"
