"""Compaction and expiry of snapshots: during rounds, with conflicts, and with a recovery after them."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from maintenance_support import compact, expire, ids, known, rounds, tier_without_registering
from spark_support import Tiering, command, data_folder, named

from engine_support import SCHEMA
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.file_counts import manifest_sizes
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.spark.maintenance import compact as compact_module
from fluss_tiering.spark.maintenance.compact import Compaction, compact_table
from fluss_tiering.spark.maintenance.expire import expire_snapshots
from fluss_tiering.spark.maintenance.maintain import maintain_table
from fluss_tiering.spark.maintenance.plan import Step
from waiting import wait_until


def commit(lake: IcebergTable, table: TableInfo, rows: dict[int, str]) -> int:
    """Commit as a round does: delete the keys and write their rows, without a Spark task."""
    writer = lake.file_writer().open_piece(0, lake.piece_location(0, str(uuid.uuid4())), 0)
    batch = pa.RecordBatch.from_pydict({"id": list(rows), "name": list(rows.values())}, schema=SCHEMA)
    offsets = np.arange(len(rows), dtype=np.int64)
    writer.write(batch, offsets, offsets)
    if table.has_primary_key:
        writer.delete(batch.select(["id"]))
    ends = {TableBucket(table.table_id, 0): 1000}
    return lake.commit([writer.close()], LakeCommit(table.table_id, 1000, str(uuid.uuid4()), "/offsets", ends))


def commits(tiering: Tiering, table: TableInfo, count: int) -> None:
    """Commit like `rounds`, but only in the lake."""
    IcebergCatalogs(tiering.spark).open_table(table)
    for number in range(count):
        commit(tiering.lake_table(table), table, named(range(10), f"round {number}"))


@contextmanager
def busy_spark(tiering: Tiering, folder: Path) -> Iterator[threading.Event]:
    """Occupy every core until the event is set. Tasks that are planned in the meantime wait."""
    started, go = folder / "started", folder / "go"
    free = threading.Event()

    def wait(numbers: Iterator[int]) -> None:
        for number in numbers:
            Path(f"{started}-{number}").touch()
            deadline = time.monotonic() + 120
            while not go.exists() and time.monotonic() < deadline:
                time.sleep(0.02)

    context = tiering.spark.sparkContext
    with ThreadPoolExecutor(2) as pool:
        blocked = pool.submit(context.parallelize(range(2), 2).foreachPartition, wait)
        pool.submit(lambda: free.wait(120) and go.touch())
        try:
            wait_until(lambda: all(Path(f"{started}-{number}").exists() for number in range(2)))
            yield free
        finally:
            free.set()
            blocked.result(120)


def compacting(tiering: Tiering, table: TableInfo) -> Future[Compaction]:
    """Start a compaction, which has planned its rewrite and waits for a core."""
    tracker = tiering.spark.sparkContext.statusTracker()
    before = set(tracker.getActiveJobsIds())
    pool = ThreadPoolExecutor(1)
    running = pool.submit(compact_table, tiering.spark, table, min_input_files=2)
    pool.shutdown(wait=False)
    wait_until(lambda: set(tracker.getActiveJobsIds()) - before or running.done())
    assert not running.done()
    return running


@pytest.mark.parametrize("primary_key", [True, False])
@pytest.mark.sampled(1)
def test_small_files_and_deletes_are_rewritten_and_rounds_go_on(tiering: Tiering, primary_key):
    table = tiering.table(primary_key=primary_key)
    rounds(tiering, table, 3)
    if primary_key:
        tiering.delete(table, [0])
        tiering.tier(table)
    rows = tiering.lake_rows(table)

    done = compact(tiering, table)

    assert done.after.data_files == done.added_files == 1
    assert done.rewritten_files == done.before.data_files == 3
    assert done.rewritten_bytes > 0
    assert done.before.delete_files == (3 if primary_key else 0)
    assert done.after.delete_files == 0
    assert done.after.file_bytes < done.before.file_bytes
    assert tiering.lake_rows(table) == rows
    assert tiering.equal(table)
    assert compact(tiering, table).rewritten_files == 0
    tiering.round(table, named(range(5, 15), "after"))
    assert tiering.equal(table)


def test_a_file_is_rewritten_for_its_deletes_alone_once_there_are_enough(tiering: Tiering):
    table = tiering.table()
    commits(tiering, table, 2)

    assert compact(tiering, table, min_input_files=5, delete_files=3).rewritten_files == 0
    done = compact(tiering, table, min_input_files=5, delete_files=1)

    # With a file that has deletes the bucket's other small ones are rewritten.
    assert (done.rewritten_files, done.added_files) == (2, 1)
    assert done.after.delete_files == 0
    assert tiering.lake_rows(table) == sorted(named(range(10), "round 1").items())


def test_deletes_that_are_committed_during_a_compaction_apply_to_what_it_writes(tiering: Tiering, tmp_path):
    table = tiering.table()
    commits(tiering, table, 2)
    with busy_spark(tiering, tmp_path) as free:
        running = compacting(tiering, table)
        commit(tiering.lake_table(table), table, named(range(5), "during"))
        free.set()
        done = running.result(120)

    assert (done.error, done.conflicts) == (None, 0)
    assert done.rewritten_files == 2
    assert tiering.lake_rows(table) == sorted({**named(range(10), "round 1"), **named(range(5), "during")}.items())


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_compaction_whose_files_somebody_removed_begins_anew_or_says_so(
    tiering: Tiering, tmp_path, monkeypatch, attempts
):
    monkeypatch.setattr(compact_module, "_ATTEMPTS", attempts)
    table = tiering.table(primary_key=False)
    commits(tiering, table, 2)
    with busy_spark(tiering, tmp_path) as free:
        running = compacting(tiering, table)
        everything = tiering.spark._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        tiering.lake_table(table).java_table.newDelete().deleteFromRowFilter(everything).commit()
        free.set()
        done = running.result(120)

    if attempts == 1:
        assert done.error.startswith(
            f"could not compact the lake table {table.path}: rounds or others changed the same files in each of 1 "
            "attempts; try again while fewer rounds of the table run"
        )
        assert "Missing required files to delete" in done.error
    else:
        assert (done.error, done.conflicts, done.rewritten_files) == (None, 1, 0)
    assert tiering.lake_rows(table) == []


def test_a_rewrite_by_spark_that_meets_a_damaged_file_says_how_to_find_it(tiering: Tiering):
    table = tiering.table(properties={"table.datalake.enabled": "true", "table.datalake.delete-files": "equality"})
    rounds(tiering, table, 2)
    for file in data_folder(table).rglob("*.parquet"):
        metadata = pq.read_metadata(file)
        names = metadata.row_group(0).column(metadata.schema.names.index("id"))
        content = bytearray(file.read_bytes())
        content[(names.dictionary_page_offset or names.data_page_offset) + names.total_compressed_size - 1] ^= 1
        file.write_bytes(content)
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)

    done = compact_table(tiering.spark, table, min_input_files=2)
    assert done.error is not None
    assert done.error.endswith(f"; fluss-tiering verify {table.path} names files that are missing or damaged")


def test_many_small_manifests_become_few(tiering: Tiering):
    table = tiering.table(primary_key=False)
    commits(tiering, table, 11)
    assert len(manifest_sizes(tiering.lake_table(table).java_table)) == 11

    compact(tiering, table, min_input_files=100)

    assert len(manifest_sizes(tiering.lake_table(table).java_table)) == 1
    assert len(tiering.lake(table)) == 110


def test_many_small_manifests_of_a_branch_stay(tiering: Tiering):
    table = tiering.table(
        primary_key=False, properties={"table.datalake.enabled": "true", "table.datalake.commit-branch": "audit"}
    )
    commits(tiering, table, 11)
    done = maintain_table(tiering.client, tiering.spark, table, steps=[Step.MANIFESTS])
    assert (done.error, done.fewer_manifests) == (None, 0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("damaged", "version"), [("newest", "2"), ("newest", "3"), ("oldest", "2"), ("oldest", "3")])
def test_an_expiry_beside_a_damaged_snapshot_says_what_it_has_done(tiering: Tiering, damaged: str, version: str):
    table = tiering.table(properties={"iceberg.format-version": version})
    rounds(tiering, table, 3)
    before = ids(tiering, table)
    java = IcebergCatalogs(tiering.spark).open_table(table).java_table
    snapshot = java.snapshot(before[-1 if damaged == "newest" else 0])
    manifest_list = Path(urlparse(snapshot.manifestListLocation()).path)
    whole = manifest_list.read_bytes()
    manifest_list.write_bytes(whole[:100])
    try:
        done = expire_snapshots(tiering.client, tiering.spark, table, older_than=timedelta())
    finally:
        manifest_list.write_bytes(whole)

    said = "a file of the lake seems to be missing or damaged"
    if damaged == "newest":
        # The older ones may be all that is left to readers.
        assert done.error is not None
        assert done.error.startswith(said)
        assert "expired" not in done.error
        assert ids(tiering, table) == before
    elif version == "2":
        assert (done.error, done.expired) == (None, 2)
    else:
        assert done.error is not None
        assert done.error.startswith(said)
        assert done.error.endswith(
            "; 2 snapshots were expired before that, but their files may still be there: run fluss-tiering clean, "
            "which removes them once they are old enough"
        )
    assert tiering.equal(table)
    assert expire(tiering, table).error is None
    assert ids(tiering, table) == [known(tiering, table)]


# The newest snapshot of ours is what readers of Fluss read, and what recovery looks for.
def test_our_snapshot_below_a_compaction_stays(tiering: Tiering):
    table = tiering.table()
    rounds(tiering, table, 3)
    ours = known(tiering, table)
    compact(tiering, table)
    compacted = ids(tiering, table)[3:]
    assert compacted

    done = expire(tiering, table)

    assert ids(tiering, table) == [ours, *compacted]
    assert (done.expired, done.needed) == (2, len(compacted))
    old = tiering.spark.sql(f"SELECT id, name FROM {tiering.name(table)} VERSION AS OF {ours}").collect()
    assert sorted(map(tuple, old)) == sorted(named(range(10), "round 2").items())
    assert tiering.equal(table)
    rounds(tiering, table, 1)
    assert tiering.equal(table)


@pytest.mark.parametrize("earlier_rounds", [0, 2])
@pytest.mark.sampled(1)
def test_a_commit_that_was_not_registered_survives_expiry_and_is_registered(
    tiering: Tiering, monkeypatch, earlier_rounds
):
    table = tiering.table()
    rounds(tiering, table, earlier_rounds)
    tiering.write(table, named(range(5), "unregistered"))
    unregistered = tier_without_registering(tiering, table, monkeypatch)
    rows = tiering.lake_rows(table)
    compact(tiering, table)

    done = expire(tiering, table, retain_last=1)

    assert done.expired == max(0, earlier_rounds - 1)
    assert unregistered in ids(tiering, table)
    if earlier_rounds:
        assert known(tiering, table) in ids(tiering, table)
    # Nothing is new, so that the next round does nothing but register.
    assert tiering.tier(table).stats.rows == 0
    assert known(tiering, table) == unregistered
    assert tiering.lake_rows(table) == rows
    assert tiering.equal(table)


# L18: the fence stands on the lake's history, which expiry shortens.
@pytest.mark.parametrize("base", ["none", "a snapshot"])
@pytest.mark.sampled(1)
def test_a_stale_driver_whose_base_was_expired_is_still_refused(tiering: Tiering, base):
    table = tiering.table()
    tiering.tier(table)
    if base == "a snapshot":
        rounds(tiering, table, 1)
    stale = IcebergCatalogs(tiering.spark).open_table(table)
    rounds(tiering, table, 2)
    assert expire(tiering, table).kept == 1

    with pytest.raises(FlussTieringError) as refused:
        commit(stale, table, named(range(10), "stale"))

    assert refused.value.code is ErrorCode.LAKE_CONFLICT
    assert tiering.lake_rows(table) == sorted(named(range(10), "round 1").items())
    assert tiering.equal(table)


def test_an_expiry_that_could_not_keep_what_is_needed_is_refused(tiering: Tiering):
    table = tiering.table()
    rounds(tiering, table, 2)
    compact(tiering, table)
    lake = tiering.lake_table(table)
    lake.java_table.manageSnapshots().setMaxSnapshotAgeMs("main", 1).commit()
    before = ids(tiering, table)

    done = expire_snapshots(tiering.client, tiering.spark, table)

    assert "has a snapshot age of its own" in done.error
    assert ids(tiering, table) == before
    tiering.spark.sql(f"ALTER TABLE {tiering.name(table)} SET TBLPROPERTIES ('gc.enabled'='false')")
    done = expire_snapshots(tiering.client, tiering.spark, table)
    assert "gc.enabled=false" in done.error  # E23
    assert "for tables of Nessie its tool nessie-gc: ValidationException" in done.error


def test_the_commands_in_json(tiering: Tiering, monkeypatch, capsys):
    run = command(tiering, monkeypatch)
    table = tiering.table(primary_key=False)
    rounds(tiering, table, 2)
    arguments = [str(table.path), "--server", tiering.target, "--json"]

    assert run("compact", *arguments, "--min-input-files", "2") == 0
    (done,) = json.loads(capsys.readouterr().out)
    assert done["table_name"] == table.path.table
    assert (done["data_files_before"], done["data_files_after"], done["rewritten_files"]) == (2, 1, 2)
    assert (done["conflicts"], done["error"]) == (0, None)
    assert run("expire", *arguments, "--older-than", "0s", "--retain-last", "1") == 0
    (done,) = json.loads(capsys.readouterr().out)
    assert (done["expired"], done["needed"], done["error"]) == (1, 1, None)
