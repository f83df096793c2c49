"""Exactly once, whatever happens to the driver and its tasks: killed at every step of the commit, stopped, let go late.

A driver here is a process group of its own: the Python driver, Spark's JVM and its workers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark import TaskContext, cloudpickle
from spark_support import Tiering, driver_environment, named

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeFileWriter, PieceWriter
from fluss_tiering.model.lease import AcquiredLease
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.submit import APPLICATION, application_arguments

# The drivers are started in a fixture, whose time counts as that of the first test.
pytestmark = [pytest.mark.spark, pytest.mark.system, pytest.mark.timeout(600)]

_PATIENCE_S = 120
_FAULTY_DRIVER = Path(__file__).with_name("faulty_driver.py")
KILLED_AT = [(when, step) for step in ("prepare", "lake", "register") for when in ("before", "after")]
KINDS = ["log table", "primary-key table"]

KILLED = named(range(10), "first")
CHANGED = named(range(5, 15), "second")


@pytest.fixture(scope="module")
def lake(lake_target: str, spark) -> Iterator[Tiering]:
    with TieringClient(lake_target) as client:
        yield Tiering(client, spark, lake_target)


def arguments(lake: Tiering, lease: AcquiredLease, *tables: TableInfo) -> list[str]:
    return application_arguments(
        server=lake.target,
        tables=[table.path for table in tables],
        lease_id=lease.lease_id,
        attempt_token=lease.attempt_token,
    )


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=driver_environment(),
    )


def end(driver: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and output of a driver that ends by itself."""
    try:
        output, _ = driver.communicate(timeout=_PATIENCE_S)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
    return driver.returncode, output


def two_tables(lake: Tiering) -> dict[str, TableInfo]:
    """One of each kind; the one with a primary key has a snapshot and a log behind it."""
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
    """What a killed driver left, and what is there after the round was started again."""

    tables: dict[str, TableInfo]
    in_lake_before: dict[str, int]


@pytest.fixture(scope="module")
def killed(lake: Tiering, tmp_path_factory) -> dict[tuple[str, str], Killed]:
    """Drivers killed at every step, two at a time; then one fresh process starts all of their rounds again."""
    folder = tmp_path_factory.mktemp("killed")
    tables = {at: two_tables(lake) for at in KILLED_AT}
    every = [table for each in tables.values() for table in each.values()]
    lease = lake.client.lease_latest_snapshots("killed drivers", [table.path for table in every], 600_000)
    for pair in zip(KILLED_AT[::2], KILLED_AT[1::2], strict=True):
        drivers = {
            at: start(
                str(_FAULTY_DRIVER),
                "kill",
                *at,
                str(folder / "-".join(at)),
                *arguments(lake, lease, *tables[at].values()),
            )
            for at in pair
        }
        for at, driver in drivers.items():
            code, output = end(driver)
            assert code == -signal.SIGKILL, output
            assert (folder / "-".join(at)).exists()
    before = {at: {kind: snapshot_count(lake, table) for kind, table in each.items()} for at, each in tables.items()}
    code, output = end(start(str(APPLICATION), *arguments(lake, lease, *every)))
    assert code == 0, output
    return {at: Killed(tables[at], before[at]) for at in KILLED_AT}


def snapshot_count(lake: Tiering, table: TableInfo) -> int:
    commits = {row.summary["fluss-tiering.commit-id"] for row in lake.snapshots(table)}
    return len(commits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("when", "step"), KILLED_AT)
def test_a_driver_killed_at_any_step_of_the_commit_leaves_every_row_once(lake: Tiering, killed, when, step, kind):
    left = killed[when, step]
    table = left.tables[kind]

    assert lake.lake_rows(table) == expected_rows(kind)
    files = lake.files(table)
    assert len(files) == len(set(files))
    # The lake's commit is what counts: what was committed is registered, never committed again.
    committed = (step, when) in {("lake", "after"), ("register", "before"), ("register", "after")}
    assert left.in_lake_before[kind] == (1 if committed else 0)
    assert snapshot_count(lake, table) == 1
    registered = lake.client.lake_snapshot(table.path)
    assert registered.snapshot_id == lake.snapshots(table)[-1].snapshot_id
    ends = {each.bucket: each.log_end_offset for each in lake.client.list_buckets([table.path])[table.path]}
    assert registered.log_end_offsets == ends
    newest, *older = lake.rounds(table)
    assert newest.state is TieringState.TIERED
    assert [each.state for each in older] == [TieringState.FAILED]


# S5, S22, L18, regression: Fluss #2648
@pytest.mark.parametrize("let_go", ["after the successor's commit", "before the successor's commit"])
def test_of_a_stopped_driver_and_its_successor_exactly_one_lands(lake: Tiering, tmp_path, monkeypatch, let_go):
    table = lake.table()
    lake.write(table, KILLED)
    lease = lake.client.lease_latest_snapshots(f"stopped, let go {let_go}", [table.path], 600_000)
    marker = tmp_path / "stopped"
    stopped = start(str(_FAULTY_DRIVER), "stop", "after", "prepare", str(marker), *arguments(lake, lease, table))
    try:
        wait_until(marker.exists, stopped)
        results = {}

        def let_it_go() -> None:
            os.killpg(stopped.pid, signal.SIGCONT)
            results["stopped"] = end(stopped)

        if let_go == "before the successor's commit":
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
        if stopped.poll() is None:
            os.killpg(stopped.pid, signal.SIGKILL)

    code, output = results["stopped"]
    assert code == 1, output
    assert snapshot_count(lake, table) == 1
    if let_go == "before the successor's commit":
        # It won in the lake, and was fenced when it wanted to register that.
        assert "is not its present one" in output
        assert "changed by somebody else" in successor.error
        assert lake.client.lake_snapshot(table.path) is None
    else:
        assert "changed by somebody else" in output
        assert not successor.failed
    lake.write(table, CHANGED)
    lake.tier(table)
    assert lake.lake_rows(table) == expected_rows("primary-key table")
    assert set(lake.files(table)) == set(lake.files_on_disk(table))


class DiesOnFirstAttempt(LakeFileWriter):
    """A worker that writes its files and dies before it can say so, once."""

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
    """NUMBER-UUID-ATTEMPT-NUMBER.parquet"""
    return int(file.split("-")[-2])


class NeverCloses(LakeFileWriter):
    """A worker that takes for ever."""

    def __init__(self, writer: LakeFileWriter, started: str) -> None:
        self._writer = writer
        self._started = started

    def open_piece(self, bucket: int, location: str, attempt: int, *partition: tuple[str, ...]) -> PieceWriter:
        Path(self._started).touch()
        time.sleep(_PATIENCE_S)
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
    assert time.monotonic() - began < _PATIENCE_S / 2
    (newest,) = lake.rounds(table)
    assert newest.state is TieringState.FAILED
    assert newest.error.startswith("cancelled")
    assert lake.client.list_leases(newest.lease_id) == []


def wait_until(condition, driver: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        assert driver is None or driver.poll() is None, driver.communicate()[0]
        time.sleep(0.05)
