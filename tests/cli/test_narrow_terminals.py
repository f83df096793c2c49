"""What the listing commands print on terminals of several widths, into pipes, and when there is nothing to list."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
from rich.console import Console

from engine_support import SCHEMA, descriptor, new_path
from fluss_tiering.cli import status_view
from fluss_tiering.cli.common import output
from fluss_tiering.cli.common.output import Heading, print_table
from fluss_tiering.cli.lake import tier
from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.model.table import TablePath, WriteKind
from fluss_tiering.model.table_options import LAKE_ENABLED
from fluss_tiering.model.tiering import HeartbeatEntry, TieringState, TieringStats
from fluss_tiering.spark import application
from fluss_tiering.spark.round.result import TableResult

WIDTHS = (60, 80, 100, 160)
NAMES = ("shop.orders", "warehouse_production.clickstream_events_enriched_daily")


@pytest.fixture(scope="module")
def tables(server) -> None:
    """A short and a long name, each with rows, a round and a lease."""
    from engine_support import descriptor  # noqa: PLC0415

    with TieringClient(server.target) as client:
        for name in NAMES:
            path = TablePath.parse(name)
            table = client.create_table(path, descriptor())
            rows = SCHEMA.empty_table().from_pylist([{"id": 1, "name": "a"}], SCHEMA)
            list(client.write_rows(path, WriteKind.UPSERT, [rows]))
            lease_latest_snapshots(client, f"tiering-{name}-manual__2026-11-22T10:56:00+00:00", [path], 60_000)
            (claim,) = client.claim_tables([path], "lease", None, "local-1795345000150 on host.example.org, process 77")
            entry = HeartbeatEntry(table.table_id, claim.tiering_epoch, stats=TieringStats(1_000_000, 3 << 30, 128))
            client.heartbeat(finished=[entry])
    yield
    with TieringClient(server.target) as client:
        for name in NAMES:
            client.drop_table(TablePath.parse(name), drop_untiered=True)
            client.drop_lease(f"tiering-{name}-manual__2026-11-22T10:56:00+00:00")


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> Console:
    console = Console(file=StringIO(), width=width, height=50, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "console", console)
    return console


def read(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert all(len(line) <= console.width for line in shown.splitlines())
    assert "…" not in shown
    return shown


def columns(shown: str) -> list[list[str]]:
    """The texts of the columns below the heading, of the only table that is shown."""
    _, rule, body = re.split("^ *(─+) *$", shown, maxsplit=1, flags=re.MULTILINE)
    assert rule
    lines = body.split("\n \n")[0].splitlines()
    return [re.split(" {3,}", line.strip()) for line in lines if line.strip()]


TIME_WORDS = {"s", "min", "in", "now", "ago"}
COMMANDS = {
    "status": (["status"], ["Scheduled", "Lag"]),
    "tables": (["tables", "list"], ["primary key", "Freshness", "id"]),
    "history": (["history", NAMES[1]], ["Tiered", "1,000,000", "Started"]),
    "describe": (["tables", "describe", NAMES[1]], ["STRING", "table.datalake.freshness", "KV snapshot"]),
    "leases": (["leases", "list"], ["Expires", "KV snapshots"]),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("arguments", "words"), COMMANDS.values(), ids=COMMANDS)
def test_a_listing_is_readable_on_a_terminal(command, tables, monkeypatch, arguments, words, width):  # D27
    console = terminal(monkeypatch, width)
    assert command(*arguments).code == 0
    shown = read(console)
    flat = " ".join(shown.split())
    for word in words:
        # Two words may stand in two lines of a cell.
        assert all(re.search(rf"\b{re.escape(each)}\b", flat) for each in word.split()), shown
    assert NAMES[0] in shown or "shop.orders" not in " ".join(arguments + words)
    if width == 160:
        assert "Not shown" not in shown


@pytest.mark.parametrize(("arguments", "words"), COMMANDS.values(), ids=COMMANDS)
def test_a_pipe_gets_every_column_in_one_line_a_row(command, tables, monkeypatch, arguments, words):  # D27
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(output, "console", Console(width=output._PIPED_WIDTH, height=50, force_terminal=False))
    answer = command(*arguments)
    assert answer.code == 0
    assert "Not shown" not in answer.out
    assert all(word in answer.out for word in words)
    if arguments[0] != "history":
        assert any(NAMES[1] in line for line in answer.out.splitlines())


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("width", [60, 80])
def test_no_word_is_broken_at_a_width_that_somebody_set(command, tables, monkeypatch, width, is_terminal):
    monkeypatch.setenv("COLUMNS", str(width))
    for arguments, _ in COMMANDS.values():
        console = Console(file=StringIO(), width=1000, height=50, force_terminal=is_terminal, color_system=None)
        monkeypatch.setattr(output, "console", console)
        command(*arguments)
        known = set(re.split(r"\s+|(?<=[._])", console.file.getvalue())) | set(console.file.getvalue().split())
        console = Console(file=StringIO(), width=width, height=50, force_terminal=is_terminal, color_system=None)
        monkeypatch.setattr(output, "console", console)
        command(*arguments)
        shown = [word for word in console.file.getvalue().split() if "─" not in word]
        # What stands in the line about columns that are left out, or was counted in the meantime, like seconds.
        broken = [word for word in shown if word.strip(":,.") not in known and word.isalpha()]
        assert not set(broken) - {"Not", "shown", "in", "this", "width", "See", *TIME_WORDS}, arguments


def test_errors_break_at_spaces_on_a_terminal_and_nowhere_in_a_pipe(monkeypatch):
    path = "file:/srv/lake/" + "a_folder_with_a_long_name/" * 4
    message = f"cannot write the file {path} since no space is left on the device, after nine attempts\nand a pause"
    console = terminal(monkeypatch, 60)
    output.print_errors([("epoch 2", message)])
    lines = console.file.getvalue().splitlines()
    assert " ".join(lines).split() == f"epoch 2: {message}".split()
    assert [line for line in lines if len(line) > 60] == [path]
    assert "and a pause" in lines
    monkeypatch.setattr(output, "console", Console(file=StringIO(), width=60, force_terminal=False))
    output.print_errors([("epoch 2", message)])
    assert output.console.file.getvalue() == f"epoch 2: {message}\n"


@pytest.mark.parametrize("width", WIDTHS)
def test_outcomes_of_rounds_are_readable_on_a_terminal(monkeypatch, width):  # D27
    console = terminal(monkeypatch, width)
    stats = TieringStats(1_000_000, 3 << 30, 128, lake_snapshot_id=8123456789012345678)
    tier._print([TableResult(TablePath.parse(name), TieringState.TIERED, 12.3, epoch=7, stats=stats) for name in NAMES])
    shown = read(console)
    assert shown.count("Tiered") == shown.count("1,000,000") == shown.count("12.3") == 2
    assert ("8123456789012345678" in shown) is (width == 160)


def test_a_name_gives_way_last(command, tables, monkeypatch):  # D27
    """Columns that can be spared are left out before a path is broken into many pieces."""
    console = terminal(monkeypatch, 80)
    command("status")
    shown = read(console)
    # How wide the times are, and so which columns are left out beside this one, depends on when it is asked.
    assert re.search(r"Not shown in this width: Since(, [\w ]+)+\. See --json\.", " ".join(shown.split()))
    pieces = [row[0].split()[0] for row in columns(shown)]
    assert NAMES[0] in pieces
    at = next(number for number, piece in enumerate(pieces) if piece.startswith("warehouse_production"))
    assert "".join(pieces[at:]).startswith(NAMES[1])


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_a_table_takes_one_line_unless_its_name_is_long(monkeypatch, width):  # E34
    names = ["shop.orders", "warehouse.clickstream_events_daily", f"warehouse.{'long_' * 14}"]
    wide = ["Tiering, failing", "59 min ago", "3,000,000", "59 min 59 s", "in 59 min", "59 min ago", "1,000", "10"]
    console = terminal(monkeypatch, width)
    print_table(None, status_view._HEADINGS, [[name, *wide] for name in names], "nothing")
    shown = read(console)
    lines = [row[0] for row in columns(shown.partition("Not shown")[0])]
    assert lines[:2] == names[:2]
    assert 1 <= len(lines[2:]) <= 3
    assert "".join(lines[2:]) == names[2]
    left_out = " ".join(shown.partition("Not shown in this width: ")[2].split()).partition(". See")[0]
    yielding = ["Next round", "Records waiting", "Failures", "Since", "Last tiered", "Epoch"]
    assert {*left_out.split(", ")} <= {"", *yielding}
    # What is left out first is the last of these.
    gone = [each in left_out for each in yielding]
    assert gone == sorted(gone)


def test_more_columns_than_a_terminal_has_room_for_are_stacked(monkeypatch):  # D27
    console = terminal(monkeypatch, 80)
    headings = [Heading(f"number_{number}", numeric=True) for number in range(30)]
    print_table(None, headings, [[str(10**9 + number) for number in range(30)]] * 2, "nothing")
    lines = read(console).splitlines()
    assert [line.split() for line in lines[:2]] == [["number_0", "1000000000"], ["number_1", "1000000001"]]
    assert sum("number_29" in line and "1000000029" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["tier", "--pending"], "No table is pending."), (["maintain"], "No table has an option that asks for")],
)
def test_json_is_an_empty_array(command, monkeypatch, arguments, said):
    monkeypatch.setattr(TieringClient, "list_tiering_statuses", lambda *_: [])
    found = command(*arguments, "--json")
    assert (found.code, json.loads(found.out)) == (0, [])
    assert said in found.err
    assert said in command(*arguments).out


def test_a_table_that_is_not_tiered_is_told_before_spark_starts(command, client, monkeypatch):
    table = client.create_table(new_path(), descriptor(tiered=False))
    other = client.create_table(new_path(), descriptor(tiered=False))
    monkeypatch.setattr(application, "own_session", lambda *_: pytest.fail("Spark would start"))
    found = command("tier", str(table.path), str(other.path), "--json")
    assert found.code == 1
    for path, each in zip((table.path, other.path), json.loads(found.out), strict=True):
        assert (
            each["error"] == f"table {path} is not tiered: create or alter it with the option {LAKE_ENABLED.key}=true"
        )
    assert f"table {table.path} is not tiered" in command("tier", str(table.path)).out
