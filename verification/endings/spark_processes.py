"""The processes of the Spark applications of one lease: `spark-submit`, its JVM, the driver and its Python workers."""

from __future__ import annotations

import contextlib
import signal

import psutil


class SparkProcesses:
    """Finds the processes of a lease. A process that was seen once is known, also after its parents have ended."""

    def __init__(self) -> None:
        self._known: dict[str, set[psutil.Process]] = {}

    def look(self, lease_id: str) -> list[psutil.Process]:
        """Return the processes of a lease that run now."""
        known = self._known.setdefault(lease_id, set())
        children: dict[int, list[psutil.Process]] = {}
        found = []
        for process in psutil.process_iter(["cmdline", "ppid"]):
            children.setdefault(process.info["ppid"], []).append(process)
            if lease_id in (process.info["cmdline"] or ()):
                found.append(process)
        while found:
            process = found.pop()
            known.add(process)
            found += children.get(process.pid, [])
        return [process for process in known if _runs(process)]

    def jvm(self, lease_id: str) -> psutil.Process:
        """Return the JVM of the application that runs."""
        (jvm,) = [each for each in self.look(lease_id) if each.name() == "java"]
        return jvm

    def workers(self, lease_id: str) -> list[psutil.Process]:
        """Return the Python workers, which the daemon of the application has forked."""
        return [each for each in self.look(lease_id) if _is_worker(each)]

    def kill(self) -> None:
        """End all that were seen."""
        for lease_id in list(self._known):
            for process in self.look(lease_id):
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)


def executors() -> list[psutil.Process]:
    """Return the executors of clusters that this process has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("ExecutorBackend" in part for part in process.cmdline()):
                found.append(process)
    return found


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        parent = process.parent()
        return _is_daemon(process) and parent is not None and _is_daemon(parent)
    return False


def _is_daemon(process: psutil.Process) -> bool:
    return any("daemon" in part for part in process.cmdline()[1:4])
