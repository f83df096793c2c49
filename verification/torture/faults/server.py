"""A tiering server whose wall clock a run can turn, as a program."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

from fluss_tiering.cli.main import app
from fluss_tiering.model.clock import SystemClock

CLOCK_VARIABLE: Final = "TORTURE_CLOCK"
"""Names a file with the number of milliseconds by which the clock is ahead."""


def _turn_the_clock() -> None:
    ahead = Path(os.environ[CLOCK_VARIABLE])

    def wall_ns() -> int:
        return time.time_ns() + (int(ahead.read_text() or 0) if ahead.exists() else 0) * 1_000_000

    SystemClock.__init__.__defaults__ = (wall_ns, time.monotonic_ns)


if __name__ == "__main__":
    _turn_the_clock()
    app(sys.argv[1:])
