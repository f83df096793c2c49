"""Tables without new rows: their rounds need no Spark."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from rich.console import Console

from engine_support import new_path, new_table, put, tier
from fluss_tiering.client import TieringClient, finish_unchanged_tables
from fluss_tiering.client.unchanged import records_waiting
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import Claim, HeartbeatEntry, TieringState
from fluss_tiering.spark import application, without_spark
from fluss_tiering.spark.options import TierOptions
from waiting import WAIT_S, wait_until


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets an application fail that starts Spark."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(application, "own_session", started)


def finished(client: TieringClient, *tables: TableInfo) -> set[str]:
    statuses = [status for table in tables for status in client.list_tiering_statuses(table.path)]
    return {str(path) for path in finish_unchanged_tables(client, statuses)}


def test_only_tables_without_new_rows_are_finished(client: TieringClient) -> None:  # D27
    never, unchanged, changed = (new_table(client, [1, 2]) for _ in range(3))
    for table in (unchanged, changed):
        tier(client, table)
    put(client, changed, {3: "new"})
    assert records_waiting(client, [never.path, unchanged.path, changed.path, new_path()]) == {
        never.path: 2,
        unchanged.path: 0,
        changed.path: 1,
    }
    assert finished(client, never, unchanged, changed) == {str(unchanged.path)}
    (status,) = client.list_tiering_statuses(unchanged.path)
    (newest, *_) = client.list_tiering_rounds(unchanged.path)
    assert status.state is TieringState.SCHEDULED
    assert (newest.state, newest.tiering_epoch) == (TieringState.TIERED, status.tiering_epoch)
    assert newest.stats is not None
    assert newest.stats.rows == 0


def test_a_table_that_failed_or_is_held_is_left_alone(client: TieringClient) -> None:  # D27
    failed, held = new_table(client, [1]), new_table(client, [1])
    for table in (failed, held):
        tier(client, table)
    (claim,) = client.claim_tables([failed.path], "lease", None, "driver")
    client.heartbeat(failed=[HeartbeatEntry(failed.table_id, claim.tiering_epoch, "broken")])
    client.claim_tables([held.path], "lease", None, "driver")
    assert finished(client, failed, held) == set()
    assert client.list_tiering_statuses(held.path)[0].state is TieringState.TIERING


@pytest.mark.parametrize("drain", [False, True])
def test_an_application_without_new_rows_starts_no_spark(
    client: TieringClient, server, no_spark: None, drain: bool
) -> None:  # D27
    table = new_table(client, [1], freshness="1ms")
    client.alter_table(table.path, {"table.datalake.tier-when-unchanged": "true"})
    tier(client, table)
    wait_until(lambda: client.list_tiering_statuses(table.path)[0].state is TieringState.PENDING)
    before = client.list_tiering_statuses(table.path)[0].tiering_epoch
    options = TierOptions(server=server.target, tables=(table.path,), drain=drain)
    if drain:
        # With its short freshness the table may be pending again at once.
        client.alter_table(table.path, {"table.datalake.freshness": "1h"})
        assert client.list_tiering_statuses(table.path)[0].state is TieringState.PENDING
    (result,) = application.run(options)
    assert (result.failed, result.stats.rows, result.recorded) == (False, 0, True)
    assert result.epoch is not None
    assert result.epoch >= before
    put(client, table, {2: "b"})
    with pytest.raises(AssertionError, match="Spark was started"):
        application.run(TierOptions(server=server.target, tables=(table.path,)))


@pytest.mark.parametrize(("follow", "budget"), [(False, None), (True, "1s")])
def test_a_drain_of_nothing_starts_no_spark(
    client: TieringClient, server, no_spark: None, follow: bool, budget: str | None
) -> None:  # D27
    table = new_table(client, [1], freshness="1h")
    options = TierOptions(server=server.target, tables=(table.path,), drain=True, follow=follow, time_budget=budget)
    assert application.run(options) == []


def test_a_drain_that_follows_starts_spark_once_something_was_written(
    client: TieringClient, server, no_spark: None
) -> None:  # D27
    table = new_table(client, [1], freshness="1ms")
    tier(client, table)
    options = TierOptions(server=server.target, tables=(table.path,), drain=True, follow=True)
    with ThreadPoolExecutor(1) as threads:
        draining = threads.submit(application.run, options)
        client.alter_table(table.path, {"table.datalake.tier-when-unchanged": "true"})
        # Rounds without new records are run without Spark.
        wait_until(lambda: len(client.list_tiering_rounds(table.path)) > 2)
        assert not draining.done()
        put(client, table, {2: "b"})
        with pytest.raises(AssertionError, match="Spark was started"):
            draining.result(WAIT_S)


@pytest.mark.parametrize("follow", [False, True])
def test_a_table_that_is_pending_again_at_once_starts_no_spark(
    client: TieringClient, server, no_spark: None, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:  # D27
    def pending() -> bool:
        return client.list_tiering_statuses(table.path)[0].state is TieringState.PENDING

    def finish_and_wait(*arguments: Any, **keywords: Any) -> dict[TablePath, Claim]:
        done = finish_unchanged_tables(*arguments, **keywords)
        wait_until(pending)
        return done

    monkeypatch.setattr(without_spark, "finish_unchanged_tables", finish_and_wait)
    table = new_table(client, [1], freshness="1ms")
    client.alter_table(table.path, {"table.datalake.tier-when-unchanged": "true"})
    tier(client, table)
    wait_until(pending)
    budget = "2s" if follow else None
    options = TierOptions(server=server.target, tables=(table.path,), drain=True, follow=follow, time_budget=budget)
    (result,) = application.run(options)
    assert (result.failed, result.recorded) == (False, True)


def test_status_says_what_waits_and_when_the_next_round_is_due(
    client: TieringClient, server, capsys, monkeypatch
) -> None:  # D27
    from fluss_tiering.cli.common import output  # noqa: PLC0415
    from fluss_tiering.cli.status import status  # noqa: PLC0415

    table = new_table(client, [1, 2, 3], freshness="1h")
    tier(client, table)
    put(client, table, {4: "new", 5: "new"})
    capsys.readouterr()
    status(table.path, server=server.target, json=True)
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["status"], shown["records_waiting"]) == ("Scheduled", 2)
    assert shown["next_round_time"] > shown["last_tiered_time"]
    assert shown["freshness_ms"] == 3_600_000
    assert shown["waiting_since"] >= shown["last_tiered_time"]
    assert shown["lag_ms"] >= 0
    monkeypatch.setattr(output, "console", Console(width=160))
    status(table.path, server=server.target)
    assert re.search(r"in \d+ (min|h)", capsys.readouterr().out)


def test_status_says_that_a_table_rests_until_it_is_written_to(client: TieringClient, server, capsys, monkeypatch):
    from fluss_tiering.cli.common import output  # noqa: PLC0415
    from fluss_tiering.cli.status import status  # noqa: PLC0415

    table = new_table(client, [1, 2, 3], freshness="1ms")  # D27
    tier(client, table)
    # Its freshness is over in a moment.
    wait_until(lambda: client.list_tiering_statuses(table.path)[0].next_round_time < time.time_ns() // 1_000_000)
    monkeypatch.setattr(output, "console", Console(width=160))
    capsys.readouterr()
    status(table.path, server=server.target)
    assert "with the next row" in capsys.readouterr().out
    status(table.path, server=server.target, json=True)
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["status"], shown["records_waiting"], shown["lag_ms"]) == ("Scheduled", 0, 0)
    assert shown["waiting_since"] is None


def test_a_table_that_was_switched_on_again_has_a_round_that_opens_the_lake_table(client: TieringClient) -> None:
    table = new_table(client, [1, 2])
    tier(client, table)
    assert finished(client, table) == {str(table.path)}
    for value in ("false", "true"):
        client.alter_table(table.path, set_properties={"table.datalake.enabled": value})
    (status,) = client.list_tiering_statuses(table.path)
    assert status.switched_on_time is not None
    assert finished(client, table) == set()
    tier(client, table)
    assert finished(client, table) == {str(table.path)}
