"""The command `fluss-tiering` on a machine whose clock a test sets.

    clock_server.py FILE [the command's arguments]

The file has the seconds by which the clock is ahead of this machine's. Only the clock that can be set changes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

FILE = Path(sys.argv.pop(1))
of_machine_ns = time.time_ns


def time_ns() -> int:
    return of_machine_ns() + int(FILE.read_text()) * 1_000_000_000


time.time_ns = time_ns
time.time = lambda: time_ns() / 1e9

from fluss_tiering.cli.main import app  # noqa: E402 - after the clock that it uses

if __name__ == "__main__":
    app()
