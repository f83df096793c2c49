"""Ctrl-C and SIGTERM in a process that has started a Spark session.

pyspark installs a handler of SIGINT that asks the JVM to cancel all jobs. If the main thread waits for an answer of the
JVM at that moment, the handler asks over the same connection. The call that waits then fails like any call to a lake
that is down, so that a command would take the signal for the failure of one table and go on with the next one.

SIGTERM would end the process at once, and leave on the server what the process holds there.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any, Final

from pyspark import SparkContext

_LOGGERS_OF_PY4J: Final = (None, "py4j.clientserver", "py4j.java_gateway")
"""None is the root logger, with which py4j logs calls that fail."""
_PY4J: Final = f"{os.sep}py4j{os.sep}"
"""A part of the path of each source file of py4j."""

_TERMINATED_CODE: Final = 128 + signal.SIGTERM
"""The exit code that a shell reports for a program that SIGTERM ended."""

_interrupted: Final = threading.Event()
_terminated: Final = threading.Event()


def check_interrupt() -> None:
    """Raise KeyboardInterrupt if SIGINT has come since the session was started, and SystemExit if SIGTERM has.

    pyspark calls the JVM while the exception passes. That call may fail, and its error then hides the exception.
    """
    if _terminated.is_set():
        raise SystemExit(_TERMINATED_CODE)
    if _interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit in the block, so that what it holds is released as after Ctrl-C.

    Only the main thread receives signals. In another thread, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        _terminated.clear()


@contextmanager
def interrupted_by_sigint() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt in the main thread from the start of a session in the block on.

    The session cancels its jobs when it is stopped.
    """
    _interrupted.clear()
    module: Any = sys.modules[SparkContext.__module__]
    before = module.signal
    module.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=_install)
    try:
        yield
    finally:
        module.signal = before


def _install(number: int, _of_pyspark: Callable[[int, FrameType | None], Any]) -> None:
    signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def _terminate(_number: int, _frame: FrameType | None) -> None:
    _terminated.set()
    raise SystemExit(_TERMINATED_CODE)


def quieten_py4j() -> None:
    """Let py4j log no tracebacks of calls that fail. Who makes such a call gets its error."""
    for name in _LOGGERS_OF_PY4J:
        logging.getLogger(name).addFilter(_is_no_failed_call)


def _is_no_failed_call(record: logging.LogRecord) -> bool:
    # py4j logs the traceback of the call, and that of its connection.
    return record.exc_info is None or _PY4J not in record.pathname
