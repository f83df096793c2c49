"""Why a process is gone: its exit code or signal, what the JVM wrote of its crash, and whether memory was short."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Final

_COUNTERS: Final = Path("/proc/vmstat")
_SHOWN_LINES: Final = 25


def kills_for_memory() -> int:
    """Return how many processes the kernel has killed for want of memory since the machine started."""
    found = re.search(r"^oom_kill (\d+)$", _COUNTERS.read_text() if _COUNTERS.exists() else "", re.MULTILINE)
    return int(found[1]) if found else 0


def fate_of(code: int | None, folder: Path, kills_before: int) -> str:
    """Describe how a process has ended.

    Args:
        code: Its exit code, negative for a signal; None if it runs.
        folder: The folder in which a JVM writes the report of a crash.
        kills_before: What `kills_for_memory` returned when the process was started.
    """
    if code is None:
        return "runs"
    told = [f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with the exit code {code}"]
    if killed := kills_for_memory() - kills_before:
        told.append(f"the kernel has killed {killed} processes for want of memory meanwhile")
    told += [
        "\n".join([str(report), *report.read_text(errors="replace").splitlines()[:_SHOWN_LINES]])
        for report in sorted(folder.glob("hs_err_pid*.log"))
    ]
    return "; ".join(told)
