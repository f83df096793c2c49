"""The help of each command: no name and no word of it is cut off on a narrow terminal."""

from __future__ import annotations

import re
import shutil

import pytest
import typer

from fluss_tiering.cli.main import app

WIDTHS = (80, 100, 160)
ROOT = typer.main.get_command(app)


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
