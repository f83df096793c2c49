"""A copied data folder and a backup that is older than its lake: no round goes on as if nothing had happened."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_support import Tiering, driver_environment, lake_server, named

from engine_support import ServerProcess, new_table, put
from fluss_tiering.client import TieringClient


def run(*arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("fluss-tiering")), *arguments]
    done = subprocess.run(command, env=driver_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lake_files(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in (folder / "lake").rglob("*") if file.is_file()}


@pytest.mark.long
@pytest.mark.system
def test_rounds_of_an_adopted_copy_write_into_its_own_lake_alone(tmp_path: Path, spark_jars: str) -> None:  # D23
    server = ServerProcess(tmp_path / "a", data_dir=tmp_path / "data").start()
    with TieringClient(server.target) as client:
        table = new_table(client, [1, 2, 3])
    run("tier", str(table.path), "--server", server.target)
    assert server.stop() == 0
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with pytest.raises(RuntimeError, match="fluss-tiering adopt"):
        ServerProcess(tmp_path / "b", data_dir=tmp_path / "copy").start()
    assert "1 lake table was changed" in run("adopt", str(tmp_path / "copy"))
    before = lake_files(tmp_path / "data")

    copy = ServerProcess(tmp_path / "b", data_dir=tmp_path / "copy").start()
    with TieringClient(copy.target) as client:
        put(client, table, {2: "changed", 4: "new"})
    run("tier", str(table.path), "--server", copy.target)
    assert "differs" not in run("verify", str(table.path), "--server", copy.target)
    assert copy.stop() == 0
    assert lake_files(tmp_path / "data") == before

    server.start()
    assert "differs" not in run("verify", str(table.path), "--server", server.target)
    assert server.stop() == 0


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("with_state", [True, pytest.param(False, marks=pytest.mark.long)])
def test_rounds_of_tables_that_are_older_than_their_lake_are_refused(
    spark: SparkSession, tmp_path: Path, with_state: bool
) -> None:
    server = lake_server(tmp_path).start()
    with TieringClient(server.target) as client:
        tiering = Tiering(client, spark, server.target)
        tables = [tiering.table(), tiering.table(primary_key=False)]
        for table in tables:
            tiering.round(table, named(range(5), "before"))
    assert server.stop() == 0
    backup = shutil.copytree(server.data_dir, tmp_path / "backup")
    server.start()
    with TieringClient(server.target) as client:
        tiering = Tiering(client, spark, server.target)
        for table in tables:
            tiering.round(table, named(range(4, 9), "after"))
        in_lake = [tiering.lake_rows(table) for table in tables]
    assert server.stop() == 0

    # What the backup lacks stays, as with `cp -a backup/. folder/`.
    if with_state:
        shutil.copytree(backup, server.data_dir, dirs_exist_ok=True)
    else:
        shutil.copytree(backup / "tables", server.data_dir / "tables", dirs_exist_ok=True)
    server.start()
    with TieringClient(server.target) as client:
        tiering = Tiering(client, spark, server.target)
        for rows in (named(range(100, 102), "other"), named(range(110, 130), "other")):
            for table in tables:
                tiering.write(table, rows)
            for result in tiering.tier_all(*tables):
                assert result.failed
                assert "newer than the table" in result.error, result.error
                assert "older backup" in result.error
        assert [tiering.lake_rows(table) for table in tables] == in_lake
    assert server.stop() == 0
