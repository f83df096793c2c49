"""Ctrl-C ends the command quietly, also in the second in which it imports its commands, and no end is a crash."""

from __future__ import annotations

import atexit
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

import pytest

from fluss_tiering.cli import script

_COMMANDS = "fluss_tiering.cli.main"
_ENDED = """
import atexit, os, sys
from fluss_tiering.cli import main, script

class Crash:
    def __del__(self, abort=os.abort):
        abort()

def ended():
    sys.crash = Crash()
    atexit.register(print, "cleaned up")
    {how}

main.main = ended
script.main()
"""


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
    monkeypatch.setattr(atexit, "register", lambda function: None)
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 130
    assert capfd.readouterr() == ("", "")


@pytest.mark.system
def test_what_libraries_leave_behind_crashes_no_end_of_the_command() -> None:  # E39
    ways = {"raise KeyboardInterrupt": 130, "sys.exit(1)": 1, "sys.exit(2)": 2, "return": 0, "sys.exit(None)": 0}
    for how, code in ways.items():
        ended = subprocess.run([sys.executable, "-c", _ENDED.format(how=how)], capture_output=True, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (code, b"cleaned up\n", b""), how
    failed = subprocess.run([sys.executable, "-c", _ENDED.format(how="1 / 0")], capture_output=True, check=False)
    assert failed.returncode == 1
    assert b"ZeroDivisionError" in failed.stderr
