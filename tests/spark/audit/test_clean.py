"""Orphans are found, kept while their round may still commit them, and deleted on demand."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from held_writer import HeldStage
from spark_support import Tiering, command, data_folder, in_background, named

from fluss_tiering.lake.iceberg import orphans
from fluss_tiering.lake.iceberg.commit import IcebergCommitter
from fluss_tiering.lake.iceberg.metadata import summary
from fluss_tiering.lake.names import epoch_of_file, round_file_name
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.audit.clean import TableFiles, clean_table
from fluss_tiering.spark.maintenance.expire import expire_snapshots

DAY = timedelta(days=1)


def age(folder: Path, days: float = 4) -> None:
    """Make every file in a folder this many days old."""
    then = time.time() - days * 86_400
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


def clean(tiering: Tiering, table: TableInfo, *, delete: bool = False, grace: timedelta = 3 * DAY) -> TableFiles:
    found = clean_table(tiering.spark, table, grace=grace, delete=delete)
    assert found.error is None
    return found


def names(found: TableFiles, *, kept: bool) -> set[str]:
    return {Path(each.location).name for each in found.orphans if (each.kept is not None) == kept}


def lost_attempt(tiering: Tiering, table: TableInfo, epoch: int, *, days: float = 4) -> str:
    """Write a file as a killed worker leaves it."""
    name = f"{round_file_name(0, epoch, uuid.uuid4())}-7-00000.parquet"
    folder = data_folder(table)
    (folder / name).write_bytes(b"PAR1")
    then = time.time() - days * 86_400
    os.utime(folder / name, (then, then))
    return name


def test_the_name_of_a_round_s_file_tells_its_epoch():
    attempt = uuid.uuid4()

    assert epoch_of_file(f"file:/w/db/t/data/id_bucket=0/{round_file_name(12, 345, attempt)}-9-00000.parquet") == 345
    assert epoch_of_file(f"s3://b/data/0101/{round_file_name(100000, 1, attempt)}-9-deletes-00001.parquet") == 1
    # Spark's own: PARTITION-TASK-OPERATION-COUNT
    assert epoch_of_file(f"file:/w/data/00000-7-{attempt}-00001.parquet") is None
    assert epoch_of_file("file:/w/data/other.parquet") is None


def test_only_what_no_snapshot_refers_to_and_is_old_enough_is_listed_and_then_deleted(tiering: Tiering):
    table = tiering.tiered(named(range(20), "first"), num_buckets=2)
    epoch = tiering.round(table, named(range(10), "second")).epoch
    # What only an older snapshot refers to stays too.
    tiering.spark.sql(f"DELETE FROM {tiering.name(table)} WHERE id < 1000")
    age(data_folder(table))
    referred = tiering.files_on_disk(table)
    old = lost_attempt(tiering, table, epoch)
    young = lost_attempt(tiering, table, epoch, days=2)

    listed = clean(tiering, table)
    assert names(listed, kept=False) == {old}
    assert names(listed, kept=True) == set()
    assert set(tiering.files_on_disk(table)) == {*referred, old, young}

    deleted = clean(tiering, table, delete=True)
    assert {Path(each).name for each in deleted.deleted} == {old}
    assert set(tiering.files_on_disk(table)) == {*referred, young}
    before = tiering.snapshots(table)[1].snapshot_id
    rows = tiering.spark.sql(f"SELECT id, name FROM {tiering.name(table)} VERSION AS OF {before}").collect()
    assert len(rows) == 20


def test_files_of_a_running_round_are_kept_until_a_later_one_has_committed(tiering: Tiering, tmp_path, monkeypatch):
    table = tiering.tiered(named(range(10), "first"))
    tiering.write(table, named(range(10), "second"))
    with monkeypatch.context() as patched:
        held = HeldStage(tmp_path, patched)
        tiered = in_background(tiering, table)
        held.wait()
        running = lost_attempt(tiering, table, tiering.rounds(table)[0].tiering_epoch)

        assert names(clean(tiering, table, delete=True), kept=True) == {running}
        assert running in tiering.files_on_disk(table)
        held.go()
        assert tiered.result(120)[0].error is None

    # Its round is decided: it can no longer commit this file.
    assert names(clean(tiering, table, delete=True), kept=False) == {running}
    assert running not in tiering.files_on_disk(table)


def test_files_of_a_commit_without_a_known_outcome_are_kept(tiering: Tiering, monkeypatch):
    table = tiering.tiered(named(range(10), "first"))
    tiering.write(table, named(range(10), "second"))

    def unanswered(committer, pieces, commit):
        raise FlussTieringError(ErrorCode.STORAGE, "the commit failed, its files are kept")

    with monkeypatch.context() as patched:
        patched.setattr(IcebergCommitter, "commit", unanswered)
        assert tiering.tier_all(table)[0].failed
    age(data_folder(table))
    unknown = set(tiering.files_on_disk(table)) - set(tiering.files(table))
    assert unknown

    assert names(clean(tiering, table, delete=True), kept=True) == unknown
    assert unknown < set(tiering.files_on_disk(table))
    tiering.tier(table)
    assert names(clean(tiering, table, delete=True), kept=False) == unknown
    assert tiering.lake_rows(table) == sorted(named(range(10), "second").items())


def test_a_table_without_files_and_one_that_cannot_be_read_are_told_apart(tiering: Tiering):
    empty, foreign = tiering.table(), tiering.table()
    for table in (empty, foreign):
        tiering.tier(table)
    tiering.spark.sql(f"ALTER TABLE {tiering.name(foreign)} DROP COLUMN name")

    assert clean(tiering, empty).orphans == []
    assert (
        "rounds cannot write to the lake table" in clean_table(tiering.spark, foreign, grace=3 * DAY, delete=True).error
    )


def test_files_of_a_renamed_lake_table_stay(tiering: Tiering):
    table = tiering.tiered(named(range(10), "first"))
    tiering.spark.sql(f"ALTER TABLE {tiering.name(table)} RENAME TO {table.path}_renamed")
    tiering.client.drop_table(table.path)
    again = tiering.client.create_table(table.path, table.descriptor)
    tiering.round(again, named(range(5), "again"))
    for folder in (data_folder(again), data_folder(again).with_name("metadata")):
        age(folder)

    found = clean(tiering, again, delete=True)

    assert found.orphans
    assert not found.deleted
    assert all("another lake table was made in this folder" in each.kept for each in found.orphans)
    assert tiering.spark.sql(f"SELECT count(id) FROM {tiering.name(again)}_renamed").collect() == [(10,)]


def test_files_in_a_data_folder_of_several_tables_stay(tiering: Tiering, tmp_path):
    shared = {"iceberg.write.data.path": f"file:{tmp_path}/shared"}
    one, other = tiering.table(properties=shared), tiering.table(properties=shared)
    for table in (one, other):
        tiering.round(table, named(range(10), "row"))
    age(tmp_path)

    found = clean(tiering, one, delete=True)

    assert found.orphans
    assert not found.deleted
    assert all("outside of the lake table's own folder" in each.kept for each in found.orphans)
    assert tiering.lake_rows(other) == sorted(named(range(10), "row").items())


def test_a_grace_period_below_a_day_is_refused(tiering: Tiering):
    table = tiering.table()

    with pytest.raises(FlussTieringError, match="expected one day or more") as refused:
        clean_table(tiering.spark, table, grace=timedelta(hours=23), delete=False)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_the_command_lists_and_deletes_the_files_of_several_tables(tiering: Tiering, monkeypatch, capsys):
    run = command(tiering, monkeypatch)
    first, second, other, untiered = (tiering.table() for _ in range(4))
    lost = []
    for table in (first, second, other):
        tiering.write(table, named(range(10), "row"))
        lost.append(lost_attempt(tiering, table, tiering.tier(table).epoch))

    arguments = ["clean", str(first.path), str(second.path), str(first.path), "--server", tiering.target]
    assert run(*arguments) == 0
    assert f"{lost[0]} may be deleted" in capsys.readouterr().out
    assert run(*arguments, "--delete", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["table_name"] for each in found] == [first.path.table, second.path.table]
    files = [(Path(file["location"]).name, file["deleted"]) for each in found for file in each["files"]]
    assert files == [(lost[0], True), (lost[1], True)]
    assert lost[0] not in tiering.files_on_disk(first)
    assert lost[2] in tiering.files_on_disk(other)
    assert run(*arguments, str(untiered.path), "--json") == 1
    assert [each["error"] is None for each in json.loads(capsys.readouterr().out)] == [True, True, False]


# D49: Iceberg does not know the offsets files of tables with many buckets
def test_the_offsets_file_of_the_newest_commit_stays_and_older_ones_go(tiering: Tiering, monkeypatch):
    monkeypatch.setattr(summary, "_MAX_OFFSETS_LENGTH", 0)
    table = tiering.table()
    for step in range(3):
        tiering.round(table, named(range(4), f"step {step}"))
    age(data_folder(table))
    offsets = sorted(path.name for path in data_folder(table).glob("*-offsets.json"))
    epochs = {name: epoch_of_file(name) for name in offsets}
    newest = max(offsets, key=lambda name: epochs[name])

    found = clean(tiering, table, delete=True)

    assert len(offsets) == 3
    assert names(found, kept=False) == set(offsets) - {newest}
    assert [path.name for path in data_folder(table).glob("*-offsets.json")] == [newest]


def test_snapshots_that_expire_while_files_are_listed_are_no_failure(tiering: Tiering, monkeypatch) -> None:
    table = tiering.table()
    for number in range(3):
        tiering.round(table, named(range(3), f"round {number}"))
    orphan = lost_attempt(tiering, table, epoch=0)
    find, tries = orphans.unreferenced_files, []

    def beside_an_expiry(spark, java_table, *arguments):
        if not tries:
            assert expire_snapshots(tiering.client, spark, table, older_than=timedelta()).expired == 2
        tries.append(arguments)
        return find(spark, java_table, *arguments)

    monkeypatch.setattr(orphans, "unreferenced_files", beside_an_expiry)
    assert names(clean(tiering, table), kept=False) == {orphan}
    assert len(tries) >= 2, "the first one has met manifests that are gone"


@pytest.mark.slow
def test_files_that_vanish_while_files_are_listed_are_no_failure(tiering: Tiering) -> None:
    table = tiering.tiered(named(range(3), "row"))
    orphan = lost_attempt(tiering, table, epoch=0)
    folder, ended = data_folder(table), threading.Event()

    def come_and_go() -> None:
        # As a round writes files, and an expiry deletes them.
        while not ended.is_set():
            files = [folder / f"{name}.parquet" for name in range(50)]
            for file in files:
                file.touch()
            for file in files:
                file.unlink()

    others = threading.Thread(target=come_and_go)
    others.start()
    try:
        for _ in range(5):
            assert orphan in names(clean(tiering, table), kept=False)
    finally:
        ended.set()
        others.join()
