"""Maintenance of position delete files: those that apply to nothing are removed, and many become few."""

from __future__ import annotations

import json

import pytest
from maintenance_support import data_files, delete_files, duckdb_rows
from spark_support import Tiering, command, named

from fluss_tiering.lake.iceberg.maintenance.position_deletes import _is_worth
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.maintenance import maintain as maintain_module
from fluss_tiering.spark.maintenance import rewriting
from fluss_tiering.spark.maintenance.maintain import Maintenance, maintain_table
from fluss_tiering.spark.maintenance.plan import ALL_STEPS, MaintenanceLimits, Plan, Step, plan_table

BY_POSITION = {"table.datalake.delete-files": "position"}
SMALL = MaintenanceLimits(min_input_files=2, delete_files=2)


def compacted(tiering: Tiering, table: TableInfo, limits: MaintenanceLimits) -> Maintenance:
    """Compact the table, whose rows are the same afterwards, as Spark and DuckDB read them."""
    rows = tiering.lake_rows(table)
    assert duckdb_rows(tiering, table) == rows
    done = maintain_table(tiering.client, tiering.spark, table, steps={Step.COMPACT}, limits=limits)
    assert (done.error, done.conflicts) == (None, 0)
    assert tiering.lake_rows(table) == duckdb_rows(tiering, table) == rows
    return done


def planned(tiering: Tiering, table: TableInfo, limits: MaintenanceLimits) -> Plan:
    plan = plan_table(tiering.client, tiering.spark, table, ALL_STEPS, limits, with_merges=True)
    assert plan is not None
    return plan


@pytest.mark.slow
def test_no_position_delete_file_is_left_behind_when_all_data_files_are_rewritten(tiering: Tiering):
    table = tiering.table(properties=BY_POSITION)
    for step in range(9):
        tiering.round(table, named(range(step * 4, step * 4 + 4), "first"))
    # A round that changes rows in more than eight data files has one delete file for all of them.
    tiering.round(table, named(range(0, 36, 4), "changed"))
    before, files = delete_files(tiering, table), data_files(tiering, table)
    assert before == 1
    limits = MaintenanceLimits(min_input_files=2, delete_files=2)

    done = compacted(tiering, table, limits)

    assert not set(files) & set(data_files(tiering, table))
    assert delete_files(tiering, table) == 0
    assert done.rewritten.delete_files == before
    assert done.after is not None
    assert done.after.delete_files == 0
    assert not compacted(tiering, table, limits).did_something
    tiering.write(table, named(range(20, 45), "after"))
    tiering.delete(table, [0, 41])
    tiering.tier(table)
    assert tiering.equal(table)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["tasks", "spark"])
@pytest.mark.sampled(1)
def test_equality_deletes_beside_a_compaction_lose_nothing(tiering: Tiering, monkeypatch, by: str):
    """The new data files would be newer than the equality deletes, which would then delete nothing of them."""
    if by == "spark":
        monkeypatch.setattr(rewriting, "planned_rewrite", lambda *_arguments: None)
    table = tiering.table(properties=BY_POSITION)
    for step in range(3):
        tiering.round(table, named(range(step * 10, step * 10 + 12), f"step {step}"))
    rewrite = maintain_module.rewrite_data_files

    def beside_a_round(*arguments, **options):
        tiering.client.alter_table(table.path, set_properties={"table.datalake.delete-files": "equality"})
        tiering.write(table, named([3], "changed beside"))
        tiering.delete(table, [5, 25])
        tiering.tier(table)
        return rewrite(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(maintain_module, "rewrite_data_files", beside_a_round)
        done = maintain_table(tiering.client, tiering.spark, table, steps={Step.COMPACT}, limits=SMALL)

    assert (done.error, done.conflicts) == (None, 1)
    expected = {**named(range(12), "step 0"), **named(range(10, 22), "step 1"), **named(range(20, 32), "step 2")}
    expected = {key: name for key, name in {**expected, **named([3], "changed beside")}.items() if key not in {5, 25}}
    assert tiering.lake_rows(table) == duckdb_rows(tiering, table) == sorted(expected.items())
    compacted(tiering, table, SMALL)


@pytest.mark.slow
def test_many_position_delete_files_of_few_data_files_become_few(tiering: Tiering, monkeypatch, capsys):
    granularity = {"write.delete.granularity": "partition", "write.delete.mode": "merge-on-read"}
    table = tiering.tiered(
        named(range(100), "row"),
        properties={f"iceberg.{key}": value for key, value in granularity.items()},
        primary_key=False,
    )
    for key in range(6):
        tiering.spark.sql(f"DELETE FROM {tiering.name(table)} WHERE id = {key * 10}")
    assert (len(data_files(tiering, table)), delete_files(tiering, table)) == (1, 6)
    # The data file is not rewritten.
    few, many = (MaintenanceLimits(min_input_files=number, delete_files=100) for number in (5, 6))

    assert planned(tiering, table, many).merges == ()
    # The only data file would be rewritten, and nothing would be left to merge.
    rewriting = planned(tiering, table, MaintenanceLimits(min_input_files=5, delete_files=1))
    assert (len(rewriting.groups), rewriting.merges) == (1, ())
    assert not compacted(tiering, table, many).did_something
    run = command(tiering, monkeypatch)
    dry_run = ("maintain", str(table.path), "--server", tiering.target, "--dry-run", "--delete-files", "100")
    assert run(*dry_run) == 0
    assert f"{table.path}: would merge 6 position delete files, for about 5 fewer" in " ".join(
        capsys.readouterr().out.split()
    )
    assert run(*dry_run, "--json") == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["position_delete_files_to_merge"], shown["fewer_position_delete_files"]) == (6, 5)
    assert (len(data_files(tiering, table)), delete_files(tiering, table)) == (1, 6)
    done = compacted(tiering, table, few)

    assert (done.rewritten.files, done.rewritten.delete_files, done.did_something) == (0, 5, True)
    assert (len(data_files(tiering, table)), delete_files(tiering, table)) == (1, 1)
    (status,) = tiering.client.list_tiering_statuses(table.path)
    assert status.maintenance_saved_files == 5
    assert not compacted(tiering, table, few).did_something


@pytest.mark.parametrize(
    ("written", "added", "worth"),
    [
        # Written by commit 4, when the data files of the commits 5 and 6 were not there.
        ([4], [5, 6], True),
        # A commit deletes rows that it has added itself.
        ([5], [5, 6], False),
        ([4, 5], [5], False),
        ([4], [], True),
        ([7, 7, 7, 8], [5, 6], True),
        ([7, 7, 8], [5, 6], False),
    ],
)
def test_deletes_are_rewritten_where_that_saves_files(written: list[int], added: list[int], worth: bool):
    assert _is_worth(written, added, least_saved=2) is worth
