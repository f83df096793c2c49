"""Exactly once, whatever happens to the driver and its tasks: killed at each step of the commit, or stopped.

A driver that is killed is a process group of its own: the Python driver, Spark's JVM and its workers. This process
tiers the tables next.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver_support import (
    COMMITTED,
    KILLED_AT,
    SHARPEST,
    commit_count,
    driver_arguments,
    kill,
    kill_a_driver,
    let_go,
    start_faulty,
    wait_for_driver,
)
from pyspark import TaskContext, cloudpickle
from spark_support import Tiering, named

from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeFileWriter, PieceWriter
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.application import EXIT_INTERRUPTED, EXIT_TABLE_FAILED
from waiting import WAIT_S, wait_until

KILLED = named(range(10), "first")
CHANGED = named(range(5, 15), "second")


@pytest.fixture(scope="module")
def lake(lake_target: str, spark) -> Iterator[Tiering]:
    with TieringClient(lake_target) as client:
        yield Tiering(client, spark, lake_target)


@pytest.mark.system
@pytest.mark.parametrize("at", [pytest.param(at, marks=() if at == SHARPEST else pytest.mark.long) for at in KILLED_AT])
def test_a_driver_killed_at_any_step_of_the_commit_leaves_every_row_once(lake: Tiering, tmp_path, at: tuple[str, str]):
    log, keyed = lake.table(primary_key=False, num_buckets=2), lake.table(num_buckets=2)
    for table in (log, keyed):
        lake.write(table, KILLED)
    lake.client.take_kv_snapshots([keyed.path])
    for table in (log, keyed):
        lake.write(table, CHANGED)
    lease = lease_latest_snapshots(lake.client, f"killed {at}", [log.path, keyed.path], 600_000)
    kill_a_driver(lake, lease, (log, keyed), at, tmp_path / "killed")
    for table in (log, keyed):
        assert commit_count(lake, table) == (1 if at in COMMITTED else 0)

    results = lake.tier_all(log, keyed, lease_id=lease.lease_id, attempt_token=lease.attempt_token)

    assert [result.error for result in results] == [None, None]
    assert lake.lake_rows(log) == sorted([*KILLED.items(), *CHANGED.items()])
    assert lake.lake_rows(keyed) == sorted({**KILLED, **CHANGED}.items())
    for table in (log, keyed):
        files = lake.files(table)
        assert len(files) == len(set(files))
        # What was committed is registered, never committed again.
        assert commit_count(lake, table) == 1
        registered = lake.client.lake_snapshot(table.path)
        assert registered.snapshot_id == lake.snapshots(table)[-1].snapshot_id
        assert registered.log_end_offsets == lake.log_ends(table)
        assert [each.state for each in lake.rounds(table)] == [TieringState.TIERED, TieringState.FAILED]


# S5, S22, L18, regression: Fluss #2648
@pytest.mark.sampled(1)
@pytest.mark.system
@pytest.mark.parametrize("woken", ["after the successor's commit", "before the successor's commit"])
def test_of_a_stopped_driver_and_its_successor_exactly_one_lands(lake: Tiering, tmp_path, monkeypatch, woken):
    table = lake.table()
    lake.write(table, KILLED)
    lease = lease_latest_snapshots(lake.client, f"stopped, let go {woken}", [table.path], 600_000)
    marker = tmp_path / "stopped"
    stopped = start_faulty("stop", "after", "prepare", marker, *driver_arguments(lake, lease, table))
    try:
        wait_for_driver(stopped, marker.exists)
        results = {}

        def let_it_go() -> None:
            results["stopped"] = let_go(stopped)

        if woken == "before the successor's commit":
            commit = IcebergTable.commit

            def commit_late(*args, **kwargs) -> int:
                let_it_go()
                return commit(*args, **kwargs)

            monkeypatch.setattr(IcebergTable, "commit", commit_late)
        (successor,) = lake.tier_all(table, lease_id=lease.lease_id, attempt_token=lease.attempt_token)
        monkeypatch.undo()
        if "stopped" not in results:
            let_it_go()
    finally:
        kill(stopped)

    code, output = results["stopped"]
    # The lake refuses its commit, or it hears before that its round was superseded.
    assert code in (EXIT_TABLE_FAILED, EXIT_INTERRUPTED), output
    assert commit_count(lake, table) == 1
    if woken == "before the successor's commit":
        # It won in the lake, and was fenced when it wanted to register that.
        assert "is not its present one" in output
        assert "changed by somebody else" in successor.error
        assert lake.client.lake_snapshot(table.path) is None
    else:
        assert "changed by somebody else" in output or "is not its present one" in output
        assert not successor.failed
    lake.round(table, CHANGED)
    assert lake.lake_rows(table) == sorted({**KILLED, **CHANGED}.items())
    assert set(lake.files(table)) == set(lake.files_on_disk(table))


class DiesOnFirstAttempt(LakeFileWriter):
    """A worker that once writes its files and dies before it can report them."""

    def __init__(self, writer: LakeFileWriter) -> None:
        self._writer = writer

    def open_piece(self, bucket: int, location: str, attempt: int, *partition: tuple[str, ...]) -> PieceWriter:
        writer = self._writer.open_piece(bucket, location, attempt, *partition)
        if TaskContext.get().attemptNumber() == 0:
            close = writer.close

            def close_and_die():
                close()
                os._exit(1)

            writer.close = close_and_die
        return writer


def test_a_task_that_dies_once_leaves_only_its_second_attempt_s_files_in_the_commit(lake: Tiering, monkeypatch):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    file_writer = IcebergTable.file_writer
    monkeypatch.setattr(IcebergTable, "file_writer", lambda table: DiesOnFirstAttempt(file_writer(table)))
    table = lake.table(primary_key=False)
    lake.write(table, KILLED)

    lake.tier(table)

    assert lake.lake_rows(table) == sorted(KILLED.items())
    (committed,) = lake.files(table)
    assert len(lake.files_on_disk(table)) == 2
    assert committed == max(lake.files_on_disk(table), key=attempt_of)


def attempt_of(file: str) -> int:
    """Return the task attempt in a file name of the form NUMBER-UUID-ATTEMPT-NUMBER.parquet."""
    return int(file.split("-")[-2])


class NeverCloses(LakeFileWriter):
    """A worker that never ends."""

    def __init__(self, writer: LakeFileWriter, started: str) -> None:
        self._writer = writer
        self._started = started

    def open_piece(self, bucket: int, location: str, attempt: int, *partition: tuple[str, ...]) -> PieceWriter:
        Path(self._started).touch()
        time.sleep(WAIT_S)
        return self._writer.open_piece(bucket, location, attempt, *partition)


def test_sigterm_stops_the_stage_records_the_failure_and_releases(lake: Tiering, tmp_path, monkeypatch):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    started = tmp_path / "started"
    file_writer = IcebergTable.file_writer
    monkeypatch.setattr(IcebergTable, "file_writer", lambda table: NeverCloses(file_writer(table), str(started)))
    table = lake.table()
    lake.write(table, KILLED)

    def terminate() -> None:
        wait_until(started.exists)
        os.kill(os.getpid(), signal.SIGTERM)

    terminator = threading.Thread(target=terminate)
    terminator.start()
    began = time.monotonic()
    with pytest.raises(SystemExit) as exited:
        lake.tier_all(table)
    terminator.join()

    assert exited.value.code == 128 + signal.SIGTERM
    assert time.monotonic() - began < WAIT_S / 2
    (newest,) = lake.rounds(table)
    assert newest.state is TieringState.FAILED
    assert newest.error.startswith("cancelled")
    assert lake.client.list_leases(newest.lease_id) == []
