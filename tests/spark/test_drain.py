"""Drains: rounds of all pending tables, until none is pending, the time is over, or somebody ends the drain."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from held_writer import HeldStage
from spark_support import Tiering, in_background, named

from fluss_tiering.client import TieringClient
from fluss_tiering.client import tiering_calls as calls
from fluss_tiering.model.tiering import ROUND_FORMAT, TieringState
from fluss_tiering.spark import application, drain
from fluss_tiering.spark.options import TierOptions, parse_arguments
from waiting import wait_until


def test_a_drain_goes_on_until_none_of_its_tables_is_pending(tiering: Tiering):
    tables = [due_table(tiering), due_table(tiering, primary_key=False)]
    for table in tables:
        tiering.write(table, named(range(100), "row"))
    wait_until(lambda: {state(tiering, table) for table in tables} == {TieringState.PENDING})

    # A log table's rounds stop at their bytes and are due at once, again and again.
    results = tiering.tier_all(*tables, drain=True, max_round_bytes=800)

    assert {result.path for result in results} == {table.path for table in tables}
    assert all(result.complete and result.error is None for result in results)
    assert len(tiering.rounds(tables[1])) > 1
    for table in tables:
        assert tiering.lake_rows(table) == sorted(named(range(100), "row").items())
    assert [lease for lease in tiering.client.list_leases() if lease.snapshots] == []


def test_a_bad_table_of_a_drain_touches_no_other(tiering: Tiering, monkeypatch):
    bad, good = due_table(tiering), due_table(tiering)
    for table in (bad, good):
        tiering.write(table, named(range(3), "row"))
    wait_until(lambda: {state(tiering, bad), state(tiering, good)} == {TieringState.PENDING})
    list_buckets = TieringClient.list_buckets

    def failing(client, paths):
        if bad.path in paths:
            raise RuntimeError("a fault that was injected")
        return list_buckets(client, paths)

    monkeypatch.setattr(TieringClient, "list_buckets", failing)
    results = {result.path: result for result in tiering.tier_all(bad, good, drain=True)}

    assert "a fault that was injected" in results[bad.path].error
    assert results[good.path].error is None
    assert state(tiering, bad) is TieringState.FAILED
    assert application.exit_code(list(results.values()), outcome_in_status=False) == 1


def test_a_drain_hears_of_a_cancelled_round(tiering: Tiering, tmp_path, monkeypatch):  # D66
    table = due_table(tiering)
    tiering.write(table, named(range(3), "row"))
    wait_until(lambda: state(tiering, table) is TieringState.PENDING)
    held = HeldStage(tmp_path, monkeypatch)
    draining = in_background(tiering, table, drain=True)
    held.wait()
    (began,) = tiering.rounds(table)
    tiering.client.cancel_tiering(began.lease_id, None, "no longer wanted")
    results = draining.result(60)
    held.go()

    (result,) = results
    assert "no longer wanted" in result.error  # alone, or with the refusal of the next heartbeat
    assert application.exit_code(results, outcome_in_status=True) == application.EXIT_INTERRUPTED
    (ended,) = tiering.rounds(table)
    assert (ended.tiering_epoch, ended.interrupted, ended.error) == (began.tiering_epoch, True, "no longer wanted")


def test_a_table_that_another_driver_holds_is_no_concern_of_a_drain(tiering: Tiering):
    table = due_table(tiering)
    wait_until(lambda: state(tiering, table) is TieringState.PENDING)
    tiering.client.claim_tables([table.path], "somebody else's", None, "their driver")

    assert tiering.tier_all(table, drain=True) == []


def test_a_drain_that_follows_takes_up_what_becomes_pending_until_its_time_is_used(tiering: Tiering, monkeypatch):
    passed = 0
    monkeypatch.setattr(drain, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed))
    table = due_table(tiering, primary_key=False)
    draining = in_background(tiering, table, drain=True, follow=True, time_budget="10min")
    tiering.write(table, named(range(5), "first"))
    wait_until(lambda: any(each.stats and each.stats.rows for each in tiering.rounds(table)))
    tiering.write(table, named(range(5, 9), "second"))
    wait_until(lambda: sum(each.stats.rows for each in tiering.rounds(table) if each.stats) == 9)

    assert not draining.done()
    passed = 600
    (result,) = draining.result(60)
    assert result.error is None
    assert len(tiering.lake_rows(table)) == 9


def test_a_table_with_a_freshness_of_zero_ends_a_drain_and_does_not_keep_one_busy(tiering: Tiering):
    properties = {"table.datalake.tier-when-unchanged": "true"}
    table = tiering.table(freshness="0s", primary_key=False, properties=properties)
    tiering.write(table, named(range(3), "row"))
    wait_until(lambda: state(tiering, table) is TieringState.PENDING)

    # The table is Pending again at once after each round.
    (result,) = tiering.tier_all(table, drain=True)
    assert result.error is None
    assert len(tiering.lake_rows(table)) == 3

    epoch = result.epoch
    (followed,) = tiering.tier_all(table, drain=True, follow=True, time_budget="3s")
    # One round a second, and one at each end. It was about 75 a second.
    assert followed.epoch - epoch <= 5


def test_a_table_that_the_server_does_not_hand_out_ends_a_drain_and_does_not_keep_one_busy(
    tiering: Tiering, monkeypatch
):
    refused, good = due_table(tiering), due_table(tiering)
    for table in (refused, good):
        tiering.write(table, named(range(3), "row"))
    wait_until(lambda: {state(tiering, refused), state(tiering, good)} == {TieringState.PENDING})
    claim_tables = TieringClient.claim_tables
    asked = []
    # The tables are claimed by several threads, and all of them see the format that is patched.
    one_at_a_time = threading.Lock()

    def as_an_older_driver(client, paths, *further, **options):
        with one_at_a_time, monkeypatch.context() as patched:
            if refused.path in paths:
                asked.append(paths)
                patched.setattr(calls, "ROUND_FORMAT", ROUND_FORMAT - 1)
            return claim_tables(client, paths, *further, **options)

    monkeypatch.setattr(TieringClient, "claim_tables", as_an_older_driver)
    results = {result.path: result for result in tiering.tier_all(refused, good, drain=True)}
    assert "expected 1, that of this server; install the same version" in results[refused.path].error
    assert results[good.path].error is None
    assert state(tiering, refused) is TieringState.PENDING
    assert application.exit_code(list(results.values()), outcome_in_status=False) == 1
    asked.clear()
    tiering.tier_all(refused, drain=True, follow=True, time_budget="6s")
    # At 0, 1 and 3 seconds. It was about 75 a second.
    assert 1 <= len(asked) <= 4

    monkeypatch.undo()
    (result,) = tiering.tier_all(refused, drain=True)
    assert result.error is None
    assert len(tiering.lake_rows(refused)) == 3


def test_a_drain_s_command_line():
    options = parse_arguments(["--server", "h:1", "--drain", "--time-budget", "30min", "--follow"])
    assert (options.drain, options.follow, options.time_budget, options.claim_wait_s) == (True, True, "30min", 0.0)
    assert not parse_arguments(["--server", "h:1", "db.t"]).drain


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "expected tables, or --drain"),
        (["--follow", "db.t"], "are for --drain"),
        (["--drain", "--time-budget", "soon"], "'soon' is not a duration"),
        (["--drain", "--time-budget", "0s"], "'0s' is too little: expected at least 1ms"),
        (["--drain", "--maintenance-interval", "1h"], "--maintenance-interval is for the maintenance between"),
        (["--maintenance-cores", "2", "db.t"], "--maintenance-cores is for the maintenance between"),
        (["--drain", "--follow", "--maintenance-interval", "0s"], "'0s' is too little: expected at least 1ms"),
        (["--drain", "--follow", "--maintenance-interval", "999µs"], "'999µs' is too little"),
        (["--drain", "--follow", "--maintenance-bytes", "0"], "'0' is too little: expected at least 1mb"),
    ],
)
def test_a_wrong_command_line_is_told(arguments: list[str], told: str, capsys):
    with pytest.raises(SystemExit) as end:
        parse_arguments(["--server", "h:1", *arguments])
    assert end.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.sampled(1)
def test_a_drain_that_follows_starts_spark_to_maintain_a_lake_to_which_nobody_writes(
    tiering: Tiering, monkeypatch, asks
):
    table = tiering.table(properties={"table.datalake.auto-compaction": str(asks).lower()})
    never_tiered = tiering.table(properties={"table.datalake.auto-compaction": "true"})
    tiering.round(table, named(range(3), "row"))
    started = []

    class Started:
        def __init__(self, *_: object, **__: object) -> None:
            started.append(time.monotonic())

        def drain(self, _: object) -> list:
            return []

    monkeypatch.setattr(application, "_Application", Started)
    paths = (table.path, never_tiered.path)
    options = TierOptions(tiering.target, paths, drain=True, follow=True, time_budget="4s", maintenance_interval="1s")
    began = time.monotonic()
    assert application.run(options) == []
    assert bool(started) is asks
    # It is not the first thing that is done.
    assert all(each - began >= 1 for each in started)


def due_table(tiering: Tiering, **options: bool):
    return tiering.table(freshness="1s", **options)


def state(tiering: Tiering, table) -> TieringState:
    (status,) = tiering.client.list_tiering_statuses(table.path)
    return status.state
