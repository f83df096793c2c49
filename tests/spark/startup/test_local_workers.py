"""Which Spark sessions fork their workers with loaded modules, and what is loaded before a first round."""

from __future__ import annotations

import importlib.metadata
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_tiering.spark.startup import workers
from fluss_tiering.spark.startup.workers import local_workers_conf, rehearse_commit, warm_up
from fluss_tiering.spark.worker_daemon import without_archives

DAEMON = {"spark.python.daemon.module": "fluss_tiering.spark.worker_daemon"}


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]"])
def test_workers_of_a_local_master_are_forked_loaded(master: str) -> None:
    assert local_workers_conf(master, sys.executable) == DAEMON


def test_workers_that_may_not_have_this_package_are_spark_s_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert local_workers_conf("spark://host:7077", sys.executable) == {}
    assert local_workers_conf("local[2]", "no-such-python") == {}
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    assert local_workers_conf("local[2]", str(other)) == {}, "a link is another environment"

    def not_installed(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert local_workers_conf("local[2]", sys.executable) == {}


def test_a_worker_begins_with_what_it_needs_and_without_archives(spark) -> None:
    def loaded(_: object) -> list[tuple[bool, list[str]]]:
        importers = [path for path in sys.path_importer_cache if ".zip" in path or ".jar" in path]
        return [("fluss_tiering.spark.round.pieces" in sys.modules, importers)]

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(loaded).collect() == [(True, [])]


@pytest.mark.system
def test_what_workers_are_forked_with_is_not_what_calls_the_server() -> None:
    script = (
        "import importlib, sys\n"
        "from fluss_tiering.spark.worker_daemon import NEEDED\n"
        "for name in NEEDED: importlib.import_module(name)\n"
        "print('grpc' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"False\n"


def test_a_distribution_s_pyspark_is_used_as_a_folder_and_its_py4j_as_it_is(tmp_path: Path) -> None:
    package = tmp_path / "python" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    archives = [f"{tmp_path}/python/lib/{name}" for name in ("pyspark.zip", "py4j-0.10-src.zip")]
    path = ["", *archives, f"{tmp_path}/jars/spark-core.jar", "/library"]
    assert without_archives(path, str(tmp_path)) == [str(package.parent), "", "/library", archives[1]]


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_archives_stay_where_pyspark_is_nowhere_else(home: str) -> None:
    assert without_archives(["", "/a/pyspark.zip"], home) == ["", "/a/pyspark.zip"]


def test_a_rehearsal_leaves_the_session_as_it_was(spark) -> None:
    before = spark.sql("SET").collect()
    rehearse_commit(spark)
    assert spark.sql("SET").collect() == before
    assert not [name for (name,) in spark.sql("SHOW CATALOGS").collect() if "rehearsal" in name]


def test_a_warm_up_that_fails_is_left_to_the_first_round(
    spark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(workers, "rehearse_commit", fail)
    with caplog.at_level(logging.DEBUG, "fluss_tiering.spark.startup.workers"):
        warm_up(spark)
    assert "no space left on device" in caplog.text
