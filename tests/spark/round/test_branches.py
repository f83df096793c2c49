"""Rounds that commit to a branch of the lake table, and publishing, which lets the readers of main see their rows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession
from spark_support import Rows, Tiering, command, named, replace_stage

from fluss_tiering.lake.iceberg.maintenance.rewrites import rewrite
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.table_options import LAKE_PARTITION_BY
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.spark.maintenance.expire import expire_snapshots
from fluss_tiering.spark.maintenance.publish import Publication, publish_table
from fluss_tiering.spark.maintenance_options import PublishOptions
from fluss_tiering.spark.round.result import PieceResult
from fluss_tiering.spark.round.stage import run_stage

BRANCH = {"table.datalake.enabled": "true", "table.datalake.commit-branch": "audit"}


def branched(tiering: Tiering, **options: Any) -> TableInfo:
    properties = {**BRANCH, **options.pop("properties", {})}
    return tiering.table(properties=properties, **options)


def tiered(tiering: Tiering, table: TableInfo, rows: Rows) -> int:
    """Run a round with some rows, and return its lake snapshot."""
    result = tiering.round(table, rows)
    assert result.stats is not None
    assert result.stats.lake_snapshot_id is not None
    return result.stats.lake_snapshot_id


def publish(tiering: Tiering, table: TableInfo, **options: Any) -> Publication:
    done = publish_table(tiering.client, tiering.spark, table, **options)
    assert done.error is None, done.error
    return done


def rows_of(tiering: Tiering, table: TableInfo, version: str | int = "main") -> dict[int, str]:
    reader = tiering.spark.read if version == "main" else tiering.spark.read.option("versionAsOf", version)
    return {row.id: row.name for row in reader.table(tiering.name(table)).collect()}


def registered(tiering: Tiering, table: TableInfo) -> int | None:
    known = tiering.client.lake_snapshot(table.path)
    return None if known is None else known.snapshot_id


def lake_of(tiering: Tiering, table: TableInfo, branch: str = "audit") -> JavaObject:
    """Return the lake table in the JVM. The session has no SQL for branches and tags."""
    properties = {**table.descriptor.properties, "table.datalake.commit-branch": branch}
    opened = replace(table, descriptor=replace(table.descriptor, properties=properties))
    found = tiering.lake_table(opened)
    return found.java_table


def drop_branch(tiering: Tiering, table: TableInfo) -> None:
    lake_of(tiering, table).manageSnapshots().removeBranch("audit").commit()


@pytest.mark.parametrize("primary_key", [True, False])
@pytest.mark.sampled(1)
def test_readers_of_main_see_only_what_was_published(tiering: Tiering, primary_key: bool) -> None:
    table = branched(tiering, primary_key=primary_key)
    first = tiered(tiering, table, named([1, 2], "first"))
    assert rows_of(tiering, table) == {}
    assert rows_of(tiering, table, "audit") == named([1, 2], "first")
    assert registered(tiering, table) is None

    done = publish(tiering, table, tag="2026-11-29")

    assert (done.snapshot_id, done.rounds, done.rows, done.known) == (first, 1, 2, True)
    assert rows_of(tiering, table) == rows_of(tiering, table, "2026-11-29") == named([1, 2], "first")
    assert registered(tiering, table) == first
    # What a later round changes is only on the branch, until it is published, too.
    second = tiered(tiering, table, named([3], "second") | ({1: "changed"} if primary_key else {}))
    third = tiered(tiering, table, named([4], "third"))
    assert rows_of(tiering, table) == named([1, 2], "first")
    assert tiering.equal(table)
    assert (registered(tiering, table), publish(tiering, table, snapshot=second).rounds) == (first, 1)
    assert rows_of(tiering, table) == rows_of(tiering, table, second)
    assert (registered(tiering, table), set(rows_of(tiering, table))) == (second, {1, 2, 3})
    assert publish(tiering, table).snapshot_id == registered(tiering, table) == third
    assert tiering.equal(table)


def test_to_publish_again_changes_nothing(tiering: Tiering) -> None:
    table = branched(tiering)
    first = tiered(tiering, table, named([1], "first"))
    publish(tiering, table, tag="a")
    second = tiered(tiering, table, named([2], "second"))
    publish(tiering, table)
    rounds = len(tiering.rounds(table))
    for given, tag in ((None, None), (second, None), (first, "a"), (first, None)):
        done = publish(tiering, table, snapshot=given, tag=tag)
        assert (done.rounds, done.known, registered(tiering, table)) == (0, True, second)
    assert rows_of(tiering, table, "a") == named([1], "first")
    assert len(tiering.rounds(table)) == rounds


def test_rounds_go_on_while_a_table_is_published(tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    table = branched(tiering)
    first = tiered(tiering, table, named([1], "first"))
    published = []

    def publish_meanwhile(spark: SparkSession, *arguments: Any) -> list[PieceResult]:
        published.append(publish(tiering, table))
        return run_stage(spark, *arguments)

    with monkeypatch.context() as patched:
        replace_stage(patched, publish_meanwhile)
        second = tiered(tiering, table, named([2], "second"))
    assert [(each.snapshot_id, each.known) for each in published] == [(first, False)]
    assert (rows_of(tiering, table), registered(tiering, table)) == (named([1], "first"), None)
    # The next round tells Fluss of what was published, and of nothing else.
    tiered(tiering, table, named([3], "third"))
    assert registered(tiering, table) == first
    assert publish(tiering, table, snapshot=second).rounds == 1
    assert rows_of(tiering, table) == named([1], "first") | named([2], "second")


def test_a_dropped_branch_is_made_again_from_main(tiering: Tiering) -> None:
    table = branched(tiering)
    tiered(tiering, table, named([1], "first"))
    publish(tiering, table)
    tiered(tiering, table, named([2], "bad"))
    tiering.write(table, named([2], "good"))
    drop_branch(tiering, table)

    tiered(tiering, table, named([3], "third"))

    publish(tiering, table)
    assert rows_of(tiering, table) == named([1], "first") | named([2], "good") | named([3], "third")
    assert tiering.equal(table)


def test_a_branch_behind_main_is_told(tiering: Tiering) -> None:
    table = branched(tiering)
    tiered(tiering, table, named([1], "first"))
    publish(tiering, table)
    tiered(tiering, table, named([2], "second"))
    tiering.client.alter_table(table.path, reset_properties=["table.datalake.commit-branch"])
    (on_main,) = tiering.client.get_tables([table.path])
    # What was only on the branch is tiered once more.
    tiered(tiering, on_main, named([3], "third"))
    assert rows_of(tiering, table) == named([1], "first") | named([2], "second") | named([3], "third")
    tiering.client.alter_table(table.path, {"table.datalake.commit-branch": "audit"})
    tiering.write(table, named([4], "fourth"))
    assert "DROP BRANCH `audit`. The next round makes it again from main" in tiering.fail(table)
    drop_branch(tiering, table)
    tiering.tier(table)
    assert publish(tiering, table).rounds == 1
    assert tiering.equal(table)


def test_a_branch_that_was_moved_back_publishes_nothing(tiering: Tiering) -> None:
    table = branched(tiering)
    first = tiered(tiering, table, named([1], "first"))
    second = tiered(tiering, table, named([2], "second"))
    assert publish(tiering, table).snapshot_id == second
    # Whoever names what was published hears where main is.
    assert publish(tiering, table, snapshot=first).snapshot_id == second
    drop_branch(tiering, table)
    lake_of(tiering, table, "main").manageSnapshots().createBranch("audit", first).commit()

    done = publish_table(tiering.client, tiering.spark, table, tag="release")

    assert f"main of the lake table {table.path} is at snapshot {second}, from which" in str(done.error)
    refs = tiering.spark.sql(f"SELECT name FROM {tiering.name(table)}.refs").collect()
    assert {name for (name,) in refs} == {"main", "audit"}


@pytest.mark.parametrize("options", [{}, {LAKE_PARTITION_BY.key: "bucket(2, id)"}], ids=["by us", "by Spark"])
def test_maintenance_works_on_the_branch(tiering: Tiering, options: dict[str, str]) -> None:
    table = branched(tiering, properties=options)
    for number in range(6):
        tiered(tiering, table, named([number, 100], f"round {number}"))
    first = publish(tiering, table, tag="quarter").snapshot_id
    # Somebody else compacts main.
    assert rewrite(tiering.spark, lake_of(tiering, table, "main"), None, {"rewrite-all": "true"}).files
    newest = tiered(tiering, table, named([200], "later"))

    done = compact_table(tiering.spark, table, min_input_files=2)

    assert (done.error, done.added_files) == (None, 2 if options else 1)
    assert lake_of(tiering, table).currentSnapshot().summary().get("total-delete-files") == "0"
    assert len(rows_of(tiering, table)) == 7
    # What is compacted is not what the round has committed, and has the same rows.
    assert publish(tiering, table).snapshot_id not in {first, newest}
    assert len(rows_of(tiering, table)) == 8
    assert tiering.equal(table)
    tiered(tiering, table, named([300], "last"))
    expiry = expire_snapshots(tiering.client, tiering.spark, table, older_than=timedelta(), retain_last=1)
    assert expiry.error is None
    assert expiry.expired > 0
    versions = ("main", "audit", "quarter")
    assert [len(rows_of(tiering, table, version)) for version in versions] == [8, 9, 7]
    assert publish(tiering, table).rounds == 1
    assert tiering.equal(table)


@pytest.mark.parametrize("branch", ["main", "audit"])
@pytest.mark.sampled(1)
def test_an_expiry_leaves_what_a_tag_needs(tiering: Tiering, branch: str) -> None:
    table = branched(tiering, primary_key=False, properties={"table.datalake.commit-branch": branch})
    for number in range(2):
        newest = tiered(tiering, table, named([number], "early"))
    if branch == "main":
        lake_of(tiering, table).manageSnapshots().createTag("kept", newest).commit()
    else:
        publish(tiering, table, tag="kept")
    # This removes the files that the tag needs, and is the oldest snapshot after it that is left.
    assert compact_table(tiering.spark, table, min_input_files=2).error is None
    tiered(tiering, table, named([2], "late"))
    if branch != "main":
        publish(tiering, table)
    expiry = expire_snapshots(tiering.client, tiering.spark, table, older_than=timedelta(), retain_last=1)
    assert expiry.error is None
    assert expiry.expired > 0
    assert rows_of(tiering, table, "kept") == named([0, 1], "early")
    assert set(rows_of(tiering, table)) == {0, 1, 2}


def test_an_expiry_leaves_a_branch_that_waits_for_its_checks(tiering: Tiering) -> None:
    table = branched(tiering, properties={"iceberg.history.expire.max-ref-age-ms": "1"})
    for number in range(2):
        tiered(tiering, table, named([number], "checked"))
        publish(tiering, table)
    waiting = tiered(tiering, table, named([2], "waits"))
    expiry = expire_snapshots(tiering.client, tiering.spark, table, older_than=timedelta(), retain_last=1)
    assert (expiry.error, expiry.expired) == (None, 1)
    assert publish(tiering, table, snapshot=waiting).rounds == 1


def test_an_expiry_of_a_table_without_a_branch_yet_is_done(tiering: Tiering) -> None:
    table = branched(tiering)
    tiered(tiering, table, named([1], "first"))
    drop_branch(tiering, table)
    assert expire_snapshots(tiering.client, tiering.spark, table, older_than=timedelta(), retain_last=1).error is None


def test_what_was_rolled_back_is_not_published_again(tiering: Tiering) -> None:
    table = branched(tiering)
    first = tiered(tiering, table, named([1], "first"))
    publish(tiering, table)
    tiered(tiering, table, named([2], "bad"))
    publish(tiering, table)
    lake_of(tiering, table).manageSnapshots().rollbackTo(first).commit()
    done = publish_table(tiering.client, tiering.spark, table)
    assert "it was rolled back or replaced" in str(done.error)
    assert rows_of(tiering, table) == named([1], "first")


def test_what_cannot_be_published_is_told(tiering: Tiering) -> None:
    table = branched(tiering)
    first = tiered(tiering, table, named([1, 2], "first"))
    publish(tiering, table, tag="taken")
    tiered(tiering, table, named([3], "second"))
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"snapshot": 7}, "the snapshot 7 is not in the history of the branch 'audit'"),
        ({"tag": "taken"}, "has a tag or a branch with the name 'taken'"),
        ({"tag": "audit"}, "and not main or audit"),
        ({"tag": "a b"}, "the tag 'a b': expected 1 to 200 letters"),
        ({"tag": "main"}, "and not main"),
        # A publish of main that somebody has changed would lose these changes.
        ({}, "somebody has changed rows of main"),
    )
    for options, told in cases:
        if not options:
            tiering.spark.sql(f"DELETE FROM {tiering.name(table)} WHERE id = 1")
        before = rows_of(tiering, table)
        done = publish_table(tiering.client, tiering.spark, table, **options)
        assert told in str(done.error)
        assert (rows_of(tiering, table), registered(tiering, table)) == (before, first), told
    tiered(tiering, table, named([4], "third"))
    assert set(rows_of(tiering, table, "audit")) == {1, 2, 3, 4}


def test_the_command_publishes_and_tells_what_is_wrong(
    tiering: Tiering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = command(tiering, monkeypatch)
    table, plain, new = branched(tiering), tiering.table(), branched(tiering)
    newest = tiered(tiering, table, named([1, 2], "first"))
    tiered(tiering, plain, named([1], "first"))
    server = ("--server", tiering.target)

    assert run("publish", str(table.path), "--tag", "week-48", *server) == 0

    said = capsys.readouterr().out
    assert f"1 round with 2 written rows published: main is at snapshot {newest}, tagged week-48" in said.replace(
        "\n", " "
    )
    assert run("verify", str(table.path), *server) == 0
    assert f"equal: 2 rows at lake snapshot {newest} of the branch audit." in capsys.readouterr().out.replace("\n", " ")
    assert run("publish", *map(str, (plain.path, new.path)), "--json", *server) == 1
    errors = [each["error"] for each in json.loads(capsys.readouterr().out)]
    assert "set the table option table.datalake.commit-branch" in errors[0]
    assert "nothing" in errors[1]
    with pytest.raises(FlussTieringError, match="--snapshot 1 is a snapshot of one lake table"):
        PublishOptions(tiering.target, (plain.path, new.path), snapshot=1)


def test_a_tag_is_no_branch(tiering: Tiering) -> None:
    table = branched(tiering)
    first = tiered(tiering, table, named([1], "first"))
    publish(tiering, table)
    drop_branch(tiering, table)
    lake_of(tiering, table, "main").manageSnapshots().createTag("audit", first).commit()
    tiering.write(table, named([2], "second"))

    (refused,) = tiering.tier_all(table)

    done = publish_table(tiering.client, tiering.spark, table)
    for error in (refused.error, done.error):
        assert "commit-branch of the table" in str(error)
        assert "which is a tag of the lake table" in str(error)
    lake_of(tiering, table, "main").manageSnapshots().removeTag("audit").commit()
    tiering.client.resume_tables([table.path])
    tiering.tier(table)
    assert publish(tiering, table).rounds == 1
