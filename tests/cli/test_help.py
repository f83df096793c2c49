"""The help of each command: no name and no word of it is cut off on a narrow terminal."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer

from fluss_tiering.cli.common.command import EXAMPLES
from fluss_tiering.cli.main import app
from fluss_tiering.client.security import TOKEN_FILE_VARIABLE, VARIABLES

WIDTHS = (80, 100, 160)
ROOT = typer.main.get_command(app)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def paths(command=ROOT, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words that name each command and each group of commands, those of the program itself first."""
    below = getattr(command, "commands", {})
    return [before, *(path for name, each in below.items() for path in paths(each, (*before, name)))]


def found(path: tuple[str, ...]):
    command = ROOT
    for name in path:
        command = command.commands[name]
    return command


def test_the_commands_and_those_below_a_group_are_found():
    assert {(), ("maintain",), ("tables", "create"), ("token", "revoke")} <= set(paths())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", paths(), ids=lambda path: " ".join(path) or "fluss-tiering")
def test_names_and_words_are_whole(command, monkeypatch, path, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert shutil.get_terminal_size().columns == width
    answer = command(*path, "--help")
    assert answer.code == 0
    assert all(len(line) <= width for line in answer.out.splitlines())
    assert "…" not in answer.out
    words = answer.out.replace(",", " ").split()
    # A line may end behind the hyphen of a word.
    rejoined = re.sub(r"-\s+", "-", answer.out)
    shown = found(path)
    options = [each for each in shown.params if each.param_type_name == "option" and not each.hidden]
    for option in options:
        assert set(words) >= {*option.opts, *option.secondary_opts}
        assert set(rejoined.split()) >= set((option.help or "").split()), option.opts
    for name, below in getattr(shown, "commands", {}).items():
        assert name in words
        sentence = (below.short_help or below.help).partition(". ")[0].partition("\n")[0].rstrip(".")
        assert sentence in " ".join(rejoined.split())


def test_flags_and_repeatable_options_may_be_given_again(command, table):
    assert command("tables", "create", table, "-c", "a INT", "-c", "b INT", "--if-not-exists").code == 0
    assert command("tables", "describe", table, "--json", "--json").code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("serve", "--fluss", ""), "--fluss is empty: expected a value"),
        (("tier", "db.t", "--master", "", "--print-submit"), "--master is empty: expected a value"),
        (("health", "--tls-name", ""), "--tls-name is empty"),
        (("spark-conf", "--catalog", ""), "--catalog is empty"),
        (("class-archive", ""), "file '' is a directory"),
        (("token", "create", "a", "-f", "", "-r", "admin"), "file '' is a directory"),
        (("token", "create", "a", "-f", "tokens", "-r", "admin", "-o", ""), "file '' is a directory"),
        (("spark-conf", "--server", ""), "--server is empty"),
        (("spark-conf", "--catalog", "a.b"), "--catalog 'a.b': expected a name of letters, digits and _"),
        (("serve", "-D", "host=a", "-D", "host=b"), "the setting 'host' is given twice"),
        (("serve", "--host", "a", "-D", "host=b"), "the setting host is given with -D and with an option of its own"),
    ],
)
def test_a_value_that_can_only_be_a_slip_is_refused(command, arguments, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(*arguments).refuses(2, told)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tier", "db.t", "--claim-timeout", "abc"), "'--claim-timeout'"),
        (("tier", "db.t", "--claim-timeout", "-1"), "greater than or equal to 0"),
        (("history", "db.t", "--limit", "5000"), "less than or equal to 1000"),
        (
            ("tier", "db.t", "--max-round-bytes", "1e6"),
            "--max-round-bytes: '1e6' is not a size",
        ),
        (("tier", "db.t", "--max-round-bytes", "0"), "--max-round-bytes: '0' is not a size of at least 1b"),
        (("serve", "--port", "abc"), "'--port'"),
        (("lake-conf", "db.t", "--for", "trino"), "'trino' is not one of 'spark', 'pyiceberg', 'duckdb'"),
        (("leases", "drop"), "Missing argument 'LEASE_ID'"),
        (("token", "create"), "Missing argument 'NAME'"),
        (("put", "db.t"), "Missing argument 'FILE'"),
        (("token", "create", "a"), "Missing option '--file' / '-f'"),
        (("serve", "--prt", "1"), "No such option: --prt"),
        (("token", "list", "--server", "a:1"), "No such option: --server"),
    ],
)
def test_a_wrong_command_line_is_told_with_what_is_wrong(command, arguments, words):
    answer = command(*arguments)
    assert answer.code == 2
    assert words in " ".join(answer.err.split())


def test_the_options_of_the_connection_may_stand_behind_the_command(command, server, monkeypatch, tmp_path):  # E37
    for name in VARIABLES:
        # What the command puts into the environment goes with the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    missing = str(tmp_path / "missing")
    for before, behind in (([], ["--token-file", missing]), (["--token-file", missing], [])):
        assert command(*before, "tables", "list", "--server", server.target, *behind).refuses(2, missing)
        monkeypatch.delenv(TOKEN_FILE_VARIABLE)
    assert "--token-file" in command("status", "--help").out
    assert "--token-file" not in command("serve", "--help").out


def test_the_examples_are_commands_that_can_be_read():  # E37
    assert {"tier", "put", "status", "serve", "tables create"} <= EXAMPLES.keys()
    for name, lines in EXAMPLES.items():
        for line in "\n".join(lines).replace("\\\n", "").splitlines():
            called = line.partition("fluss-tiering ")[2].partition(" > ")[0]
            words = shlex.split(called.removesuffix(")") if "$(" in line else called)
            names = name.split()
            assert words[: len(names)] == names, line
            found(tuple(names)).make_context(name, words[len(names) :])


@pytest.mark.parametrize(
    "path", [path for path in paths() if path == () or not hasattr(found(path), "commands")], ids=" ".join
)
def test_the_page_has_every_option_of_the_help(command, path):
    title = f"\n## {' '.join(path) or 'Global options'}\n"
    section = PAGE.read_text().split(title, 1)[1].split("\n## ", 1)[0]
    of_page = [
        re.findall("`(-[^`]+)`", line.split(" | ")[0]) for line in section.splitlines() if line.startswith("| `-")
    ]
    of_help = re.findall("^  (-[^ ,]+(?:(?:, | / )--[^ ]+)?)", command(*path, "--help").out, re.M)
    assert {frozenset(names) for names in of_page} == {
        frozenset(re.split(", | / ", names)) for names in of_help if "--help" not in names
    }
