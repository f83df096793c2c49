"""Temporary folders of Spark's driver that the host cleans while it runs: the next round makes them again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from spark_support import driver_environment

from engine_fixtures import client, server
from engine_support import ServerProcess, new_table, put
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStatus
from fluss_tiering.spark.submit import make_archive
from waiting import wait_until

__all__ = ["client", "server"]

pytestmark = [pytest.mark.system, pytest.mark.slow]

COMMAND = str(Path(sys.executable).with_name("fluss-tiering"))


@pytest.mark.long
def test_rounds_and_maintenance_go_on_after_the_host_cleaned_its_temporary_folders(
    server: ServerProcess, client: TieringClient, spark_jars: str, tmp_path: Path
) -> None:
    options = {"table.datalake.auto-compaction": "true", "table.datalake.auto-expire-snapshot": "true"}
    table = new_table(client, [1, 2], freshness="1s", properties=options)
    path = table.path
    spark_folder, messages = tmp_path / "spark", tmp_path / "messages"
    spark_folder.mkdir()
    command = ["tier", "--server", server.target, "--drain", "--follow", "--maintenance-interval", "1s", str(path)]
    with messages.open("wb") as written:
        driver = subprocess.Popen(
            [COMMAND, *command],
            env={**driver_environment(), "SPARK_LOCAL_DIRS": str(spark_folder)},
            stdout=subprocess.DEVNULL,
            stderr=written,
        )
    try:
        wait_until(lambda: is_done(status(client, path)))
        for cleaned in range(3):
            # Maintenance may be under way. If it fails, it is tried again.
            for each in spark_folder.iterdir():
                shutil.rmtree(each, ignore_errors=True)
            put(client, table, {cleaned + 10: "new"})
            wait_until(lambda: is_done(status(client, path)) and not status(client, path).records_waiting)
        maintained = status(client, path).last_maintained_time
        wait_until(lambda: status(client, path).last_maintained_time != maintained)
        assert driver.poll() is None
    finally:
        driver.terminate()
        driver.wait()
    told = messages.read_text()
    assert status(client, path).consecutive_failures == 0, told
    assert "temporary files of Spark were deleted" in told
    assert str(spark_folder) in told


_LOSES_ITS_FOLDERS = """
import shutil, sys
from pathlib import Path
from fluss_tiering.spark.startup.local_folders import LocalFolders
from fluss_tiering.spark.startup.session import own_session

spark_folder, archive = map(Path, sys.argv[1:])

with own_session("local[2]") as spark:
    spark.conf.set("spark.sql.shuffle.partitions", 64)
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    def shuffled():
        assert spark.range(2000).repartition(64).distinct().count() == 2000
        assert spark.sparkContext.parallelize(range(100), 4).count() == 100
    folders = LocalFolders(spark.sparkContext, archive)
    folders.restore()
    shuffled()
    (of_blocks,) = spark_folder.glob("blockmgr-*")
    of_a_task = of_blocks / "fluss-kv-snapshot-x1"
    of_a_task.mkdir()
    folders.restore()
    of_a_task.rmdir()
    folders.restore()
    assert not of_a_task.exists(), "tasks delete their folders themselves"
    for each in (*spark_folder.iterdir(), archive.parent):
        shutil.rmtree(each)
    folders.restore()
    assert archive.is_file()
    shuffled()
    archive.unlink()
    folders.restore()
    assert archive.is_file()
    shutil.rmtree(spark_folder)
    spark_folder.write_text("a file is in the way")
    try:
        folders.restore()
    except Exception as error:
        print(error)
    spark_folder.unlink()
"""


@pytest.mark.long
def test_jobs_that_shuffle_work_in_folders_that_were_made_again(spark_jars: str, tmp_path: Path) -> None:
    spark_folder = tmp_path / "spark"
    spark_folder.mkdir()
    (tmp_path / "package").mkdir()
    archive = make_archive(tmp_path / "package")
    done = subprocess.run(
        [sys.executable, "-c", _LOSES_ITS_FOLDERS, str(spark_folder), str(archive)],
        env={**driver_environment(), "SPARK_LOCAL_DIRS": str(spark_folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("could not make Spark's temporary folder again"), done.stdout
    assert done.stderr.count("temporary files of Spark were deleted") == 2
    assert str(archive) in done.stderr


def is_done(status: TieringStatus) -> bool:
    return status.last_tiered_time is not None and status.state in {TieringState.TIERED, TieringState.SCHEDULED}


def status(client: TieringClient, path: TablePath) -> TieringStatus:
    return next(each for each in client.list_tiering_statuses() if each.path == path)
