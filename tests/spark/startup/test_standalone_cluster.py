"""Rounds on a standalone Spark cluster of two workers, which have our requirements but not our package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from spark_support import Tiering, driver_environment, named
from standalone_support import python_without_engine, standalone_cluster

from fluss_tiering.spark.startup.shipping import make_archive

pytestmark = [pytest.mark.spark, pytest.mark.system]


def test_executors_of_a_cluster_get_this_package_from_the_application(tiering: Tiering, tmp_path: Path):
    tables = [tiering.table(num_buckets=2), tiering.table(primary_key=False, num_buckets=2)]
    for table in tables:
        tiering.write(table, named(range(50), "row"))
    python = python_without_engine(tmp_path)
    with standalone_cluster(tmp_path) as master:
        tiered = subprocess.run(
            [
                Path(sys.executable).with_name("fluss-tiering"),
                *("tier", "--server", tiering.target, "--master", master, "--json"),
                *(str(table.path) for table in tables),
            ],
            env={**driver_environment(), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    assert tiered.returncode == 0, tiered.stderr[-3000:]
    assert [(each["status"], each["rows"]) for each in json.loads(tiered.stdout)] == [("Tiered", 50)] * 2
    for table in tables:
        assert tiering.lake_rows(table) == sorted(named(range(50), "row").items())
    assert len(list(tmp_path.glob("work-*/app-*"))) == 2, "both workers ran executors"


def test_an_archive_has_the_package_and_the_module_that_spark_looks_for(tmp_path: Path):
    archive = make_archive(tmp_path)
    with zipfile.ZipFile(archive) as opened:
        names = set(opened.namelist())
    assert {"fluss_tiering/__init__.py", "fluss_tiering/spark/round/pieces.py", "pyspark_fluss.py"} <= names
    imported = "import fluss_tiering.spark.round.pieces as m; print(m.__file__)"
    run = subprocess.run(
        [sys.executable, "-c", imported],
        env={**os.environ, "PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert run.stdout.startswith(str(archive))
