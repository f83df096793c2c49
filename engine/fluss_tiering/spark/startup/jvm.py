"""The JVM that a command starts: its settings, its process, and its messages.

It plans and commits; no row passes through it. Spark's own settings are for a JVM that computes. Ours compile quickly
and only once, collect garbage in one thread, and let the heap grow only as far as it is used. On two cores the first
commit then comes a quarter earlier, and the JVM needs 100 MB less memory. Java keeps only 48 MB for code that is
compiled once, which a drain that plans, commits and maintains for hours fills. A tenth of its time would then go into
throwing code away and compiling it again.

The JVM never outlives the command. pyspark starts it with a pipe to its standard input, at whose end it ends. It looks
at this pipe only once its gateway runs. Before that it may download packages for minutes, whatever has become of the
command. So the kernel is asked to end the JVM with its parent, however that ends.

Spark and Ivy write hundreds of lines when nothing is wrong. A command shows lines of its own instead, and those of
Spark with `--verbose`, or the last ones if Spark fails.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext, java_gateway
from pyspark.find_spark_home import _find_spark_home

ARCHIVE_VARIABLE: Final = "FLUSS_TIERING_CLASS_ARCHIVE"
"""The environment variable that names a class-data archive to start with (`class_archive`)."""
OPTIONS_KEY: Final = "spark.driver.defaultJavaOptions"

_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -Xms64m"
_WARN_ON_STDERR: Final = "-Xlog:disable -Xlog:all=warning:stderr"
"""Java's warnings go to standard error, since standard output is for what a command prints."""
_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_FILES: Final = ("spark-defaults.conf", "spark-env.sh")
_TUNES: Final = re.compile(r"^[^#]*(?:driver\S*java-?options|java_(?:tool_)?options|submit_opts)", re.I | re.M)
logger = logging.getLogger(__name__)
_PR_SET_PDEATHSIG: Final = 1
_KEPT_LINES: Final = 200
_TOLD_LINES: Final = 3
_END_SECONDS: Final = 10.0
_LAST_MESSAGES_S: Final = 2.0
_NO_CAUSE: Final = re.compile(
    r"^\s|^\s*$|^Caused by|^\.\.\.|\b(?:INFO|WARN|WARNING)\b|^(?:Using|Setting|To adjust) |^::"
    r"|^Ivy Default Cache|^The jars for the packages|added as a dependency$"
)
"""Lines that say nothing of why Spark failed: frames of a stack, and what Spark and Ivy write at every start."""


def driver_jvm_conf(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return settings of the driver's JVM; none if `spark-submit` has started it, or if a user tunes it.

    A user tunes it with an environment variable of Java or Spark, in `PYSPARK_SUBMIT_ARGS`, or in Spark's files. With
    two garbage collectors, the user's and ours, a JVM would not start.
    """
    if under_spark_submit(environment):
        # Spark's home may not be on this machine: on YARN, pyspark is a zip file beside the driver.
        return {}
    if any(environment.get(name) for name in _VARIABLES) or _TUNES.search(environment.get("PYSPARK_SUBMIT_ARGS", "")):
        return {}
    files = (spark_conf_folder(environment) / name for name in _FILES)
    if any(_TUNES.search(file.read_text(errors="replace")) for file in files if file.is_file()):
        return {}
    return {OPTIONS_KEY: _OPTIONS + _with_archive(environment.get(ARCHIVE_VARIABLE))}


def under_spark_submit(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether `spark-submit` has started this process, and a JVM for it."""
    return "PYSPARK_GATEWAY_PORT" in environment


def spark_conf_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of Spark's configuration files, which need not exist."""
    return Path(environment.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))


def _with_archive(file: str | None) -> str:
    if not file:
        return ""
    if not Path(file).is_file():
        logger.warning(
            "%s=%s is not a file: Spark starts without it; make it with `fluss-tiering class-archive`",
            ARCHIVE_VARIABLE,
            file,
        )
        return ""
    return f' {_WARN_ON_STDERR} "-XX:SharedArchiveFile={file}"'


class JvmProcess:
    """The JVM that pyspark starts in the block of `own_jvm`; none if this process has one already."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._ends_with_us = _end_with_parent()

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start the JVM as pyspark asks for it, and read its messages."""
        before = options.pop("preexec_fn", None)

        def prepare() -> None:
            if before is not None:
                before()
            self._ends_with_us()

        # pyspark prepares its process in the same way.
        self._process = subprocess.Popen(
            # Ivy writes to standard output, which is for what the command prints.
            command,
            **options,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=prepare,  # noqa: PLW1509
        )
        self._reader = threading.Thread(target=self._read, name="fluss-tiering-jvm-messages", daemon=True)
        self._reader.start()
        return self._process

    def last_words(self) -> str:
        """Return the last messages of the JVM that may say why it failed, in one line.

        If it has ended without such a message, the text says how its process ended. It is empty if the JVM runs on
        without a message, or was not started here.
        """
        code = None if self._process is None else self._process.poll()
        if code is not None and self._reader is not None:
            # The process may end before its last messages are read. Its own children may keep the pipe open for longer.
            self._reader.join(_LAST_MESSAGES_S)
        told = [line.strip() for line in list(self._lines) if not _NO_CAUSE.search(line)]
        return "; ".join(dict.fromkeys(told[-_TOLD_LINES:])) or ("" if code is None else _how_it_ended(code))

    def died(self, within_s: float = 0) -> bool:
        """Return whether the JVM was started here and has ended by itself, or does so within some seconds."""
        if self._process is None:
            return False
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self._process.returncode is not None

    def end(self) -> None:
        """End a JVM whose start was interrupted, and wait for its end."""
        if self._process is None:
            return
        gateway = SparkContext._gateway  # noqa: SLF001
        if gateway is not None and gateway.proc is self._process:
            # A later session of this process would otherwise use the JVM that has ended.
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            return
        for line in process.stdout:
            text = line.decode(errors="replace").rstrip()
            self._lines.append(text)
            logger.info("%s", text)


@contextmanager
def own_jvm() -> Iterator[JvmProcess]:
    """Let a JVM that pyspark starts in the block end with this process. A JVM whose start fails is ended."""
    jvm = JvmProcess()
    before = java_gateway.Popen
    java_gateway.Popen = jvm.start
    try:
        yield jvm
    except BaseException:
        jvm.end()
        raise
    finally:
        java_gateway.Popen = before


def _how_it_ended(code: int) -> str:
    # A shell starts the JVM and tells a signal by a number above 128.
    number = -code if code < 0 else code - 128
    if number in set(signal.Signals):
        return f"its process was ended by {signal.Signals(number).name} without a message: try again"
    return f"its process ended with the exit code {code} and without a message"


def _end_with_parent() -> Callable[[], None]:
    """Return a function with which a new process asks the kernel for SIGTERM at its parent's end.

    To the kernel the parent is the thread that starts the process, so only the main thread's processes can ask for it.
    """
    if not sys.platform.startswith("linux") or threading.current_thread() is not threading.main_thread():
        return lambda: None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return ask
