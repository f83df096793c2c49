"""Maintenance in an application that drains and follows: only where it is wanted, and never in the way of a round."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from maintenance_support import data_files, duckdb_rows, ids, rounds
from spark_support import LEGACY, Tiering, command, driver_environment, in_background, named

from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark import application
from fluss_tiering.spark.drain import Drain
from fluss_tiering.spark.maintenance import background, maintain
from fluss_tiering.spark.maintenance.maintain import maintain_table
from fluss_tiering.spark.maintenance.plan import MaintenanceLimits
from waiting import wait_until

AUTO = {
    "table.datalake.auto-compaction": "true",
    "table.datalake.auto-expire-snapshot": "true",
    "iceberg.history.expire.max-snapshot-age-ms": "1",
}


@contextmanager
def following(tiering: Tiering, monkeypatch: pytest.MonkeyPatch, *tables: TableInfo) -> Iterator[None]:
    """Run an application that drains the tables and follows, until the block ends."""
    stops = drain_stops(monkeypatch)
    running = in_background(tiering, *tables, drain=True, follow=True, maintenance_interval="100ms")
    try:
        wait_until(lambda: stops or running.done())
        yield
    finally:
        for stopped in stops:
            stopped.set()
        running.result(120)


def last_maintained(tiering: Tiering, table: TableInfo) -> int | None:
    (status,) = tiering.client.list_tiering_statuses(table.path)
    return status.last_maintained_time


def drain_stops(monkeypatch: pytest.MonkeyPatch) -> list[threading.Event]:
    """Return a list to which each drain adds the event that ends it."""
    stops: list[threading.Event] = []
    run = Drain.run

    def noted(drain, threads, stopped):
        stops.append(stopped)
        return run(drain, threads, stopped)

    monkeypatch.setattr(Drain, "run", noted)
    return stops


@pytest.mark.slow
def test_a_drain_that_follows_maintains_the_tables_that_ask_for_it_and_no_other(tiering: Tiering, monkeypatch, caplog):
    caplog.set_level("INFO")
    wanted, other = (tiering.table(primary_key=False, properties=properties) for properties in (AUTO, {}))
    for table in (wanted, other):
        rounds(tiering, table, 5)
    before = {table.path: (duckdb_rows(tiering, table), ids(tiering, table)) for table in (wanted, other)}
    maintained = []
    hear = maintain_table

    def noted(client, spark, table, **options):
        maintained.append(table.path)
        return hear(client, spark, table, **options)

    monkeypatch.setattr(background, "maintain_table", noted)
    with following(tiering, monkeypatch, wanted, other):
        wait_until(lambda: len(data_files(tiering, wanted)) == 1)
        # The next turns find nothing to do, and do not come to the other table either.
        wait_until(lambda: len(maintained) >= 3)

    assert set(maintained) == {wanted.path}
    assert f"{wanted.path}: maintenance begins, to replace 5 data files of" in caplog.text
    assert f"{wanted.path}: maintained in" in caplog.text
    assert "replaced 5 data files" in caplog.text
    assert duckdb_rows(tiering, wanted) == before[wanted.path][0]
    assert len(ids(tiering, wanted)) < 5
    assert (duckdb_rows(tiering, other), ids(tiering, other)) == before[other.path]
    assert tiering.equal(wanted)


@pytest.mark.slow
def test_the_command_says_what_its_maintenance_changed_in_lines_and_in_json(tiering: Tiering, monkeypatch, capsys):
    run = command(tiering, monkeypatch)
    monkeypatch.setattr(application, "own_session", lambda _master, _conf: nullcontext(tiering.spark))
    auto = {"table.datalake.auto-compaction": "true"}
    tiered = tiering.table(primary_key=False, freshness="1s", properties=auto)
    idle = tiering.table(primary_key=False, properties=auto)
    for table in (tiered, idle):
        rounds(tiering, table, 5)
    tiering.write(tiered, named(range(10, 15), "more"))
    stops = drain_stops(monkeypatch)

    with ThreadPoolExecutor(1) as threads:
        arguments = ("--drain", "--follow", "--maintenance-interval", "1h", "--json", "--server", tiering.target)
        running = threads.submit(run, "tier", *arguments, str(tiered.path), str(idle.path))
        try:
            wait_until(lambda: running.done() or all(last_maintained(tiering, each) for each in (tiered, idle)))
        finally:
            wait_until(lambda: stops or running.done())
            stops[0].set()
        assert running.result(60) == 0

    shown = capsys.readouterr()
    assert f"{tiered.path}: maintenance begins, to replace" in shown.err
    assert f"{tiered.path}: maintained in" in shown.err
    assert f"{idle.path}: maintained in" in shown.err
    assert "replaced 5 data files of" in shown.err
    by_name = {each["table_name"]: each for each in json.loads(shown.out)}
    assert (by_name[tiered.path.table]["status"], by_name[idle.path.table]["status"]) == ("Tiered", None)
    assert by_name[tiered.path.table].keys() == by_name[idle.path.table].keys()
    assert [each["rewritten_files"] for each in by_name[idle.path.table]["maintenance"]] == [5]


@pytest.mark.slow
def test_a_pending_round_ends_maintenance_and_does_not_wait_for_it(tiering: Tiering, monkeypatch, tmp_path):
    table = tiering.table(primary_key=False, freshness="1s", properties=AUTO)
    rounds(tiering, table, 5)
    rewrite, tries = maintain.rewrite_data_files, []
    started = tmp_path / "started"

    def endless(spark, *arguments, **options):
        # The first rewrite holds every core and never ends by itself.
        tries.append(arguments)
        if len(tries) == 1:
            spark.sparkContext.parallelize(range(2), 2).foreachPartition(_sleep(str(started)))
        return rewrite(spark, *arguments, **options)

    monkeypatch.setattr(maintain, "rewrite_data_files", endless)
    with following(tiering, monkeypatch, table):
        wait_until(started.exists)
        tiering.write(table, named(range(10, 15), "during"))
        wait_until(lambda: sum(each.stats.rows for each in tiering.rounds(table) if each.stats) == 55)
        # Maintenance that gave way begins again when there is nothing else to do.
        wait_until(lambda: len(data_files(tiering, table)) == 1)

    assert len(tries) >= 2
    assert len(duckdb_rows(tiering, table)) == 55
    assert tiering.equal(table)


def _sleep(started: str) -> Callable[[Iterator[int]], None]:
    def sleep(numbers: Iterator[int]) -> None:
        Path(started).touch()
        time.sleep(3600)

    return sleep


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.system
def test_maintenance_that_was_killed_leaves_the_table_whole_and_the_next_one_goes_on(tiering: Tiering):
    table = tiering.table(primary_key=False, num_buckets=2, properties=LEGACY)
    rounds(tiering, table, 6)
    rows = duckdb_rows(tiering, table)
    files = data_files(tiering, table)

    killed = subprocess.run(
        [sys.executable, Path(__file__).with_name("killed_maintenance.py"), tiering.target, str(table.path)],
        env=driver_environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert killed.returncode == -9, killed.stderr
    # The first bucket was committed, and the second was not.
    assert len(data_files(tiering, table)) == 4
    assert set(data_files(tiering, table)) & set(files)
    assert len(tiering.files_on_disk(table)) > len(files) + 1
    assert duckdb_rows(tiering, table) == rows
    done = maintain_table(tiering.client, tiering.spark, table, limits=MaintenanceLimits(min_input_files=2))
    assert (done.error, done.rewritten.files) == (None, 3)
    assert len(data_files(tiering, table)) == 2
    assert duckdb_rows(tiering, table) == rows
    rounds(tiering, table, 1)
    assert tiering.equal(table)
