"""What the command shows of statuses, rounds and leases, for people and for programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from engine_support import SCHEMA
from fluss_tiering.client import lease_latest_snapshots
from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.model.tiering import HeartbeatEntry, RoundOrigin, TieringStats

NOWHERE = "127.0.0.1:9"
TEMPLATES = Path(__file__).parents[2] / "airflow_provider_fluss" / "plugins" / "page" / "templates"


@pytest.fixture
def tiered(command, client, table):
    """A table that failed once, with an error that looks like markup."""
    command("tables", "create", table, "-c", "id BIGINT", "-c", "name STRING", "--primary-key", "id")
    (claim,) = client.claim_tables([TablePath.parse(table)], "cli-lease", None, "driver-1")
    client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, "no [bold]space[/] left")])
    return table


def test_status_shows_why_a_table_failed(command, tiered):
    answer = command("status", tiered)
    assert "Failed" in answer.out
    assert "  Why: no [bold]space[/] left\n" in answer.out
    (status,) = json.loads(command("status", tiered, "--json").out)
    assert status["status"] == "Failed"
    assert status["last_error"] == "no [bold]space[/] left"
    assert status["last_tiered_time"] is None  # S14
    assert status["tiering_epoch"] == status["consecutive_failures"] == 1
    assert "no [bold]space[/] left" in command("history", tiered).out
    (last,) = json.loads(command("history", tiered, "--json").out)
    assert (last["status"], last["driver"], last["lease_id"]) == ("Failed", "driver-1", "cli-lease")


def test_a_failing_table_says_since_when_why_of_whom_and_what_is_next(command, client, table):  # E30
    """A retry is due at once, so that its status alone is no sign of trouble."""
    healthy = f"{table}_healthy"
    for each in (table, healthy):
        command("tables", "create", each, "-c", "id BIGINT")
    path = TablePath.parse(table)
    origin = RoundOrigin("tier_orders", "manual__1", "submit", map_index=3, try_number=2, spark_application_id="app-1")
    for error in ("first", "Metadata file missing: file:/x.json\nat line 2"):
        (claim,) = client.claim_tables([path], "cli-lease", None, "driver-1", origin=origin)
        client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, error)])
    client.claim_tables([path], "cli-lease", None, "driver-2")

    out = command("status").out
    assert out.index(f" {table} ") < out.index(f" {healthy} "), "a failing table comes first"
    assert re.search(rf"^ {re.escape(table)} +Tiering, failing ", out, re.M)
    block = out[out.index(f"{table} is failing since 20") :]
    assert re.match(
        rf"{re.escape(table)} is failing since [\d-]+ [\d:]+Z \((now|\d+ s ago)\): 2 failures in a row\n", block
    )
    assert "  Why: Metadata file missing: file:/x.json\n       at line 2\n" in block
    task = "DAG tier_orders, run manual__1, task submit, map index 3, try 2"  # E31
    assert f"  Round: epoch 2, {task}; Spark application app-1\n" in block
    assert "  Next: it is tried again now. " in block
    only = command("status", "--failing").out
    assert f" {table} " in only
    assert healthy not in only
    assert {each["status"] for each in json.loads(command("status", "--failing", "--json").out)} >= {"Tiering"}

    history = command("history", table)
    assert " tier_orders, manual__1 " in history.out  # E31
    assert task in history.out
    assert re.search(r" 1   Failed +20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ ", history.out)
    rounds = json.loads(command("history", table, "--json").out)
    assert [(each["origin"] or {}).get("try_number") for each in rounds] == [None, 2, 2]


def test_an_interrupted_table_does_not_fail(command, client, table):  # E35
    command("tables", "create", table, "-c", "id BIGINT")
    (claim,) = client.claim_tables([TablePath.parse(table)], "cli-lease", None, "driver-1")
    client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, "Ctrl-C", interrupted=True)])
    out = command("status", table).out
    assert re.search(rf"^ {re.escape(table)} +Interrupted ", out, re.M)
    assert re.search(rf"^{re.escape(table)}, (now|\d+ s ago): Ctrl-C$", out, re.M)
    assert "failing" not in out
    assert command("status", table, "--failing").out.startswith("No table is failing.")


def test_rounds_without_rows_take_one_line(command, client, table):  # E32
    command("tables", "create", table, "-c", "id BIGINT")
    for rows in (0, 5, 0, 0, 0):
        (claim,) = client.claim_tables([TablePath.parse(table)], "cli-lease", None, "driver-1")
        stats = TieringStats(rows, 1, 1, lake_snapshot_id=1) if rows else TieringStats()
        client.heartbeat(finished=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, stats=stats)])
    out = command("history", table).out
    assert re.search(r"^ +3–5   3 rounds without rows ", out, re.M)
    assert len(re.findall(r" Tiered +20", out)) == 2
    assert len(re.findall(r" Tiered +20", command("history", table, "--all").out)) == 5
    assert len(json.loads(command("history", table, "--json").out)) == 5


@pytest.mark.parametrize(
    ("arguments", "template"), [("status", "tables.html"), ("history", "table.html"), ("leases", "leases.html")]
)
def test_the_columns_are_called_as_on_the_page_in_airflow(command, client, tiered, arguments, template):
    path = TablePath.parse(tiered)
    list(
        client.write_rows(path, WriteKind.UPSERT, [SCHEMA.empty_table().from_pylist([{"id": 1, "name": "a"}], SCHEMA)])
    )
    lease_latest_snapshots(client, f"lease-of-{tiered}", [path], 60_000)
    lines = (command("leases", "list") if arguments == "leases" else command(arguments, tiered)).out.splitlines()
    rule = next(number for number, line in enumerate(lines) if "───" in line)
    titles = [title.strip() for title in lines[rule - 1].split("   ") if title.strip()]
    assert len(titles) > 4
    page = (TEMPLATES / template).read_text()
    of_page = {*re.findall(r'column\("\w+", "([^"]+)"', page), *re.findall(r'<th scope="col"[^>]*>([^<]+)</th>', page)}
    # The page shows the time that is left instead, and has links in the place of a DAG run.
    only_here = {"Expires", "DAG run"}
    assert {*titles} - only_here <= of_page


def test_what_a_table_waits_for_is_told_as_on_the_page_in_airflow(command, client, tiered):
    page = (TEMPLATES / "parts.html").read_text()
    assert "with the next row" in page
    assert "due now" in page
    assert "runs now" in page
    assert command("resume", tiered).code == 0
    assert "due now" in command("status", tiered).out
    client.claim_tables([TablePath.parse(tiered)], "cli-lease", None, "driver-1")
    assert "runs now" in command("status", tiered).out


def test_a_status_after_an_interrupted_round_agrees_with_the_history(command, client, tiered):  # E35, D64
    assert command("resume", tiered).code == 0
    client.claim_tables([TablePath.parse(tiered)], "cli-lease", None, "driver-1")
    client.cancel_tiering("cli-lease", None, "Ctrl-C")
    assert re.search(r" Interrupted .* 0 ", command("status", tiered).out)
    assert " Interrupted " in command("history", tiered).out
    rounds = json.loads(command("history", tiered, "--json").out)
    assert [(each["status"], each["interrupted"]) for each in rounds] == [("Failed", True), ("Failed", False)]
    (told,) = json.loads(command("status", tiered, "--json").out)
    assert (told["status"], told["interrupted"]) == ("Failed", True)
    assert command("resume", tiered).code == 0
    (claim,) = client.claim_tables([TablePath.parse(tiered)], "cli-lease-2", None, "driver-1")
    client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, "boom")])
    assert re.search(r" Failed .* 1 ", command("status", tiered).out)


def test_nothing_waits_is_a_lag_of_0(command, table):
    command("tables", "create", table, "-c", "id BIGINT")
    assert re.search(r"^ Table +Status +Since +Records waiting +Lag ", command("status", table).out, re.M)
    assert re.search(rf"^ {re.escape(table)} +Scheduled +\S.* +0 +0 +in ", command("status", table).out, re.M)


def test_the_status_of_one_table_tells_of_its_maintenance(command, client, tiered):
    assert f"{tiered}: maintenance has not run since the server started (the" in command("status", tiered).out
    (table,) = client.get_tables([TablePath.parse(tiered)])
    client.heartbeat(maintained=[MaintenanceReport(table.table_id, 4, 3 << 20, 1, 1009)])

    shown = command("status", tiered).out
    assert re.search(
        rf"^{re.escape(tiered)}: maintenance last ran (now|.* ago); since the server started, it has "
        r"rewritten 3\.0 MiB, expired 1 snapshot and deleted 1,009 files; the lake table has 4 files fewer by it$",
        shown,
        re.M,
    )
    assert "maintenance" not in command("status").out
    (status,) = json.loads(command("status", tiered, "--json").out)
    assert [value for key, value in status.items() if key.startswith("maintenance_")] == [4, 3 << 20, 1, 1009]


def test_a_failure_steers_no_terminal(command, client, tiered):
    assert command("resume", tiered).code == 0
    (claim,) = client.claim_tables([TablePath.parse(tiered)], "cli-lease", None, "driver-1")
    error = "no \x1b[2Jspace\x07\x9b2J\ttab\nat line 2"
    client.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, error)])
    for answer in (command("status", tiered), command("history", tiered)):
        assert not {"\x1b", "\x07", "\x9b"} & set(answer.out)
        assert "no \ufffd[2Jspace\ufffd\ufffd2J" in answer.out
    assert json.loads(command("status", tiered, "--json").out)[0]["last_error"] == error


def test_leases_are_listed_and_dropped(command, client, table):
    command("tables", "create", table, "-c", "id BIGINT", "-c", "name STRING", "--primary-key", "id")
    path = TablePath.parse(table)
    list(
        client.write_rows(path, WriteKind.UPSERT, [SCHEMA.empty_table().from_pylist([{"id": 1, "name": "a"}], SCHEMA)])
    )
    lease_latest_snapshots(client, "cli-pins", [path], 60_000)
    assert "cli-pins" in command("leases", "list").out
    (lease,) = [each for each in json.loads(command("leases", "list", "--json").out) if each["lease_id"] == "cli-pins"]
    assert len(lease["snapshots"]) == 1
    assert command("leases", "drop", "cli-pins").code == 0
    assert command("leases", "drop", "cli-pins").refuses(1, "cli-pins", "leases list")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["status"], ["tables", "list"], ["leases", "list"], ["tier", "--pending"]])
def test_unreachable_server_is_named_with_what_to_do(command, arguments):
    assert command(*arguments, "--server", NOWHERE).refuses(2, NOWHERE, "fluss-tiering serve")


def test_a_duration_of_rounds_that_is_none_is_refused_before_one_begins(command, table):
    assert command("tier", table, "--max-round-duration", "5parsec", "--print-submit").refuses(2, "5parsec")


def test_tier_prints_the_submit_that_does_the_same(command, server, table):
    printed = command("tier", table, "--print-submit", "--master", "spark://host:7077").out
    assert printed.startswith("spark-submit --master spark://host:7077 ")
    assert f"--server {server.target}" in printed
    assert printed.rstrip().endswith(table)


@pytest.mark.parametrize(("size", "number"), [("1gb", 1 << 30), ("512 kb", 512 << 10), ("7", 7)])
def test_a_size_may_have_a_unit(command, table, size, number):
    printed = command("tier", table, "--max-round-bytes", size, "--print-submit").out
    assert f"--max-round-bytes {number} " in printed


def test_another_server_than_the_named_one_is_an_error(command, client, server):  # D30
    server_id = client.describe_storage().data_dir_id
    assert command("status", "--server", f"{server_id}@{server.target}").code == 0
    assert command("status", "--server", f"other@{server.target}").refuses(2, "other", server_id, "ID@HOST:PORT")


def test_a_table_that_does_not_exist_is_told_once(command, client, table):  # D30
    alone = command("tier", "cli.nowhere")
    assert alone.refuses(1, "cli.nowhere")
    assert (alone.out + alone.err).count("does not exist") == 1
    # A table without new rows needs no Spark.
    command("tables", "create", table, "-c", "id BIGINT", "-c", "name STRING")
    (claim,) = client.claim_tables([TablePath.parse(table)], "cli-lease", None, "driver-1")
    client.heartbeat(finished=[HeartbeatEntry(claim.table_id, claim.tiering_epoch)])
    together = command("tier", "cli.nowhere", table)
    assert together.code == 1
    assert (together.out + together.err).count("does not exist") == 1
    assert re.search(rf"^ {re.escape(table)} +Tiered ", together.out, re.M)
