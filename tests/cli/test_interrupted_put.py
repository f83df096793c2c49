"""Ctrl-C while `put` waits for its standard input, and while it writes the rows of it."""

from __future__ import annotations

import array
import fcntl
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from engine_support import new_table
from fluss_tiering.client import TieringClient
from waiting import WAIT_S, wait_until

pytestmark = pytest.mark.system

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


@pytest.mark.parametrize("sent", [b"", b"id,name\n1,a\n", b'id,name\n1,"open'])
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
