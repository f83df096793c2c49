"""A copied data folder with a real lake: rounds of the copy leave the lake of the original as it is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from spark_support import driver_environment

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
