"""Exactly once, whatever happens to the driver and its tasks: killed at each step of the commit, or stopped.

Each driver is a process group of its own: the Python driver, Spark's JVM and its workers.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from driver_support import (
    COMMITTED,
    KILLED_AT,
    commit_count,
    driver_arguments,
    end,
    kill,
    let_go,
    start,
    start_faulty,
    wait_for_driver,
)
from pyspark import TaskContext, cloudpickle
from spark_support import Tiering, named

from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeFileWriter, PieceWriter
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.application import EXIT_INTERRUPTED, EXIT_TABLE_FAILED
from fluss_tiering.spark.submit import APPLICATION
from needs import needs
from waiting import WAIT_S, wait_until

# The drivers are started in a fixture, whose time counts as that of the first test.
pytestmark = pytest.mark.timeout(600)

KINDS = ["log table", "primary-key table"]

KILLED = named(range(10), "first")
CHANGED = named(range(5, 15), "second")


@pytest.fixture(scope="module")
def lake(lake_target: str, spark) -> Iterator[Tiering]:
    with TieringClient(lake_target) as client:
        yield Tiering(client, spark, lake_target)


def two_tables(lake: Tiering) -> dict[str, TableInfo]:
    """Return a table of each kind. The primary-key table has a snapshot, and a log after it."""
    tables = {"log table": lake.table(primary_key=False, num_buckets=2), "primary-key table": lake.table(num_buckets=2)}
    for table in tables.values():
        lake.write(table, KILLED)
    lake.client.take_kv_snapshots([tables["primary-key table"].path])
    for table in tables.values():
        lake.write(table, CHANGED)
    return tables


def expected_rows(kind: str) -> list[tuple[int, str]]:
    if kind == "log table":
        return sorted([*KILLED.items(), *CHANGED.items()])
    return sorted({**KILLED, **CHANGED}.items())


@dataclass(frozen=True)
class Killed:
    """What a killed driver left, and the state after the round was started again."""

    tables: dict[str, TableInfo]
    in_lake_before: dict[str, int]


@pytest.fixture(scope="module")
@needs("system")
def killed(lake: Tiering, tmp_path_factory) -> dict[tuple[str, str], Killed]:
    """Kill drivers at every step, two at a time. Then one new process starts all their rounds again."""
    folder = tmp_path_factory.mktemp("killed")
    tables = {at: two_tables(lake) for at in KILLED_AT}
    every = [table for each in tables.values() for table in each.values()]
    lease = lease_latest_snapshots(lake.client, "killed drivers", [table.path for table in every], 600_000)
    for pair in zip(KILLED_AT[::2], KILLED_AT[1::2], strict=True):
        drivers = {
            at: start_faulty("kill", *at, folder / "-".join(at), *driver_arguments(lake, lease, *tables[at].values()))
            for at in pair
        }
        for at, driver in drivers.items():
            code, output = end(driver)
            assert code == -signal.SIGKILL, output
            assert (folder / "-".join(at)).exists()
    before = {at: {kind: commit_count(lake, table) for kind, table in each.items()} for at, each in tables.items()}
    code, output = end(start(str(APPLICATION), *driver_arguments(lake, lease, *every)))
    assert code == 0, output
    return {at: Killed(tables[at], before[at]) for at in KILLED_AT}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("when", "step"), KILLED_AT)
def test_a_driver_killed_at_any_step_of_the_commit_leaves_every_row_once(lake: Tiering, killed, when, step, kind):
    left = killed[when, step]
    table = left.tables[kind]

    assert lake.lake_rows(table) == expected_rows(kind)
    files = lake.files(table)
    assert len(files) == len(set(files))
    # What was committed is registered, never committed again.
    assert left.in_lake_before[kind] == (1 if (when, step) in COMMITTED else 0)
    assert commit_count(lake, table) == 1
    registered = lake.client.lake_snapshot(table.path)
    assert registered.snapshot_id == lake.snapshots(table)[-1].snapshot_id
    assert registered.log_end_offsets == lake.log_ends(table)
    newest, *older = lake.rounds(table)
    assert newest.state is TieringState.TIERED
    assert [each.state for each in older] == [TieringState.FAILED]


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
    lake.write(table, CHANGED)
    lake.tier(table)
    assert lake.lake_rows(table) == expected_rows("primary-key table")
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
