"""The help of each command: no name and no word of it is cut off on a narrow terminal."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer

from fluss_tiering.cli.common.examples import EXAMPLES
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


@pytest.mark.parametrize("path", [each for each in paths() if not hasattr(found(each), "commands")], ids=" ".join)
def test_the_help_and_the_page_say_the_same_of_each_parameter(command, monkeypatch, path):
    monkeypatch.setenv("COLUMNS", "160")
    out = command(*path, "--help").out
    section = PAGE.read_text().partition(f"\n## {' '.join(path)}\n")[2].partition("\n## ")[0]
    usage = out.partition("\n")[0].removeprefix("Usage: ")
    assert f"```text\n{usage}\n```" in section
    assert not re.search(r"<|>|[a-z]\[|\{", usage)
    rows = [line.replace("\\|", "/").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert rows
    for names, value, _, _ in rows:
        name = names.split("`")[1]
        (line,) = (each for each in out.splitlines() if re.match(rf"  (-\w, |)({re.escape(name)})( |$)", each))
        shown = re.split("  +", line.strip())[0].removeprefix(name).rpartition(name)[2].strip()
        listed = value.removeprefix("one of ").split(", ") if value.startswith("one of ") else [value]
        words = "|".join(each.split("`")[1] for each in listed if "`" in each)
        assert shown == words, line
        assert value.endswith("repeatable") == ("[repeatable]" in described(out, line))


def described(out: str, line: str) -> str:
    """A line of a help with those below it that belong to it."""
    below = out.partition(f"{line}\n")[2].splitlines()
    return " ".join([line, *itertools.takewhile(lambda each: each.startswith("     "), below)])


@pytest.mark.parametrize("path", paths(), ids=lambda path: " ".join(path) or "fluss-tiering")
def test_no_help_names_a_type_of_python(command, monkeypatch, path):
    monkeypatch.setenv("COLUMNS", "160")
    out = command(*path, "--help").out
    assert not re.search(r"<\w|list\[|\bstr\b|\bx[<>]=|<=x", out)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("tables", "create", "db.t", "--primary-key", "a", "--primary-key", "b"), "--primary-key A,B once"),
        (("tables", "list", "-s", "a:1", "--server", "b:1"), "--server [ID@]HOST:PORT[,HOST:PORT] once"),
        (("scan", "db.t", "-n", "1", "-n", "2", "-n", "3"), "--limit is given 3 times: expected --limit NUMBER once"),
    ],
)
def test_an_option_with_one_value_is_given_once(command, arguments, told):
    assert command(*arguments).refuses(2, told)


def test_flags_and_repeatable_options_may_be_given_again(command, table):
    assert command("tables", "create", table, "-c", "a INT", "-c", "b INT", "--if-not-exists").code == 0
    assert command("tables", "describe", table, "--json", "--json").code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("serve", "--fluss", ""), "--fluss is empty: expected HOST:PORT[,HOST:PORT], or leave --fluss out"),
        (("tier", "db.t", "--master", "", "--print-submit"), "--master is empty: expected URL, or leave --master out"),
        (("health", "--tls-name", ""), "--tls-name is empty"),
        (("spark-conf", "--catalog", ""), "--catalog is empty"),
        (("put", "db.t", ""), "FILE... is empty: expected a value"),
        (("class-archive", ""), "FILE is empty"),
        (("token", "create", "a", "-f", "", "-r", "admin"), "--file is empty: expected a value"),
        (("token", "create", "a", "-f", "tokens", "-r", "admin", "-o", ""), "--output is empty: expected FILE"),
        (("--token-file", "", "tables", "list"), "--token-file is empty: expected FILE, or leave --token-file out"),
        (("spark-conf", "--server", ""), "the tiering server's address is ''"),
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
    ("arguments", "told"),
    [
        (
            ("tier", "db.t", "--claim-timeout", "abc"),
            "'abc' is not a number of at least 0 in seconds, for example --claim-timeout 60",
        ),
        (("tier", "db.t", "--claim-timeout", "-1"), "'-1' is not a number of at least 0 in seconds"),
        (("history", "db.t", "--limit", "5000"), "'5000' is not a whole number from 1 to 1000, for example --limit 20"),
        (
            ("tier", "db.t", "--max-round-bytes", "1e6"),
            "--max-round-bytes: '1e6' is not a size: expected a whole number",
        ),
        (("tier", "db.t", "--max-round-bytes", "1gigs"), "'1gigs' is not a size: expected a whole number and a unit"),
        (("tier", "db.t", "--max-round-bytes", "0"), "--max-round-bytes: '0' is not a size of at least 1b"),
        *[
            ((command, "db.t", flag, "2147483648"), f"'2147483648' is not a whole number from {least} to 2147483647")
            for command, flag, least in [
                ("compact", "--min-input-files", 2),
                ("compact", "--delete-files", 1),
                ("expire", "--retain-last", 1),
                ("verify", "--limit", 1),
                ("maintain", "--cores", 1),
                ("maintain", "--min-input-files", 2),
                ("maintain", "--delete-files", 1),
                ("tier", "--maintenance-cores", 1),
            ]
        ],
        (("serve", "--port", "abc"), "'abc' is not a whole number from 0 to 65535, for example --port 9133"),
    ],
)
def test_a_wrong_number_is_told_in_our_words(command, arguments, told):
    answer = command(*arguments)
    assert answer.code == 2
    shown = " ".join(answer.err.replace("│", " ").split())
    assert told in shown
    assert "Input should" not in shown


def told(answer) -> str:
    """What a refused command line says, in one line."""
    return " ".join(answer.err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lake-conf", "db.t", "--for", "trino"), "'--for': 'trino' is not one of spark, pyiceberg, duckdb"),
        (("scan", "db.t", "-f", "xml"), "'xml' is not one of table, csv, json, arrow"),
        (("leases", "drop"), "Missing argument 'LEASE_ID'. The id of the lease"),
        (("token", "create"), "Missing argument 'NAME'. Whose token it is"),
        (("put", "db.t"), "Missing argument 'FILE...'. Parquet or CSV files"),
        (("token", "create", "a"), "Missing option '--file' / '-f'"),
    ],
)
def test_wrong_and_missing_values_are_told_in_our_words(command, arguments, words):
    answer = command(*arguments)
    assert answer.code == 2
    assert words in told(answer)
    assert "Value error" not in told(answer)


def needs_an_argument(path: tuple[str, ...]) -> bool:
    return any(each.required and each.param_type_name == "argument" for each in found(path).params)


@pytest.mark.parametrize("path", [*filter(needs_an_argument, paths())], ids=" ".join)
def test_a_missing_argument_is_called_as_in_the_help(command, path):
    answer = command(*path)
    assert answer.code == 2
    (name,) = re.findall("Missing argument '([^']*)'", told(answer))
    assert name in command(*path, "--help").out
    assert name == name.upper()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "--server", "a:1"), "This command starts the server itself: --host and --port say where it listens"),
        (("serve", "-s", "a:1"), "This command starts the server itself"),
        (("token", "list", "--server", "a:1"), "`fluss-tiering token list` asks no server"),
        (("tables", "-s", "a:1", "list"), "It stands behind the command: fluss-tiering tables list -s ..."),
        (("serve", "--prt", "1"), "(Possible options: --port)"),
        (("serve", "--dir", "x"), "(Possible options: --data-dir)"),
        (("status", "--Watch"), "(Possible options: --watch)"),
    ],
)
def test_an_option_that_a_command_lacks_is_told_with_what_helps(command, arguments, words):
    answer = command(*arguments)
    assert answer.code == 2
    assert words in told(answer)


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


@pytest.mark.parametrize("option", ["--bogus", "--server", "--xy", "-x"])
def test_no_option_is_suggested_that_has_nothing_to_do_with_the_wrong_one(command, option):
    answer = command("serve", option, "a")
    assert answer.code == 2
    assert f"No such option: {option}" in told(answer)
    assert "Possible options" not in told(answer)


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
