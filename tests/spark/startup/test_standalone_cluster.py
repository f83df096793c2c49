"""Rounds on a standalone Spark cluster of two workers, which have our requirements but not our package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import urlparse

import pytest
from spark_support import Tiering, driver_environment, named

from fluss_tiering.lake.iceberg import library
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.submit import make_archive
from standalone_support import can_hide_folders, python_without_engine, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.system]


# Four applications start their own executors one after the other.
@pytest.mark.long
@pytest.mark.timeout(900)
def test_executors_of_other_commands_get_this_package_too(tiering: Tiering, tmp_path: Path):
    tables = [tiering.table(num_buckets=2), tiering.table(primary_key=False, num_buckets=2)]
    for table in tables:
        tiering.write(table, named(range(50), "row"))
    with standalone_cluster(tmp_path) as master:
        tiered = tier_on(master, tiering, tmp_path, *tables)
        assert tiered.returncode == 0, tiered.stderr[-3000:]
        assert len(list(tmp_path.glob("work-*/app-*"))) == 2, "both workers ran executors"
        python = tmp_path / "python"
        audits = [run_on(master, tiering, python, "verify", table) for table in tables]
        compacted = run_on(master, tiering, python, "compact", *tables)

    assert [(each["status"], each["rows"]) for each in json.loads(tiered.stdout)] == [("Tiered", 50)] * 2
    for table in tables:
        assert tiering.lake_rows(table) == sorted(named(range(50), "row").items())
    for audit in audits:
        assert audit.returncode == 0, audit.stderr[-3000:]
        assert [each["equal"] for each in json.loads(audit.stdout)] == [True]
    assert compacted.returncode == 0, compacted.stderr[-3000:]


# D48
@pytest.mark.long
def test_a_folder_that_the_executors_do_not_share_is_refused_and_nothing_is_committed(tiering: Tiering, tmp_path: Path):
    if not can_hide_folders():
        pytest.skip("needs the right to mount")
    # The executors do not see the first table's folder. Of the second, they see all but the folder of the data.
    tables = [tiering.table(primary_key=primary_key, num_buckets=2) for primary_key in (True, False)]
    for table in tables:
        tiering.tier(table)
        tiering.write(table, named(range(50), "row"))
    warehouse = Path(urlparse(tables[0].lake_catalog_properties["warehouse"]).path)
    first, second = (warehouse.joinpath(*str(table.path).split(".")) for table in tables)
    (second / "data").mkdir()
    with standalone_cluster(tmp_path, without=[first, second / "data"]) as master:
        tiered = tier_on(master, tiering, tmp_path, *tables)

    assert tiered.returncode == 1, tiered.stderr[-3000:]
    errors = [each["error"] for each in json.loads(tiered.stdout)]
    assert "this executor does not see the lake table's folder" in errors[0]
    assert "the driver does not see" in errors[1]
    for error, table in zip(errors, tables, strict=True):
        assert "--master local[*]" in error
        assert tiering.lake_rows(table) == []
        assert tiering.client.lake_snapshot(table.path) is None
    tiering.client.resume_tables([table.path for table in tables])
    for table in tables:
        tiering.tier(table)
        assert tiering.lake_rows(table) == sorted(named(range(50), "row").items())


def tier_on(master: str, tiering: Tiering, folder: Path, *tables: TableInfo) -> subprocess.CompletedProcess[str]:
    """Tier tables on a cluster whose Python lacks our package."""
    return run_on(master, tiering, python_without_engine(folder), "tier", *tables)


def run_on(
    master: str, tiering: Tiering, python: Path, command: str, *tables: TableInfo
) -> subprocess.CompletedProcess[str]:
    """Run a command on a cluster whose workers run this Python."""
    return subprocess.run(
        [
            Path(sys.executable).with_name("fluss-tiering"),
            *(command, "--server", tiering.target, "--master", master, "--json"),
            *(str(table.path) for table in tables),
        ],
        env={**driver_environment(), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_an_archive_has_the_package_and_the_module_that_spark_looks_for(tmp_path: Path):
    archive = make_archive(tmp_path)
    with zipfile.ZipFile(archive) as opened:
        names = set(opened.namelist())
    assert {"fluss_tiering/__init__.py", "fluss_tiering/spark/round/pieces.py", "pyspark_fluss.py"} <= names
    assert f"fluss_tiering/{library._JAR}" in names, "a driver on the cluster loads it"  # E1
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
