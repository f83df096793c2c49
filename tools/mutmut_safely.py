"""mutmut, but its time limits end no other program: `python tools/mutmut_safely.py run`.

mutmut remembers the process ids of mutants that ended long ago, and sends them SIGXCPU when their time is over. By then
the ids may belong to other programs, or to threads of them, which this signal kills. Here a process is signalled only
if it is the one for which the limit was set.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path


def register_timeout(pid: int, timeout_s: float) -> None:
    """End a process after some seconds, if it still runs then.

    Args:
        pid: The id of the process.
        timeout_s: The number of seconds.
    """
    began = began_at(pid)

    def end() -> None:
        if began is not None and began_at(pid) == began:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGXCPU)

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()


def began_at(pid: int) -> str | None:
    """Return when a process of this id began, in ticks since the machine started; None if there is no such process.

    A thread may have the id as well. It then has another parent than this process, and is none of its children.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[19] if int(fields[1]) == os.getpid() else None


def main() -> None:
    """Run mutmut's command line."""
    from mutmut.__main__ import cli  # noqa: PLC0415 - it reads the settings in the folder
    from mutmut.workers import isolation  # noqa: PLC0415

    vars(isolation)["register_timeout"] = register_timeout
    cli()


if __name__ == "__main__":
    main()
