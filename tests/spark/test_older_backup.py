"""Tables that are put back from a backup while the lake stays: no round goes on as if nothing had happened."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_support import Tiering, lake_server, named

from fluss_tiering.client import TieringClient


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
            tiering.write(table, named(range(5), "before"))
            tiering.tier(table)
    assert server.stop() == 0
    backup = shutil.copytree(server.data_dir, tmp_path / "backup")
    server.start()
    with TieringClient(server.target) as client:
        tiering = Tiering(client, spark, server.target)
        for table in tables:
            tiering.write(table, named(range(4, 9), "after"))
            tiering.tier(table)
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
