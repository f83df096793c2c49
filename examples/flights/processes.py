"""Starts and stops programs: each has a process group and a log file, and none is left behind.

A state file names the programs that run, so that `make down` finds those that an earlier `make up` started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.2
_CLOCK_SECONDS: Final = 2.0
"""The kernel tells its start in whole seconds, and may say another second from one call to the next."""


@dataclass(frozen=True, slots=True)
class Started:
    """A program that was started.

    Attributes:
        name: The name of the program.
        pid: The process id.
        since_boot: The seconds from the start of the machine to its own start, which tell it from a later process with
            the same id. They do not change when the wall clock is set.
        log: The file with its output.
    """

    name: str
    pid: int
    since_boot: float
    log: str


class Processes:
    """The programs of one run, in the order of their starts. They are stopped in the opposite order."""

    def __init__(self, folder: Path) -> None:
        """Take over the programs that the state file in `folder` names, if they still run."""
        self._folder = folder
        self._state = folder / "processes.json"
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._started = [each for each in self._load() if _process(each) is not None]

    @property
    def running(self) -> Sequence[Started]:
        """The programs that run now."""
        return [each for each in self._started if _process(each) is not None]

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Started:
        """Start a program in a process group of its own. Its output goes to `<folder>/<name>.log`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"{name}.log"
        with log.open("ab") as output:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._children[child.pid] = child
        started = Started(name, child.pid, _since_boot(psutil.Process(child.pid)), str(log))
        self._started.append(started)
        self._save()
        return started

    def wait_until(self, started: Started, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until a program is ready.

        Raises:
            SystemExit: The program ended or was not ready in time. The message holds the end of its log.
        """
        deadline = time.monotonic() + seconds
        while True:
            is_ready = ready()
            # Another program may answer on the port of one that has ended.
            self._require_running(started)
            if is_ready:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"error: {started.name} was not ready after {seconds:.0f} s:\n{_tail(started)}")
            time.sleep(_POLL_SECONDS)

    def require_running(self) -> None:
        """Raise SystemExit with the end of its log if a program that was started here has ended."""
        for started in self._started:
            self._require_running(started)

    def _require_running(self, started: Started) -> None:
        child = self._children.get(started.pid)
        if child is not None and child.poll() is not None:
            raise SystemExit(f"error: {started.name} ended with exit code {child.returncode}:\n{_tail(started)}")

    def stop(self) -> None:
        """End all programs, the last one first: SIGTERM for each program, then SIGKILL for it and its children."""
        for started in reversed(self._started):
            process = _process(started)
            if process is None:
                continue
            family = [process, *process.children(recursive=True)]
            # Only the program itself gets SIGTERM: Airflow's scheduler waits for workers that somebody else has ended.
            _signal([process], signal.SIGTERM)
            psutil.wait_procs([process], timeout=_STOP_SECONDS)
            _signal(family, signal.SIGKILL)
            psutil.wait_procs(family, timeout=_STOP_SECONDS)
        self._started = []
        self._state.unlink(missing_ok=True)

    def _load(self) -> list[Started]:
        try:
            return [Started(**each) for each in json.loads(self._state.read_text())]
        except FileNotFoundError:
            return []

    def _save(self) -> None:
        self._state.write_text(
            json.dumps([{name: getattr(each, name) for name in Started.__slots__} for each in self._started])
        )


def _process(started: Started) -> psutil.Process | None:
    try:
        process = psutil.Process(started.pid)
        same = abs(_since_boot(process) - started.since_boot) < _CLOCK_SECONDS
        runs = same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return process if runs else None


def _since_boot(process: psutil.Process) -> float:
    # The kernel counts from its own start; psutil adds the time of that start by the wall clock of now.
    return process.create_time() - psutil.boot_time()


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _tail(started: Started) -> str:
    return "\n".join(Path(started.log).read_text(errors="replace").splitlines()[-25:])
