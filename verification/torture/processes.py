"""The driver of a run: a process with Spark, which is started, killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from fetch_spark_jars import jars
from fluss_support import Watchdog
from fluss_tiering.spark.submit import JARS_VARIABLE
from torture.driver.fate import fate_of, kills_for_memory

DISK_FULL: Final = "disk-full"
"""The file in the driver's folder that stands for a full disk."""
_ANSWER_S: Final = 600.0
_ROOT: Final = Path(__file__).resolve().parents[2]


class DriverDiedError(Exception):
    """The driver ended before it answered."""


class CommandFailedError(Exception):
    """The driver answered with an error."""


class DriverProcess:
    """The driver, started when it is needed. It is a process group with Spark's JVM and the workers."""

    def __init__(
        self, folder: Path, watchdog: Watchdog, defect: str | None = None, more_jars: Sequence[Path] = ()
    ) -> None:
        self._folder = folder
        self.log_file = folder / "driver.log"
        self._process: subprocess.Popen[str] | None = None
        self._environment = {
            **os.environ,
            JARS_VARIABLE: ",".join(map(str, [*jars(), *more_jars])),
            "PYTHONPATH": os.pathsep.join(str(_ROOT / each) for each in ("verification", "tests", "tools")),
            # The S3 server of tests takes no checksums behind the body.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "TORTURE_DEFECT": defect or "",
            "TORTURE_DISK_FULL": str(folder / DISK_FULL),
        }
        self.starts = 0
        self._out_of_memory = 0
        self._watchdog = watchdog

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the driver, if it does not run."""
        if self.running:
            return
        self.starts += 1
        self._out_of_memory = kills_for_memory()
        with self.log_file.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "torture.driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
            )
        # Spark's JVM and the workers end when the driver is gone.
        self._watchdog.watch(self._process.pid)
        self._answer(_ANSWER_S)

    def begin(self, do: str, **arguments: Any) -> None:
        """Send a command."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def end(self, timeout: float = _ANSWER_S) -> Any:
        """Return the answer to a command.

        Raises:
            DriverDiedError: The driver ended, or did not answer in time and was killed.
            CommandFailedError: The command failed.
        """
        answer = self._answer(timeout)
        if "failed" in answer:
            raise CommandFailedError(answer["failed"])
        return answer["result"]

    def call(self, do: str, **arguments: Any) -> Any:
        self.begin(do, **arguments)
        return self.end()

    def has_answered(self) -> bool:
        """Return whether an answer waits to be read."""
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            return bool(selector.select(0))

    def workers(self) -> list[psutil.Process]:
        """Return the Python workers that run at present."""
        with contextlib.suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.pid).children(recursive=True)
            daemons = [each.pid for each in below if "torture.driver.daemon" in each.cmdline()]
            return [each for each in below if each.ppid() in daemons]
        return []

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the driver."""
        if self.running:
            os.killpg(self.pid, number)

    def kill(self) -> None:
        if self.running:
            self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._watchdog.forget(self._process.pid)

    def _answer(self, timeout: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not selector.select(0.5):
                if time.monotonic() > deadline:
                    self.kill()
                    raise DriverDiedError(f"the driver did not answer within {timeout:g} s")
        line = self._process.stdout.readline()
        if not line:
            self.kill()
            fate = fate_of(self._process.returncode, self._folder, self._out_of_memory)
            raise DriverDiedError(f"the driver {fate}; the end of its log is\n{self.log_tail()}")
        return json.loads(line)  # type: ignore[no-any-return]

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])
