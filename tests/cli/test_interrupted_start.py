"""Ctrl-C ends the command quietly, also in the second in which it imports its commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

import pytest

from fluss_tiering.cli import script

_COMMANDS = "fluss_tiering.cli.main"


class Interrupted:
    """Finds no module. Ctrl-C comes when the commands are imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if name == _COMMANDS:
            raise KeyboardInterrupt
        return None


def test_an_interrupt_while_commands_are_imported_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, _COMMANDS, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 130
    assert capfd.readouterr() == ("", "")
