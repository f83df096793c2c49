"""Maintenance by a plan: what is planned happens, within a budget, beside rounds, and for tables that want it."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlparse

import pytest
from held_writer import HeldStage
from maintenance_support import data_files, delete_files, duckdb_rows, ids, known, rounds
from spark_support import Tiering, command, in_background, named

from fluss_tiering.lake.iceberg.maintenance.rewrites import FileGroup, Part
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.maintenance import expire as expire_module
from fluss_tiering.spark.maintenance import maintain as maintain_module
from fluss_tiering.spark.maintenance import rewriting
from fluss_tiering.spark.maintenance.interruption import Interruption
from fluss_tiering.spark.maintenance.maintain import Maintenance, maintain_table
from fluss_tiering.spark.maintenance.plan import (
    ALL_STEPS,
    MaintenanceLimits,
    Plan,
    Step,
    choose,
    plan_table,
    tables_to_maintain,
)

SMALL = MaintenanceLimits(min_input_files=2, delete_files=2)
AUTO = {"table.datalake.auto-compaction": "true", "table.datalake.auto-expire-snapshot": "true"}
EXPIRE_AT_ONCE = {"iceberg.history.expire.max-snapshot-age-ms": "1"}


def planned(tiering: Tiering, table: TableInfo, limits: MaintenanceLimits = SMALL, steps=ALL_STEPS) -> Plan:
    plan = plan_table(tiering.client, tiering.spark, table, steps, limits)
    assert plan is not None
    return plan


def maintained(tiering: Tiering, table: TableInfo, limits: MaintenanceLimits = SMALL, **options) -> Maintenance:
    done = maintain_table(tiering.client, tiering.spark, table, limits=limits, **options)
    assert done.error is None
    return done


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("primary_key", [True, False])
def test_what_is_planned_is_what_happens(tiering: Tiering, primary_key):
    table = tiering.table(primary_key=primary_key, num_buckets=2, properties=EXPIRE_AT_ONCE)
    # A log table without bucket keys writes to its buckets in turn.
    rounds(tiering, table, 4)
    rows, files, snapshots = duckdb_rows(tiering, table), data_files(tiering, table), ids(tiering, table)
    plan = planned(tiering, table)

    assert plan.files.data_files == len(files) == sum(group.files for group in plan.groups)
    assert plan.files.delete_files == delete_files(tiering, table)
    assert bool(sum(group.deletes for group in plan.groups)) == primary_key
    assert plan.snapshots == len(snapshots)
    assert plan.expirable.free == snapshots[:-1]
    done = maintained(tiering, table)

    assert done.rewritten.files == len(files)
    (status,) = tiering.client.list_tiering_statuses(table.path)
    assert status.last_maintained_time is not None
    assert status.maintenance_saved_files == plan.fewer_files + plan.files.delete_files
    assert len(data_files(tiering, table)) == len(files) - plan.fewer_files == done.after.data_files
    assert delete_files(tiering, table) == 0
    assert done.expired == len(plan.expirable.free)
    assert not set(snapshots[:-1]) & set(ids(tiering, table))
    assert known(tiering, table) in ids(tiering, table)
    assert duckdb_rows(tiering, table) == rows
    assert tiering.equal(table)
    assert planned(tiering, table).batches == ()
    rounds(tiering, table, 1)
    assert tiering.equal(table)


@pytest.mark.slow
def test_a_lake_table_whose_files_may_not_be_deleted_is_compacted(tiering: Tiering):  # E23
    table = tiering.table(primary_key=False, properties={**EXPIRE_AT_ONCE, "iceberg.gc.enabled": "false"})
    rounds(tiering, table, 3)
    snapshots = ids(tiering, table)
    done = maintained(tiering, table)
    assert done.rewritten.files == 3
    assert done.plan.note == "expire and clean are left out, since the lake table has gc.enabled=false"
    assert ids(tiering, table)[:3] == snapshots


@pytest.mark.slow
def test_a_part_of_a_bucket_is_rewritten_if_the_budget_ends_there(tiering: Tiering):
    table = tiering.table(primary_key=False)
    rounds(tiering, table, 6)
    rows, before = duckdb_rows(tiering, table), data_files(tiering, table)
    (whole,) = planned(tiering, table).groups
    # Files differ by some bytes. This is room for three of them, whichever come first.
    limits = MaintenanceLimits(min_input_files=2, max_bytes=whole.bytes * 7 // 12)

    plan = planned(tiering, table, limits)
    (batch,) = plan.batches
    assert plan.groups_left
    done = maintained(tiering, table, limits)

    assert batch.part is not None
    assert done.rewritten.files == batch.part.files < len(before)
    assert done.rewritten.bytes <= limits.max_bytes
    assert len(set(before) - set(data_files(tiering, table))) == batch.part.files
    assert duckdb_rows(tiering, table) == rows


def group(partition: int, files: int, size: int, deletes: int = 0) -> FileGroup:
    return FileGroup((partition,), files, size, 1, deletes)


def test_groups_that_save_more_for_each_byte_come_first():
    cheap, dear, deleted = group(1, 11, 100), group(2, 11, 1000), group(3, 2, 100, deletes=50)
    batches = choose([dear, cheap, deleted], MaintenanceLimits(max_bytes=500, commit_bytes=1))
    assert [batch.groups for batch in batches] == [(deleted,), (cheap,)]
    assert len(choose([dear, cheap, deleted], MaintenanceLimits(max_bytes=5000))) == 1
    assert choose([dear], MaintenanceLimits(max_bytes=999)) == ()
    (part,) = choose([group(1, 3, 50), group(1, 4, 60)], MaintenanceLimits(max_bytes=60))
    assert (part.groups, part.part) == ((group(1, 3, 50),), Part(bytes=60, files=3))


@pytest.mark.slow
def test_rounds_and_maintenance_beside_each_other_lose_nothing(tiering: Tiering, tmp_path, monkeypatch):
    for number, mode in enumerate(("equality", "position")):
        table = tiering.table(properties={"table.datalake.delete-files": mode})
        rounds(tiering, table, 3)
        tiering.write(table, named(range(5), "during"))
        (folder := tmp_path / str(number)).mkdir()
        with monkeypatch.context() as patched:
            held = HeldStage(folder, patched)
            tiered = in_background(tiering, table)
            held.wait()
        assert maintained(tiering, table).rewritten.files == 3
        held.go()

        assert tiered.result(120)[0].error is None
        expected = sorted({**named(range(10), "round 2"), **named(range(5), "during")}.items())
        assert duckdb_rows(tiering, table) == expected, mode
        assert tiering.equal(table)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("by", ["tasks", "spark"])
def test_a_conflict_is_no_failure_and_the_next_maintenance_does_the_rest(tiering: Tiering, monkeypatch, by: str):
    if by == "spark":
        monkeypatch.setattr(rewriting, "planned_rewrite", lambda *_arguments: None)
    table = tiering.table(primary_key=False)
    rounds(tiering, table, 3)
    rewrite = maintain_module.rewrite_data_files

    def beside_another(spark, known, lake, *arguments, **options):
        # The other maintenance has the same plan, and commits first.
        rewrite(spark, known, lake, *arguments, **options)
        return rewrite(spark, known, stale, *arguments, **options)

    stale = tiering.lake_table(table)
    with monkeypatch.context() as patched:
        patched.setattr(maintain_module, "rewrite_data_files", beside_another)
        done = maintained(tiering, table)

    assert (done.conflicts, done.rewritten.files, done.interrupted) == (1, 0, False)
    # The files of the one that lost are gone.
    assert len(data_files(tiering, table)) == 1
    assert len(tiering.files_on_disk(table)) == 4
    assert len(duckdb_rows(tiering, table)) == 30
    assert maintained(tiering, table).conflicts == 0


@pytest.mark.slow
def test_maintenance_that_is_told_to_end_cancels_its_jobs_and_keeps_the_table_whole(tiering: Tiering, monkeypatch):
    table = tiering.table(primary_key=False)
    rounds(tiering, table, 3)
    rows, snapshots = duckdb_rows(tiering, table), ids(tiering, table)
    interruption = Interruption()

    def sleeping(spark, *arguments, **options):
        # This is in the place of a rewrite that takes long. It is asked to end once its job runs.
        def sleep(numbers):
            time.sleep(600)

        interruption.ask()
        spark.sparkContext.parallelize(range(2), 2).foreachPartition(sleep)

    with monkeypatch.context() as patched:
        patched.setattr(maintain_module, "rewrite_data_files", sleeping)
        done = maintained(tiering, table, interruption=interruption)

    assert done.interrupted
    (status,) = tiering.client.list_tiering_statuses(table.path)
    assert status.last_maintained_time is None
    assert ids(tiering, table) == snapshots
    assert duckdb_rows(tiering, table) == rows
    assert tiering.spark.sparkContext.statusTracker().getActiveJobsIds() == []
    assert maintained(tiering, table).rewritten.files == 3
    assert duckdb_rows(tiering, table) == rows


@pytest.mark.slow
def test_an_expiry_gives_way_between_two_commits(tiering: Tiering, monkeypatch):
    table = tiering.table(properties=EXPIRE_AT_ONCE)
    rounds(tiering, table, 6)
    rows, snapshots, files = duckdb_rows(tiering, table), ids(tiering, table), tiering.files_on_disk(table)
    interruption, expired = Interruption(), []
    expire = expire_module.expire

    def asked_meanwhile(spark, lake, snapshot_ids):
        interruption.ask()
        expired.append(snapshot_ids)
        return expire(spark, lake, snapshot_ids)

    monkeypatch.setattr(expire_module, "_SNAPSHOTS_AT_ONCE", 2)
    with monkeypatch.context() as patched:
        patched.setattr(expire_module, "expire", asked_meanwhile)
        done = maintained(tiering, table, steps={Step.EXPIRE}, interruption=interruption)

    assert (done.interrupted, done.expired) == (True, 2)
    assert expired == [snapshots[:2]]
    assert ids(tiering, table) == snapshots[2:]
    (status,) = tiering.client.list_tiering_statuses(table.path)
    assert status.maintenance_expired_snapshots == 2
    rest = maintained(tiering, table, steps={Step.EXPIRE})
    assert (rest.interrupted, rest.expired) == (False, 3)
    assert ids(tiering, table) == snapshots[-1:]
    assert done.deleted_files + rest.deleted_files >= 5
    assert set(tiering.files_on_disk(table)) <= set(files)
    assert duckdb_rows(tiering, table) == rows


@pytest.mark.slow
def test_files_of_an_expiry_that_was_killed_are_found_as_orphans(tiering: Tiering):
    table = tiering.table(primary_key=False)
    rounds(tiering, table, 3)
    maintained(tiering, table, steps={Step.COMPACT})
    rounds(tiering, table, 1)
    *old, _ = ids(tiering, table)
    rows, live = duckdb_rows(tiering, table), data_files(tiering, table)
    lake = tiering.lake_table(table)
    # This is what Iceberg's action does first. The files are deleted after it.
    expiry = lake.java_table.expireSnapshots().expireOlderThan(0).cleanExpiredFiles(False)
    for snapshot in old:
        expiry = expiry.expireSnapshotId(snapshot)
    expiry.commit()
    for file in lake_folder(table).rglob("*"):
        os.utime(file, (0, 0))

    assert len(tiering.files_on_disk(table)) == 5
    assert maintained(tiering, table, steps={Step.CLEAN}).orphans >= 3
    assert len(tiering.files_on_disk(table)) == len(live) == 2
    assert duckdb_rows(tiering, table) == rows


@pytest.mark.slow
def test_orphans_and_metadata_files_that_nothing_names_are_deleted(tiering: Tiering):
    properties = {"previous-versions-max": "2", "delete-after-commit.enabled": "false"}
    table = tiering.table(
        primary_key=False, properties={f"iceberg.write.metadata.{key}": value for key, value in properties.items()}
    )
    rounds(tiering, table, 4)
    folder = lake_folder(table)
    orphan = folder / "data" / "left-by-a-killed-task.parquet"
    orphan.write_bytes(b"nothing reads this")
    for file in folder.rglob("*"):
        os.utime(file, (0, 0))
    metadata = sorted((folder / "metadata").glob("*.metadata.json"))
    assert len(metadata) == 5
    rows = duckdb_rows(tiering, table)

    assert planned(tiering, table).metadata_files == 3
    done = maintained(tiering, table, steps={Step.CLEAN})

    assert done.orphans == 3
    assert not orphan.exists()
    assert sorted((folder / "metadata").glob("*.metadata.json")) == metadata[2:]
    assert duckdb_rows(tiering, table) == rows
    assert maintained(tiering, table, steps={Step.CLEAN}, grace=timedelta(days=1)).orphans == 0


def test_only_tables_whose_options_ask_for_it_are_maintained_without_names(tiering: Tiering):
    off, both = tiering.table(), tiering.table(properties=AUTO)
    compacted = tiering.table(properties={"table.datalake.auto-compaction": "true"})
    expired = tiering.table(properties={"table.datalake.auto-expire-snapshot": "TRUE"})

    found = {table.path: steps for table, steps in tables_to_maintain(tiering.client, ())}

    assert off.path not in found
    assert found[both.path] == ALL_STEPS - {Step.EXPIRE_RECORDS}
    assert found[compacted.path] == {Step.COMPACT, Step.MANIFESTS}
    assert found[expired.path] == {Step.EXPIRE, Step.CLEAN}
    ((named_table, steps),) = tables_to_maintain(tiering.client, [off.path])
    assert (named_table.path, steps) == (off.path, ALL_STEPS)
    everything = {table.path for table, _ in tables_to_maintain(tiering.client, (), everything=True)}
    assert {off.path, both.path} <= everything


@pytest.mark.parametrize("option", AUTO)
def test_an_option_that_is_neither_true_nor_false_is_refused(tiering: Tiering, option):
    with pytest.raises(FlussTieringError, match=f"{option} is 'yes': expected true or false") as error:
        tiering.table(properties={option: "yes"})
    assert error.value.code is ErrorCode.INVALID_TABLE


@pytest.mark.slow
def test_the_command_shows_its_plan_and_then_does_it(tiering: Tiering, monkeypatch, capsys):
    run = command(tiering, monkeypatch)
    table, untiered = tiering.table(), tiering.table()
    rounds(tiering, table, 2)
    arguments = ("maintain", str(table.path), "--min-input-files", "2", "--server", tiering.target)

    assert run(*arguments, "--dry-run") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.match(rf"{table.path}: would replace 2 data files of [\d,]+ bytes by about 1", shown), shown
    assert run(*arguments, "--dry-run", "--json") == 0
    (plan,) = json.loads(capsys.readouterr().out)
    assert (plan["files_to_rewrite"], plan["fewer_files"], plan["deletes_to_apply"]) == (2, 1, 1)
    assert len(data_files(tiering, table)) == 2

    assert run(*arguments, str(untiered.path), "--json") == 1
    done, failed = json.loads(capsys.readouterr().out)
    assert (done["rewritten_files"], done["error"]) == (2, None)
    assert (failed["database_name"], failed["table_name"]) == (untiered.path.database, untiered.path.table)
    assert failed["error"].startswith("nothing of the table is in the lake")
    assert len(data_files(tiering, table)) == 1
    rounds(tiering, table, 2)
    assert run(*arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.match(rf"{table.path}: maintained in [\d.]+ s: replaced 3 data files of [\d,]+ bytes by 1", shown), shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--max-bytes", "much"], "--max-bytes: 'much' is not a size"),
        (["--max-bytes", "0"], "--max-bytes: '0' is too little: expected at least 1mb"),
        (["--max-bytes", "10"], "--max-bytes: '10' is too little: expected at least 1mb"),
        (["--all", "db.t"], "--all maintains every table that is tiered, but db.t is named, too"),
        (["--cores", "0"], "cores"),
    ],
)
def test_a_wrong_option_of_the_command_is_refused(tiering: Tiering, monkeypatch, capsys, arguments, told):
    from fluss_tiering.cli.main import main  # noqa: PLC0415

    monkeypatch.setattr("sys.argv", ["fluss-tiering", "maintain", *arguments, "--server", tiering.target])
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 2
    assert told in " ".join(capsys.readouterr().err.split())


def lake_folder(table: TableInfo) -> Path:
    return Path(urlparse(table.lake_catalog_properties["warehouse"]).path, *str(table.path).split("."))
