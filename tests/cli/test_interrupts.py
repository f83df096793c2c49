"""Ctrl-C ends a command quietly: in the second in which it imports, while it waits for input, and while it writes."""

from __future__ import annotations

import array
import atexit
import fcntl
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from engine_support import new_table
from fluss_tiering.cli import script
from fluss_tiering.client import TieringClient
from waiting import WAIT_S, wait_until

PROGRAM = str(Path(sys.executable).with_name("fluss-tiering"))
BLOCK = 33 * 2**20
"""How many bytes pyarrow reads at once."""


@contextmanager
def putting(server: str, table: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [PROGRAM, "put", str(table), "-", "--server", server],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C is sent to this process alone.
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def pipe_is_empty(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdin is not None
    waiting = array.array("i", [0])
    fcntl.ioctl(process.stdin.fileno(), termios.FIONREAD, waiting)
    return waiting[0] == 0


def waits_for_input(process: subprocess.Popen[bytes]) -> bool:
    """Whether the command has made the file that it copies its input into."""
    links = []
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(descriptor.readlink()))
    return any(".csv" in link for link in links)


@pytest.mark.system
@pytest.mark.parametrize("sent", [b"", b"id,name\n1,a\n", b'id,name\n1,"open'])
@pytest.mark.system
def test_ctrl_c_ends_a_wait_for_input(client: TieringClient, server, sent: bytes) -> None:
    table = new_table(client)
    with putting(server.target, table.path) as process:
        assert process.stdin is not None
        process.stdin.write(sent)
        process.stdin.flush()
        wait_until(lambda: waits_for_input(process) and pipe_is_empty(process))
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    (bucket,) = client.list_buckets([table.path])[table.path]
    assert bucket.log_end_offset == 0


@pytest.mark.system
def test_ctrl_c_between_blocks_says_what_was_written(client: TieringClient, server) -> None:
    table = new_table(client)
    row = b"%09d," + b"x" * 1000 + b"\n"
    rows = b"".join(row % number for number in range(BLOCK * 7 // 2 // len(row)))
    with putting(server.target, table.path) as process:
        assert process.stdin is not None
        process.stdin.write(b"id,name\n" + rows)
        process.stdin.close()
        # A few requests are under way at the same time. The command has heard of the first ones after that many rows.
        wait_until(lambda: client.list_buckets([table.path])[table.path][0].log_end_offset >= BLOCK // 2 // len(row))
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert "Traceback" not in said
    assert "A repeat changes nothing about them." in " ".join(said.split())


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
