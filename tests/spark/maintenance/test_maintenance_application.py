"""The maintenance application: what it does to each table, and how it names those that failed."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path
from typing import Any

import pyspark
import pytest
from maintenance_support import ids
from spark_support import Tiering, named, submit_environment

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath
from fluss_tiering.spark.maintenance import background
from fluss_tiering.spark.maintenance.background import BackgroundMaintenance
from fluss_tiering.spark.maintenance.maintain import Maintenance
from fluss_tiering.spark.maintenance.plan import ALL_STEPS, MaintenanceLimits
from fluss_tiering.spark.maintenance_application import main, run
from fluss_tiering.spark.maintenance_options import (
    CompactOptions,
    ExpireOptions,
    MaintainOptions,
    VerifyOptions,
    parse_arguments,
)
from fluss_tiering.spark.submit import MAINTENANCE_APPLICATION, conf_arguments, maintenance_arguments, spark_conf

TABLES = (TablePath("db", "a"), TablePath("db", "b"))


@pytest.mark.parametrize(
    "options",
    [
        CompactOptions("h:1", TABLES),
        CompactOptions("h:1", TABLES, min_input_files=7, delete_files=3),
        ExpireOptions("h:1", TABLES),
        ExpireOptions("h:1", TABLES, older_than="2d", retain_last=4),
        VerifyOptions("h:1", TABLES),
        VerifyOptions("h:1", TABLES, limit=5),
    ],
)
def test_the_command_line_of_a_submit_is_read_as_the_same_options(options):
    assert parse_arguments(maintenance_arguments(options)) == options


@pytest.mark.parametrize(
    ("kind", "wrong", "named"),
    [
        (CompactOptions, {"min_input_files": 1}, "--min-input-files: 1 is not a whole number from 2 to 2147483647"),
        (CompactOptions, {"delete_files": 0}, "--delete-files: 0 is not a whole number from 1 to 2147483647"),
        (ExpireOptions, {"older_than": "soon"}, "--older-than: 'soon' is not a duration"),
        (ExpireOptions, {"retain_last": 0}, "--retain-last: 0 is not a whole number from 1 to 2147483647"),
        (MaintainOptions, {"max_bytes": "0 mb"}, "--max-bytes: '0 mb' is too little: expected at least 1mb"),
        (VerifyOptions, {"limit": 0}, "--limit: 0 is not a whole number from 1 to 2147483647"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(kind, wrong, named):
    with pytest.raises(FlussTieringError, match=named) as error:
        kind("h:1", TABLES, **wrong)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_tables_are_compacted_and_their_old_snapshots_expired(tiering: Tiering):
    tables = tiering.table(), tiering.table(primary_key=False)
    paths = tuple(each.path for each in tables)
    for number in range(3):
        for table in tables:
            tiering.round(table, named(range(5), f"row {number}"))
    assert run(CompactOptions(tiering.target, paths, min_input_files=2), tiering.spark) == {}
    assert all(
        tiering.spark.table(f"{tiering.name(each)}.snapshots").where("operation = 'replace'").count() for each in tables
    )
    # A round registers the snapshot of the compaction, so that the older ones are not needed any more.
    for table in tables:
        tiering.round(table, named(range(5), "last row"))
    before = [len(ids(tiering, each)) for each in tables]
    assert run(ExpireOptions(tiering.target, paths, older_than="1s", retain_last=before[0]), tiering.spark) == {}
    assert [len(ids(tiering, each)) for each in tables] == before
    assert run(ExpireOptions(tiering.target, paths, older_than="0s"), tiering.spark) == {}
    assert [len(ids(tiering, each)) for each in tables] == [1, 1]
    assert run(VerifyOptions(tiering.target, paths), tiering.spark) == {}
    assert all(tiering.equal(each) for each in tables)


def test_a_table_that_does_not_exist_is_reported_before_spark_starts(tiering: Tiering, caplog):
    caplog.set_level(logging.ERROR)
    assert main(["compact", "--server", tiering.target, "gone.table"]) == 2
    assert "gone.table" in caplog.text


@pytest.mark.long
@pytest.mark.system
def test_a_submitted_verify_names_the_table_that_differs_in_its_last_line(tiering: Tiering):
    good, bad = tiering.table(), tiering.table()
    for table in (good, bad):
        tiering.round(table, named(range(5), "row"))
    tiering.spark.sql(f"DELETE FROM {tiering.name(bad)} WHERE id = 3")
    arguments = maintenance_arguments(VerifyOptions(tiering.target, (good.path, bad.path)))
    submitted = subprocess.run(
        [
            Path(pyspark.__file__).parent / "bin" / "spark-submit",
            *("--master", "local[2]", *conf_arguments(spark_conf()), "--conf", "spark.ui.enabled=false"),
            *(MAINTENANCE_APPLICATION, *arguments),
        ],
        env=submit_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    assert submitted.returncode == 1, submitted.stdout
    (summary,) = [each for each in submitted.stdout.splitlines()[-20:] if "verify failed for 1 of 2 tables" in each]
    assert f"{bad.path}: bucket" in summary
    assert str(good.path) not in summary
    assert f"{bad.path}: bucket" in submitted.stdout
    assert "id 3: missing (1 in the table, 0 in the lake)" in submitted.stdout
    assert f"{good.path}: equal: 5 rows" in submitted.stdout


DESCRIPTOR = TableDescriptor(columns=(Column("id", DataType.parse("BIGINT")),), num_buckets=1)
BROKEN, SOUND = (TableInfo(number, TablePath("shop", name), 0, DESCRIPTOR, 0) for number, name in enumerate("ab"))


def run_due(maintenance: BackgroundMaintenance) -> None:
    """Do what an application does while it has nothing else to do, and wait for what it began."""
    maintenance.begin_if_due()
    if maintenance._thread is not None:
        maintenance._thread.join()


def test_a_table_whose_maintenance_fails_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    maintained: list[TablePath] = []

    def maintain(_client: Any, _spark: Any, table: TableInfo, **_options: Any) -> Maintenance:
        maintained.append(table.path)
        if table is BROKEN:
            raise ValueError("what nobody thought of")
        return Maintenance(table.path)

    tables = [(BROKEN, ALL_STEPS), (SOUND, ALL_STEPS)]
    monkeypatch.setattr(background, "tables_to_maintain", lambda *_: tables)
    monkeypatch.setattr(background, "maintain_table", maintain)
    client: Any = None
    maintenance = BackgroundMaintenance(client, client, (), MaintenanceLimits(), interval_s=600)

    for _ in range(3):
        run_due(maintenance)

    assert maintained == [BROKEN.path, SOUND.path]
    (told,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert told.getMessage() == "shop.a: maintenance failed, and is tried again in 600 s"
    assert told.exc_info is not None
