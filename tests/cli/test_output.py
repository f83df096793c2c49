"""How wide tables and their columns are, and output that cannot be written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cases import cases
from fluss_tiering.cli.common import output

PROGRAM = """
from fluss_tiering.cli.common.output import Heading, print_table
titles = ("Table", "Outcome", "Epoch", "Rows", "Size", "Files", "Lake snapshot", "Seconds")
cells = ("warehouse.customer_orders", "Tiered", "12", "1,000,000", "12.5 MiB", "16", "8123456789012345678", "12.3")
print_table(None, [Heading(title, numeric=number > 1) for number, title in enumerate(titles)], [cells], "nothing")
"""


MAIN = "from fluss_tiering.cli.main import main; main()"


def run(server, *command: object, **options: object) -> subprocess.CompletedProcess:
    """Run a program to its end with this server; errors, and output that goes nowhere else, are kept as texts."""
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 60, **options}
    environment = {**os.environ, "FLUSS_TIERING_SERVER": server.target, **kept.pop("env", {})}
    return subprocess.run(command, env=environment, check=False, **kept)


@pytest.mark.system
@cases("columns", [None, "60"])
def test_a_piped_table_has_room_for_its_words(columns):
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment if columns is None else {**environment, "COLUMNS": columns},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "warehouse.customer_orders" in printed
    for words in ("Tiered", "1,000,000", "12.5 MiB", "Lake snapshot", "8123456789012345678", "12.3"):
        assert words in printed
    assert ("─" in printed) is (columns is None), "cells have lines of their own if there is no room beside each other"


@pytest.mark.system
@cases("arguments", [["status", "--json"], ["--help"]])
def test_output_that_cannot_be_written_is_told_in_words(arguments, server):
    with Path("/dev/full").open("w") as full:
        ended = run(server, sys.executable, "-c", MAIN, *arguments, stdout=full)
    assert ended.returncode == 1
    assert ended.stderr == "error: No space left on device\n"


@pytest.mark.system
def test_closed_output_is_told_in_words(tmp_path, server):
    ended = run(server, "sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", MAIN, "serve", cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr == "error: cannot write to standard output: it is closed\n"
    assert not list(tmp_path.iterdir()), "nothing was done"


@cases("name", ["serve", "status"])
def test_paragraphs_of_help_are_lines_only_where_the_terminal_ends(name, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    paragraph = command(name, "--help").out.partition("Usage:")[2]
    lines = [line.strip() for line in paragraph.splitlines()]
    text = "\n".join(lines[: next(number for number, line in enumerate(lines) if line in ("Arguments:", "Options:"))])
    for each in text.split("\n\n"):
        *whole, _ = each.splitlines()
        assert all(len(line) > 120 for line in whole), "of 160 columns"


def test_json_does_not_steer_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(output, "console", Console())
    values = [{"error": "\x1b[2J\x9b31m\u202etxt.exe é"}]
    output.print_json(values)
    printed = capsys.readouterr().out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", printed)
    assert "é" in printed
    assert json.loads(printed) == values


def test_addresses_are_printed_as_they_are(command):
    # rich would take [...] for a style, and :a: for an emoji.
    server, master = "[fd00:a:b::1]:9", "spark://[fd00:a:b::1]:7077"
    given = command("tier", "--print-submit", "--server", server, "--master", master, "shop.orders").out
    assert f"--master '{master}'" in given
    assert f"--server '{server}'" in given
    assert server in command("spark-conf", "--server", server).out
    assert command("status", "--server", server).refuses(2, f"server at {server}")


def test_a_column_may_have_any_name(command, table, tmp_path):
    names = ["a[/b]", "a[red]b", "a:x:b"]
    columns = [text for name in names for text in ("-c", f"{name} STRING")]
    command("tables", "create", table, "-c", "id INT", *columns)
    rows = tmp_path / "rows.csv"
    rows.write_text(f"id,{','.join(names)}\n1,x,y,z\n")
    assert command("put", table, rows).code == 0
    shown = command("scan", table, "--format", "table").out
    assert all(name in shown for name in names)


@pytest.mark.system
@cases(
    "arguments, locale",
    [
        (["tables", "list"], {"PYTHONIOENCODING": "ascii"}),
        (["tables", "describe", "cli.größe"], {"LC_ALL": "C", "PYTHONUTF8": "0"}),
    ],
)
def test_no_locale_makes_a_command_fail(arguments, locale, server, command):
    command("tables", "create", "cli.plain", "-c", "id BIGINT NOT NULL")
    ended = run(server, sys.executable, "-c", MAIN, *arguments, env=locale, text=False)
    assert b"Traceback" not in ended.stderr
    assert ended.returncode == (0 if arguments[1] == "list" else 2)


def test_a_terminal_shows_for_how_long_a_step_goes_on(monkeypatch):  # E36
    for is_terminal in (True, False):
        console = Console(file=StringIO(), width=80, force_terminal=is_terminal, color_system=None)
        monkeypatch.setattr(output, "error_console", console)
        with output.busy("db.t: comparing …"):
            pass
        shown = console.file.getvalue()
        assert "db.t: comparing …" in shown
        assert ("0:00:00" in shown) is is_terminal
