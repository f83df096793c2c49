"""A standalone Spark cluster on this machine: a master and two workers, whose Python does not have our package."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from examples.ports import free_ports
from fluss_support import Watchdog
from waiting import wait_until

_CLASS: Final = "org.apache.spark.deploy"


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2, without: Sequence[Path] = ()) -> Iterator[str]:
    """Start a cluster, and yield the master's URL when all workers have registered.

    Args:
        folder: The folder for logs and work.
        workers: The number of workers.
        without: Folders that are empty for the workers, as on machines of their own.
    """
    port, *web_ports = free_ports(2 + workers)
    url = f"spark://127.0.0.1:{port}"
    master = [f"{_CLASS}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_ports[0])]
    worker = [f"{_CLASS}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", url]
    watchdog = Watchdog()
    processes: list[subprocess.Popen[bytes]] = []
    log = folder / "master.log"
    try:
        processes.append(_start(master, log, watchdog))
        _wait_for(log, r"Starting Spark master", 1)
        for number in range(workers):
            options = ["--webui-port", str(web_ports[1 + number]), "--work-dir", str(folder / f"work-{number}")]
            log_file = folder / f"worker-{number}.log"
            processes.append(_start([worker[0], *options, *worker[1:]], log_file, watchdog, without))
        _wait_for(log, r"Registering worker", workers)
        yield url
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(30)
        watchdog.end()


def python_without_engine(folder: Path) -> Path:
    """Return a Python with everything of our virtual environment except our own packages."""
    packages = folder / "packages"
    packages.mkdir()
    for entry in Path(pyspark.__file__).resolve().parents[1].iterdir():
        if entry.suffix != ".pth" and "editable" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys._base_executable} -s "$@"\n')
    python.chmod(0o755)
    lacks = subprocess.run(
        [python, "-c", "import pyarrow, numba, fluss_tiering"], env={}, capture_output=True, text=True, check=False
    )
    assert "No module named 'fluss_tiering'" in lacks.stderr, lacks.stderr
    return python


def can_hide_folders() -> bool:
    """Return whether this user may give a process a view of its own on the file system."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def _start(
    arguments: list[str], log: Path, watchdog: Watchdog, without: Sequence[Path] = ()
) -> subprocess.Popen[bytes]:
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    if without:
        mounts = " && ".join(f"mount -t tmpfs none {shlex.quote(str(each))}" for each in without)
        command = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    watchdog.watch(process.pid)
    return process


def _wait_for(log: Path, pattern: str, times: int) -> None:
    def text() -> str:
        return log.read_text(errors="replace")

    wait_until(lambda: len(re.findall(pattern, text())) >= times, describe=text)
