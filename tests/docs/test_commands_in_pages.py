"""Each `fluss-tiering` command that a page names exists, with each of its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import typer
from code_blocks import ROOT

from cases import cases
from fluss_tiering.cli.main import app

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = typer.main.get_command(app)


def commands_of(text: str) -> Iterator[str]:
    """Yield what follows `fluss-tiering` in the code of a page, up to the end of that command."""
    joined = re.sub(r"\\\n\s*", "", text)
    in_blocks = re.findall(r"(?m)^(?: {4,}|\t)?(?:\S+=\S+ |\$ )?fluss-tiering (.+)$", joined)
    inline = re.findall(r"`fluss-tiering ([^`]+)`", joined)
    substituted = re.findall(r"\$\(fluss-tiering ([^)]+)\)", joined)
    for found in (*in_blocks, *inline, *substituted):
        yield re.split(r"\s[|>#;&]|\)", found)[0].strip()


def unknown_in(arguments: str) -> list[str]:
    """Return the words of a command line that name no command and no option."""
    command = COMMAND
    wrong: list[str] = []
    words = iter(arguments.split())
    for word in words:
        if word.startswith("-"):
            option = word.split("=")[0]
            known = {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}
            if option in known:
                if not (known[option].is_flag or known[option].count or "=" in word):
                    next(words, None)
            elif option not in ("--help", "-h"):
                wrong.append(word)
        elif subcommands := getattr(command, "commands", None):
            if word == "COMMAND":
                return wrong
            if word not in subcommands:
                return [*wrong, word]
            command = subcommands[word]
    return wrong


@cases("page", PAGES)
def test_commands_and_options_that_a_page_names_exist(page: Path) -> None:  # D29
    assert {f"{line}: {wrong}" for line in commands_of(page.read_text()) if (wrong := unknown_in(line))} == set()


def test_the_pages_name_many_commands() -> None:
    assert len({line for page in PAGES for line in commands_of(page.read_text())}) > 100


def test_the_first_pages_use_one_environment_one_data_folder_and_one_table() -> None:  # E37
    for page in ("README.md", "docs/tutorial/first-table.md", "docs/airflow/quick-start.md"):
        text = (ROOT / page).read_text()
        assert set(re.findall(r"[~./]\S*venv\b", text)) == {"~/fluss-venv"}, page
        assert set(re.findall(r"--data-dir (\S+)", text)) == {"~/fluss-tiering-data"}, page
        assert set(re.findall(r"\bshop\.\w+", text)) == {"shop.orders"}, page


@cases("line", ["serve --bogus", "tires", "tables list --bootstrap.servers x", "--nope status"])
def test_the_check_can_fail(line: str) -> None:
    assert unknown_in(line)
